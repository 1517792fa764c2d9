"""Check that a sequence fits the context of the models."""

from collections.abc import Iterable, Mapping, Sequence

from citer.data.problems import Problem
from citer.data.prompts import Encoded
from citer.errors import InputError
from citer.models.folder import PairFolder

SETTING = "decode.max_new_tokens"
CHARACTERS = 16  # of a token, at most, on average over a text


class TooLongError(InputError):
    """A text does not fit the context of the models."""


def check_characters(where: str, characters: int, context: int) -> None:
    """Raise TooLongError for a text of so many characters that it cannot fit.

    Encoding ten million characters takes a minute, and other threads wait meanwhile.
    """
    if characters > (most := CHARACTERS * context):
        expected = f"expected at most {most:,}, {CHARACTERS} for each token of the models' context"
        raise TooLongError(f"{where}: {characters:,} characters, {expected}")


def check_fits(
    where: str, length: int, context: int, new_tokens: int = 0, setting: str = "max_new_tokens"
) -> None:
    """Raise TooLongError if `length` tokens and up to `new_tokens` more exceed `context`.

    The message begins with `where`; `setting` is the key of the parameters that sets `new_tokens`.
    """
    if length + new_tokens > context:
        more = f" and up to {new_tokens} more ({setting})" if new_tokens else ""
        raise TooLongError(
            f"{where}: {length} tokens{more}, expected at most {context}, the models' context"
        )


def check_examples(examples: Mapping[str, Encoded], context: int, new_tokens: int = 0) -> None:
    """Raise InputError for the first problem that does not fit with its reference or an answer."""
    for key, (prompt_ids, reference_ids) in examples.items():
        check_fits(f"problem {key}", len(prompt_ids) + len(reference_ids), context)
        check_fits(f"problem {key}", len(prompt_ids), context, new_tokens, SETTING)


def check_longest(
    problems: Sequence[Problem], examples: Sequence[Encoded], max_length: int, new_tokens: int = 0
) -> None:
    """Raise InputError with the longest training row if it has more than `max_length` tokens.

    With `new_tokens`, the LLM will write the references, with up to so many tokens.
    """
    lengths = [len(prompt) + (new_tokens or len(reference)) for prompt, reference in examples]
    longest = max(range(len(problems)), key=lengths.__getitem__)
    if lengths[longest] > max_length:
        problem = problems[longest]
        answer = f" and an answer of {new_tokens} ({SETTING})" if new_tokens else ""
        raise InputError(
            f"sft problem {problem.problem_id} of {problem.source}: {lengths[longest]} tokens with "
            f"its prompt{answer}, the longest of all; expected at most {max_length} "
            "(finetune.max_length)"
        )


def check_room(
    questions: Iterable[tuple[str, Problem]],
    folders: PairFolder,
    max_new_tokens: int,
    setting: str = SETTING,
) -> None:
    """Raise InputError for the first question without a prompt, or without room for its answer.

    Each question comes with its place, by which the message names it.
    """
    for where, problem in questions:
        check_characters(where, problem.characters, folders.context)
        try:
            length = len(folders.prompts.prompt_ids(problem))
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        check_fits(where, length, folders.context, max_new_tokens, setting)
