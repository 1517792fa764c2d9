"""A slot's walk through the trie of a request's answers, a branch at a time."""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Request:
    """One answer to write.

    `prefix_ids` are the answer's first tokens, already written. Requests that name an equal
    `trunk_ids` (a prompt and an answer that they share a beginning with) share one forward of it.
    """

    key: str
    prompt_ids: tuple[int, ...]
    prefix_ids: tuple[int, ...] = ()
    trunk_ids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Answer:
    """What a threshold makes of a request: its tokens, EOS the last unless truncated.

    The LLM wrote those whose score is below `tau`. A score is 0 where only `tau` = 1 was left,
    for which the SLM is not asked.
    """

    key: str
    tau: float
    token_ids: tuple[int, ...]
    scores: tuple[float, ...]
    truncated: bool

    @property
    def by_llm(self) -> tuple[bool, ...]:
        return tuple(score < self.tau for score in self.scores)


class _Fork(NamedTuple):
    """A branch for later: the thresholds that take it, the length to go back to, its token."""

    taus: tuple[float, ...]
    length: int
    token: int
    score: float


@dataclass(eq=False)
class Row:
    """The answer being written in a slot, for all `taus` (ascending) that still share it."""

    request: Request
    slot: int
    seed: int
    ids: list[int]
    taus: tuple[float, ...]
    scores: list[float] = field(default_factory=list)
    forks: list[_Fork] = field(default_factory=list)

    @property
    def position(self) -> int:
        """Index of the next token in the answer."""
        return len(self.ids) - len(self.request.prompt_ids)

    @property
    def written(self) -> list[int]:
        return self.ids[len(self.ids) - len(self.scores) :]

    @property
    def asks_slm(self) -> bool:
        return self.taus[0] < 1

    def write(self, token: int, score: float) -> None:
        self.ids.append(token)
        self.scores.append(score)

    def write_either(self, ours: int, theirs: int, score: float) -> None:
        """Write the SLM's token for the thresholds up to `score`, the LLM's for those above."""
        standing = bisect_right(self.taus, score)
        if standing and ours != theirs:
            self.forks.append(_Fork(self.taus[standing:], len(self.ids), theirs, score))
            self.taus = self.taus[:standing]
            self.write(ours, score)
        else:
            self.write(theirs, score)

    def take_last_fork(self) -> None:
        """Go back to the last fork and take its other branch, which its token may end at once."""
        fork = self.forks.pop()
        del self.scores[len(self.scores) - (len(self.ids) - fork.length) :]
        del self.ids[fork.length :]
        self.taus = fork.taus
        self.write(fork.token, fork.score)
