"""One template a task, one encoder: finetuning, scoring, rollouts and serving all read these."""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from citer.data.problems import Problem
from citer.errors import InputError

if TYPE_CHECKING:  # takes a second to import
    from transformers import PreTrainedTokenizerBase

MATH = "Solve the problem. Put the final answer in \\boxed{{}}.\nProblem: {question}\nSolution:\n"
MC = "Choose the right option and name its letter.\nQuestion: {question}\n{options}\nAnswer:\n"
OPTION = "({label}) {text}"

TEMPLATE_HASH = hashlib.sha256("\0".join((MATH, MC, OPTION)).encode()).hexdigest()[:16]


class Encoded(NamedTuple):
    """Token ids; `reference_ids` ends with EOS, and is empty where there is no reference.

    Row i of a token table is predicted by the state at position P + i - 1, P = len(prompt_ids).
    """

    prompt_ids: list[int]
    reference_ids: list[int]


def prompt(problem: Problem) -> str:
    if problem.task == "math":
        return MATH.format(question=problem.question)
    options = "\n".join(OPTION.format(label=c.label, text=c.text) for c in problem.choices or ())
    return MC.format(question=problem.question, options=options)


def encode(problem: Problem, tokenizer: "PreTrainedTokenizerBase", eos_id: int) -> Encoded:
    """Encode prompt and reference apart, so that no token ever spans their border."""
    prompt_ids = tokenizer(prompt(problem)).input_ids
    if problem.reference is None:
        return Encoded(prompt_ids, [])
    reference = tokenizer(problem.reference, add_special_tokens=False).input_ids
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
