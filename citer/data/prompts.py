"""Prompt formats: how a problem becomes token ids, the same for both models of a pair."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from citer.data.problems import Problem
from citer.data.tasks import TASKS, prompt_text

if TYPE_CHECKING:  # takes a second to import
    from transformers import PreTrainedTokenizerBase

TEMPLATES = [template for task in TASKS.values() for template in task.templates]
TEMPLATE_HASH = hashlib.sha256("\0".join(TEMPLATES).encode()).hexdigest()[:16]


class Encoded(NamedTuple):
    """Token ids; `reference_ids` ends with EOS, and is empty if there is no reference.

    The state at position P + i - 1 predicts row i of a token table, P = len(prompt_ids).
    """

    prompt_ids: list[int]
    reference_ids: list[int]


class PromptFormat(ABC):
    """Turns problems into token ids. A pair's two tokenizers must give the same ids."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Identifies the format. It is part of a router's identity."""

    @abstractmethod
    def prompt_ids(self, problem: Problem) -> list[int]:
        """The ids of everything that precedes an answer."""

    @abstractmethod
    def completion_ids(self, text: str) -> list[int]:
        """The ids of an answer, EOS included."""

    def encode(self, problem: Problem) -> Encoded:
        """Encode prompt and reference apart, so that no token spans their border."""
        reference = problem.reference
        reference_ids = [] if reference is None else self.completion_ids(reference)
        return Encoded(self.prompt_ids(problem), reference_ids)

    def encode_all(self, problems: Iterable[Problem]) -> dict[str, Encoded]:
        """Encode problems, in order, by problem_id."""
        return {problem.problem_id: self.encode(problem) for problem in problems}


class PlainPrompts(PromptFormat):
    """The plain template of each task, without chat roles."""

    digest = TEMPLATE_HASH

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", eos_id: int) -> None:
        self.tokenizer = tokenizer
        self.eos_id = eos_id

    def prompt_ids(self, problem: Problem) -> list[int]:
        return token_ids(prompt_text(problem), self.tokenizer, begins=True)

    def completion_ids(self, text: str) -> list[int]:
        return [*token_ids(text, self.tokenizer, begins=False), self.eos_id]


def token_ids(text: str, tokenizer: "PreTrainedTokenizerBase", *, begins: bool) -> list[int]:
    """The ids of a text. The name of a special token in it is encoded as ordinary text.

    If the text `begins` a sequence, the tokenizer adds its own special tokens, such as BOS. An
    added token that is not special keeps its id.
    """
    return tokenizer(text, add_special_tokens=begins, split_special_tokens=True).input_ids


def probes() -> list[Problem]:
    """An example of every task with its reference, to compare two tokenizers by."""
    return [task.problem(task.example, "reference", "example") for task in TASKS.values()]
