"""What ends an answer, and what a request must satisfy before it is decoded."""

from collections.abc import Sequence
from dataclasses import dataclass

from citer.decoding.answer import Request
from citer.errors import InputError
from citer.models.room import check_fits
from citer.models.tokenizer import StopTexts


@dataclass(frozen=True)
class Limits:
    """The conditions that end an answer: an EOS token, a stop text, or the number of tokens."""

    eos_ids: tuple[int, ...]
    max_new_tokens: int
    stops: StopTexts | None = None

    def complete(self, ids: Sequence[int], answer_from: int) -> bool:
        """Return whether EOS or a stop text ends the answer, which begins at this index."""
        if ids[-1] in self.eos_ids:
            return True
        return self.stops is not None and self.stops.end(ids, answer_from)

    def check(self, request: Request, context: int) -> None:
        """Raise InputError if a request is empty or does not fit the models' context."""
        length = len(request.prompt_ids) + len(request.prefix_ids)
        if not length:
            raise InputError(f"{request.key}: no tokens, expected a prompt")
        check_fits(request.key, length, context, self.max_new_tokens)
