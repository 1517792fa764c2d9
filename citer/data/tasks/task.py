"""The interface of a task."""

from abc import ABC, abstractmethod
from typing import ClassVar

from citer.data.problems import Problem
from citer.data.tasks.rows import Format, Requires, Row, RowError, given


class GraderError(Exception):
    """A grader that runs code of the user failed on an answer, which counts as wrong."""


class Task(ABC):
    """A row format, a prompt and a grader.

    `fields` are those of a raw row that make up the question. A row belongs to this task if it has
    the first of them. `reference_field` has the worked answer, and `answer_field` the right one;
    two texts say what either is, for messages. `templates` are all texts from which prompts are
    made; the digest of the prompts covers them. `example` is a raw row with a reference, by which
    two tokenizers are compared. `formats` are those of raw rows, most specific first; without any,
    rows must be in the task's own. Unless `graded`, no answer is read. A completion is right if its
    share is at least `pass_share`. If `right_is_same`, two right completions of a problem are
    always the same.
    """

    name: str
    fields: ClassVar[tuple[str, ...]]
    reference_field: ClassVar[str]
    reference_text: ClassVar[str] = "a right completion"
    answer_field: ClassVar[str] = "answer"
    answer_text: ClassVar[str] = "a text: the answer"
    templates: ClassVar[tuple[str, ...]]
    example: ClassVar[Row]
    formats: ClassVar[tuple[Format, ...]] = ()
    graded: bool = True
    pass_share: float = 1.0
    right_is_same: bool = True
    wider: str | None = None  # a task that reads more forms of the same answers
    digest: str | None = None  # of a user's code, which the digests of citer's code do not cover

    @property
    def row_formats(self) -> tuple[Format, ...]:
        """The formats. A task without any has its own: any row that has the first field."""
        signs = f"`{self.fields[0]}`" if self.fields else "an object with `task`"

        def fits(row: Row) -> bool:
            return bool(self.fields) and given(row, self.fields[0])

        return self.formats or (Format(self.name, signs, fits),)

    @abstractmethod
    def problem(self, row: Row, source: str) -> Problem:
        """Turn a raw row into a problem without a split, whatever it lacks. Raises RowError."""

    def check(self, problem: Problem, requires: Requires) -> None:
        """Raise RowError if a problem lacks what is required."""
        if requires == "answer" and not self.graded:
            found = f"not read by the task {self.name.rpartition(':')[2]}"
            raise RowError("answer", found, "a task with a grader, or evaluate.against: llm")
        if requires != "question" and self.graded and problem.answer is None:
            raise RowError(self.answer_field, "missing", self.answer_text)
        if requires == "reference" and problem.reference is None:
            raise RowError(self.reference_field, "missing", self.reference_text)

    @abstractmethod
    def prompt_text(self, problem: Problem) -> str:
        """Return the text of the plain prompt, without special tokens."""

    @abstractmethod
    def message_text(self, problem: Problem) -> str:
        """Return the user's turn of a chat template: the question, and the form of the answer."""

    def said(self, completion: str) -> str:
        """Return the part of a completion that is read: all that follows a model's thinking."""
        return completion.rpartition("</think>")[2]

    @abstractmethod
    def grade(self, problem: Problem, completion: str) -> bool | float:
        """Return whether `completion` answers `problem`, or which share of it, from 0 to 1.

        `completion` is what was `said` after the prompt. The problem has an answer. Raises
        GraderError only if it runs code of the user.
        """

    def same(self, problem: Problem, one: str, other: str) -> bool:
        """Return whether two completions give the same answer. By default, the same words.

        Completions of the same words are always the same answer, unless code of the user decides.
        Others are not the same if the task reads no answer in one of them. Raises GraderError only
        if it runs code of the user. They then count as not the same.
        """
        return one.split() == other.split()

    def extracted(self, problem: Problem, completion: str) -> str | None:
        """Return what `grade` reads in a completion as its answer, for people to look at.

        "" if it reads nothing. None if the task does not say, which is the default.
        """
        return None
