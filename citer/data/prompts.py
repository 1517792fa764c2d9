"""One template a task, one encoder: all that is ever encoded goes through here."""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from citer.data.problems import Problem
from citer.data.tasks import TASKS, prompt_text
from citer.errors import InputError

if TYPE_CHECKING:  # takes a second to import
    from transformers import PreTrainedTokenizerBase

TEMPLATES = [template for task in TASKS.values() for template in task.templates]
TEMPLATE_HASH = hashlib.sha256("\0".join(TEMPLATES).encode()).hexdigest()[:16]


class Encoded(NamedTuple):
    """Token ids; `reference_ids` ends with EOS, and is empty where there is no reference.

    Row i of a token table is predicted by the state at position P + i - 1, P = len(prompt_ids).
    """

    prompt_ids: list[int]
    reference_ids: list[int]


def token_ids(text: str, tokenizer: "PreTrainedTokenizerBase", *, begins: bool) -> list[int]:
    """The ids of a text. The name of a special token in it is read as any other text.

    Where the text `begins` a sequence, the tokenizer adds its own special tokens, such as BOS. An
    added token that the tokenizer does not call special keeps its id.
    """
    return tokenizer(text, add_special_tokens=begins, split_special_tokens=True).input_ids


def encode(problem: Problem, tokenizer: "PreTrainedTokenizerBase", eos_id: int) -> Encoded:
    """Encode prompt and reference apart, so that no token ever spans their border."""
    prompt_ids = token_ids(prompt_text(problem), tokenizer, begins=True)
    if problem.reference is None:
        return Encoded(prompt_ids, [])
    reference = token_ids(problem.reference, tokenizer, begins=False)
    return Encoded(prompt_ids, [*reference, eos_id])


def encode_all(
    problems: Iterable[Problem], tokenizer: "PreTrainedTokenizerBase", eos_id: int
) -> dict[str, Encoded]:
    """Encoded by problem_id, in order."""
    return {problem.problem_id: encode(problem, tokenizer, eos_id) for problem in problems}


def check_context(
    examples: Iterable[tuple[str, Encoded]], context: int, room: int = 0, setting: str = ""
) -> None:
    """Raise InputError for the first example, told by where it stands, that is beyond the context.

    It must leave as much room as the key `setting` of the parameters asks for.
    """
    more = f" and up to {room} more ({setting})" if room else ""
    for where, (prompt_ids, reference_ids) in examples:
        length = len(prompt_ids) + len(reference_ids)
        if length + room > context:
            raise InputError(
                f"{where}: {length} tokens{more}, expected at most {context}, the models' context"
            )
