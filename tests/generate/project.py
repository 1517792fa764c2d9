"""A project with questions, and helpers of the tests of `citer generate`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from citer.config.params import Params
from citer.data.importing import parse_row
from citer.data.problems import Problem
from citer.models.folder import PairFolder
from citer.models.pair import Pair, load_pair
from citer.rule import Rule
from citer.serving.deployment import Reply
from citer.serving.generate import generate, line
from citer.serving.log import Decode, audited_row
from citer.storage.schema import AUDITED

MATH = [
    {"problem": "What is 3 + 4?", "solution": "It is \\boxed{7}."},
    {"problem": "What is 2 * 5?"},
    {"problem": "What is 9 - 1?", "answer": "8"},
]

MC = [
    {
        "question": "Which is a planet?",
        "choices": {"text": ["Mars", "the Sun"], "label": ["1", "2"]},
        "answerKey": "1",
    }
]

LONG = {"problem": "Why? " * 400}

RULE = Rule("score", 0.5)

MAX_NEW_TOKENS = 12


@dataclass(frozen=True)
class Project:
    """A folder with a pair, a router, and three questions in a file."""

    params: Params
    bundle: Path
    folder: Path

    @property
    def source(self) -> Path:
        return self.folder / "q.jsonl"

    @property
    def output(self) -> Path:
        return self.folder / "out.jsonl"

    def write(self, rows: Sequence[dict]) -> None:
        self.source.write_text("\n".join(map(json.dumps, rows)))

    def generate(self, rule: Rule | None = None) -> list[dict]:
        generate(self.params, self.bundle, self.source, self.output, rule)
        return answers(self.output)

    def audited(self, rule: Rule) -> tuple[list[dict], list[dict]]:
        """Return the rows that a server would log, and the answers."""
        rows: list[dict] = []

        def noting(reply: Reply, decode: Decode) -> dict[str, Any]:
            rows.append(audited_row(reply, decode))
            return line(reply, decode)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("citer.serving.generate.line", noting)
            found = self.generate(rule)
        return pa.Table.from_pylist(rows, AUDITED).to_pylist(), found

    def killed(self, number: int, rule: Rule) -> None:
        """Generate until a kill at the answer of this number."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("citer.serving.generate.line", killed_at(number))
            with pytest.raises(KeyboardInterrupt):
                self.generate(rule)


def killed_at(number: int) -> Callable[..., dict]:
    """Wrap `line`: raise KeyboardInterrupt at the answer of this number."""
    seen = 0

    def wrapper(*arguments: Any) -> dict:
        nonlocal seen
        seen += 1
        if seen == number:
            raise KeyboardInterrupt
        return line(*arguments)

    return wrapper


def own_pair(params: Params) -> Pair:
    return load_pair(PairFolder(Path("data/models/slm"), Path(params.pair.llm)), params.pair)


def answers(output: Path) -> list[dict]:
    return [json.loads(line) for line in output.read_text().splitlines()]


def parsed(rows: list[dict]) -> list[Problem]:
    return [parse_row(row, "math", requires="question") for row in rows]
