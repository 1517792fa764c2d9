"""Stop strings: texts that end an answer and are not part of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class StopTexts:
    """An answer ends with the first token after which its last tokens contain one of `texts`.

    Whether it has ended depends only on its tokens, and not on the model that wrote them. Routed
    answers therefore end where the LLM's own answer would.
    """

    texts: tuple[str, ...]
    tokenizer: PreTrainedTokenizerFast

    @cached_property
    def window(self) -> int:
        """Tokens to decode: each has a byte at least, and the first three may be half a character.

        One more allows for a decoder that strips the first token's space.
        """
        return max(len(text.encode()) for text in self.texts) + 4

    def end(self, ids: Sequence[int], first: int = 0) -> bool:
        """Return whether a text stands at the end of an answer, which begins at index `first`."""
        tail = list(ids[max(first, len(ids) - self.window) :])
        written = self.tokenizer.decode(tail, skip_special_tokens=True)
        return any(text in written for text in self.texts)

    def cut(self, answer: str) -> str:
        """Return the part of an answer before the first stop text."""
        places = (answer.find(text) for text in self.texts)
        return answer[: min((place for place in places if place >= 0), default=len(answer))]
