"""The engine's input and output: requests, answers and the visits that an answer records."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # imports torch, which counting answers does not need
    from citer.decoding.policy import Policy


class Trunk(NamedTuple):
    """A prefix that several sequences share; this one begins with its first `shared` tokens."""

    ids: tuple[int, ...]
    shared: int


@dataclass(frozen=True)
class Request:
    """One answer to write.

    `prefix_ids` are the answer's first tokens, already written. Requests with equal `trunk_ids`
    (a prompt and an answer that they share a beginning with) share one forward over it.
    """

    key: str
    prompt_ids: tuple[int, ...]
    prefix_ids: tuple[int, ...] = ()
    trunk_ids: tuple[int, ...] | None = None

    @property
    def trunk(self) -> Trunk | None:
        """The trunk, if there is one; the last token of the prefix is never taken from it."""
        if not self.trunk_ids:
            return None
        both = zip(self.trunk_ids, [*self.prompt_ids, *self.prefix_ids][:-1], strict=False)
        return Trunk(
            self.trunk_ids, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
        )


class Disagreement(NamedTuple):
    """A pending token that is not the LLM's choice. `odds`: p(SLM's token) / p(LLM's token)."""

    position: int
    slm_token: int
    llm_token: int
    odds: float


class Visit(NamedTuple):
    """A call of the LLM, after `drafted` steps of the SLM since the one before.

    The LLM has read `seen` written tokens. The first `kept` stay, and the LLM's own token follows
    them, unless the answer is complete. The audit compared `audited` pending tokens with the LLM's
    choices. It rejects at most one, which is the last of `disagreements`.
    """

    drafted: int
    seen: int
    kept: int
    audited: int = 0
    disagreements: tuple[Disagreement, ...] = ()

    @property
    def rejects(self) -> bool:
        return any(each.position == self.kept for each in self.disagreements)


class Counts(NamedTuple):
    """Counts of tokens, of visits, and of audited, differing and rejected tokens."""

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
    """The answer to a request by one policy. The last token is EOS unless it is truncated.

    `scores` has the score of the SLM's token at each place; 0 where the SLM did not run.
    """

    key: str
    policy: "Policy"
    token_ids: tuple[int, ...]
    scores: tuple[float, ...]
    visits: tuple[Visit, ...]
    truncated: bool

    @property
    def by_llm(self) -> tuple[bool, ...]:
        positions = {visit.kept for visit in self.visits}
        return tuple(position in positions for position in range(len(self.token_ids)))

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
    """The seed that scorers get for a request: 63 bits, the same in every process."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
