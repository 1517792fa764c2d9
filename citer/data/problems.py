"""Problems: questions with a reference and an answer, and the tables that hold them."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal
from unicodedata import normalize

LLM_ROW = ".llm"  # ends the id of a second row of a question, with the LLM's reference


@dataclass(frozen=True, slots=True)
class Choice:
    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Message:
    """A turn of a conversation. The role is `system`, `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One row of the problem table (see `citer.storage.schema.PROBLEM`).

    Training needs `reference`, grading needs `answer`. Otherwise they may be None.
    """

    problem_id: str
    task: str
    question: str
    choices: tuple[Choice, ...] | None
    reference: str | None
    answer: str | None
    source: str
    split: str
    messages: tuple[Message, ...] | None = None
    written_by: Literal["llm"] | None = None

    @property
    def conversation(self) -> str:
        """The text of all turns but the system's. Problems with equal ones belong to one split."""
        earlier = [turn.content for turn in self.messages or () if turn.role != "system"]
        return "\n".join([*earlier, self.question])

    @property
    def characters(self) -> int:
        """The length of what is asked: all turns and choices."""
        earlier = sum(len(turn.content) + 1 for turn in self.messages or ())
        return earlier + len(self.question) + sum(len(each.text) for each in self.choices or ())

    @property
    def gradable(self) -> bool:
        """Whether an answer can be graded: against the right one, or against the LLM's own."""
        return self.answer is not None or self.written_by == "llm"


def question_key(question: str) -> str:
    """Return a hash of the question that ignores case, white space and forms of accents."""
    text = " ".join(normalize("NFC", question).lower().split())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def seeded(key: str, seed: int) -> str:
    """Return a hash. Keys sorted by it are in a random order, in which none moves another."""
    return hashlib.sha256(f"{seed} {key}".encode()).hexdigest()


def first_id(problem_id: str) -> str:
    """Return the id of a question's first row, without the `LLM_ROW` of its second one."""
    return problem_id.partition(".")[0]


def problem_key(
    task: str,
    question: str,
    choices: Sequence[Choice] | None,
    messages: Sequence[Message] | None = None,
) -> str:
    """Return the id of a problem. It depends on the content only, and is equal in every run."""
    parts = [task, question_key(question), *(f"{c.label}\t{c.text}" for c in choices or ())]
    parts += [f"{message.role}\t{message.content}" for message in messages or ()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def write_problems(path: Path, problems: Iterable[Problem], metadata: dict) -> None:
    import pyarrow as pa  # it is slow to import, and every command imports the tasks

    from citer.storage.schema import PROBLEM
    from citer.storage.tables import write_table

    table = pa.Table.from_pylist([asdict(problem) for problem in problems], schema=PROBLEM)
    write_table(path, table, PROBLEM, metadata)


def read_problems(path: Path) -> list[Problem]:
    """Read a problem table. Raises InputError if the file is not one."""
    from citer.storage.schema import PROBLEM
    from citer.storage.tables import read_table

    return [as_problem(row) for row in read_table(path, PROBLEM).to_pylist()]


def as_problem(row: dict[str, Any]) -> Problem:
    known = {field.name: row[field.name] for field in fields(Problem)}
    choices, messages = row["choices"], row["messages"]
    parts = {
        "choices": choices and tuple(Choice(**each) for each in choices),
        "messages": messages and tuple(Message(**each) for each in messages),
    }
    return Problem(**known | parts)
