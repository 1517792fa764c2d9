"""Drafts without a forward: the next token is copied from an earlier place of the same text.

This is prompt lookup decoding (A. Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding;
in transformers' assisted generation, and vLLM's `ngram`). Here the answer so far is searched, too.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

LEAST, MOST = 2, 8  # tokens of an n-gram
PAYS = 0.1  # share of the LLM's tokens that a lookup must draft to be tried

Ids = Sequence[int]
Gram = tuple[int, ...]


class Lookup:
    """The places of all n-grams in a text that grows at its end, or is cut there."""

    def __init__(self) -> None:
        self._ends: dict[Gram, list[int]] = defaultdict(list)  # places after the n-gram, ascending
        self._grams: list[list[Gram]] = []  # before each token of the text

    def draft(self, ids: Ids) -> tuple[int, float] | None:
        """Return the token after the last earlier place of the longest ending, and its score.

        `ids` is the text, as in earlier calls up to the last cut. The score is n / (n + 1), for an
        ending of n tokens. Returns None if no ending of `LEAST` tokens stands anywhere before.
        """
        for end in range(len(self._grams), len(ids)):
            self._grams.append(endings(ids[max(0, end - MOST) : end]))
            for gram in self._grams[end]:
                self._ends[gram].append(end)
        for gram in endings(ids):
            if ends := self._ends.get(gram):
                return ids[ends[-1]], len(gram) / (len(gram) + 1)
        return None

    def cut(self, length: int) -> None:
        """Forget all tokens of the text after the first `length`."""
        while len(self._grams) > length:
            for gram in self._grams.pop():
                self._ends[gram].pop()


def endings(ids: Ids) -> list[Gram]:
    """Return the n-grams at the end of a text, the longest first."""
    last = tuple(ids[-MOST:])
    return [last[-n:] for n in range(len(last), LEAST - 1, -1)]


class Guess(NamedTuple):
    """A drafted token: whether it is the right one, and its score."""

    agrees: bool
    score: float


def copies(prompt_ids: Ids, answer_ids: Ids) -> list[Guess | None]:
    """Return what a lookup would draft at each position of an answer."""
    lookup, ids, found = Lookup(), list(prompt_ids), list[Guess | None]()
    for token in answer_ids:
        draft = lookup.draft(ids)
        found.append(Guess(draft[0] == token, draft[1]) if draft else None)
        ids.append(token)
    return found


def share(found: Sequence[Guess | None]) -> float:
    """Return the share of positions at which a lookup drafts the right token."""
    return sum(guess is not None and guess.agrees for guess in found) / len(found)
