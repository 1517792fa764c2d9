"""Prompt formats turn a problem into token ids, the same for both models of a pair."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from citer.data.problems import Problem
from citer.data.tasks import TASKS, prompt_text

if TYPE_CHECKING:  # takes a second to import
    from transformers import PreTrainedTokenizerBase

TEMPLATES = dict.fromkeys(template for task in TASKS.values() for template in task.templates)
TEMPLATE_HASH = hashlib.sha256("\0".join(TEMPLATES).encode()).hexdigest()[:16]


class Encoded(NamedTuple):
    """Token ids. `reference_ids` ends with EOS. It is empty if there is no reference.

    With P = len(prompt_ids), the state at position P + i - 1 predicts row i of a token table.
    """

    prompt_ids: list[int]
    reference_ids: list[int]


class PromptFormat(ABC):
    """Turns problems into token ids. A pair's two tokenizers must give the same ids."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """A digest of the format, which is part of a router's identity."""

    @abstractmethod
    def prompt_ids(self, problem: Problem) -> list[int]:
        """Return the ids of all that precedes an answer."""

    @abstractmethod
    def completion_ids(self, text: str) -> list[int]:
        """Return the ids of an answer, EOS included."""

    def encode(self, problem: Problem) -> Encoded:
        """Encode prompt and reference separately, so that no token spans both."""
        reference = problem.reference
        reference_ids = [] if reference is None else self.completion_ids(reference)
        return Encoded(self.prompt_ids(problem), reference_ids)

    def encode_all(self, problems: Iterable[Problem]) -> dict[str, Encoded]:
        """Encode problems in order. Returns them by problem_id."""
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
    """Return the ids of a text. The name of a special token in it is encoded as ordinary text.

    If the text `begins` a sequence, the tokenizer adds its own special tokens, such as BOS. An
    added token that is not special gets its own id.
    """
    return tokenizer(text, add_special_tokens=begins, split_special_tokens=True).input_ids


def probes() -> list[Problem]:
    """Return an example of every task, with its reference, to compare two tokenizers."""
    return [task.problem(task.example, "reference", "example") for task in TASKS.values()]
