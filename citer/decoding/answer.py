"""What is asked of the engine, and what it answers."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # brings torch, which those who only count answers do without
    from citer.decoding.policy import Policy


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


class Disagreement(NamedTuple):
    """A pending token that is not the LLM's choice, and its odds against that."""

    position: int
    slm_token: int
    llm_token: int
    odds: float


class Visit(NamedTuple):
    """After `drafted` steps of the SLM the LLM has read `seen` tokens of what was written.

    The first `kept` stay. The LLM's own follows them, unless the answer was already whole. Of the
    pending tokens `audited` were looked at; only the last of `disagreements` may be rejected.
    """

    drafted: int
    seen: int
    kept: int
    audited: int = 0
    disagreements: tuple[Disagreement, ...] = ()

    @property
    def rejects(self) -> bool:
        return any(found.position == self.kept for found in self.disagreements)


class Counts(NamedTuple):
    """Tokens of answers; those of the LLM, its visits, and what became of what it audited."""

    tokens: int
    llm_tokens: int
    visits: int
    audited: int
    disagreed: int
    rejected: int

    @classmethod
    def total(cls, all_counts: Iterable["Counts"]) -> "Counts":
        return cls(*map(sum, zip(*all_counts, strict=True)))


@dataclass(frozen=True)
class Answer:
    """What a policy makes of a request: its tokens, EOS the last unless truncated.

    A score is the SLM's for its own token at that place; 0 where it was not asked.
    """

    key: str
    policy: "Policy"
    token_ids: tuple[int, ...]
    scores: tuple[float, ...]
    visits: tuple[Visit, ...]
    truncated: bool

    @property
    def by_llm(self) -> tuple[bool, ...]:
        theirs = {visit.kept for visit in self.visits}
        return tuple(position in theirs for position in range(len(self.token_ids)))

    @property
    def counts(self) -> Counts:
        return Counts(
            tokens=len(self.token_ids),
            llm_tokens=sum(self.by_llm),
            visits=len(self.visits),
            audited=sum(visit.audited for visit in self.visits),
            disagreed=sum(len(visit.disagreements) for visit in self.visits),
            rejected=sum(visit.rejects for visit in self.visits),
        )


def stable_hash(key: str) -> int:
    """The seed that scorers see for a request, alike in every process: 63 bits."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
