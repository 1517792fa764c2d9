"""The text of an answer, piece by piece as its tokens settle."""

from collections.abc import Sequence

from citer.models.pair import Pair

HALF = "\ufffd"  # stands for a character of which bytes are missing


class TextStream:
    """Turns settled tokens into text. The pieces and the `rest` are together `Pair.text`.

    A token may end within a character, and a tokenizer may write a token differently after another
    one. The new tokens are therefore decoded after those of the previous piece (the method of
    text-generation-inference and vLLM). Text that may be the beginning of a stop text is held back.
    """

    def __init__(self, pair: Pair, stop: Sequence[str]) -> None:
        self._pair = pair
        self._stops = (*pair.prompts.stop, *stop)
        self._ids: list[int] = []  # those of the previous piece, then new ones
        self._old = 0  # number of those of the previous piece
        self._text = ""  # all complete characters
        self._sent = 0

    def add(self, token_ids: Sequence[int]) -> str:
        """Return the text that is certain after these tokens, and was not returned before."""
        self._ids += token_ids
        before, after = self._decode(self._ids[: self._old]), self._decode(self._ids)
        if len(after) > len(before) and not after.endswith(HALF):
            self._text += after[len(before) :]
            self._ids, self._old = self._ids[self._old :], len(self._ids) - self._old
        return self._send(len(self._text) - self._held())

    def rest(self, text: str) -> str:
        """Return what is missing of the answer's whole text."""
        return text[self._sent :]

    def _decode(self, token_ids: Sequence[int]) -> str:
        return str(self._pair.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def _held(self) -> int:
        """Return the length of the longest end of the text that begins a stop text or has one."""
        unsent = self._text[self._sent :]
        found = [len(unsent) - unsent.find(stop) for stop in self._stops if stop in unsent]
        begun = (
            size
            for stop in self._stops
            for size in range(min(len(stop), len(unsent) + 1) - 1, 0, -1)
            if unsent.endswith(stop[:size])
        )
        return max([*found, *begun], default=0)

    def _send(self, end: int) -> str:
        piece = self._text[self._sent : end]
        self._sent = max(self._sent, end)
        return piece
