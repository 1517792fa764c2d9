"""What goes into the engine and comes out: requests, answers with their visits, and work."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from citer.models.sampling import Sampling

if TYPE_CHECKING:  # imports torch, which readers of answers do not need
    from citer.decoding.policy import Policy
    from citer.models.tokenizer import StopTexts


class Trunk(NamedTuple):
    """A prefix that several requests share. This request begins with its first `shared` tokens."""

    ids: tuple[int, ...]
    shared: int


@dataclass(frozen=True)
class Request:
    """A prompt to answer.

    `prefix_ids` are the first tokens of the answer, if they are given. `trunk_ids` is a prompt with
    an answer. Requests with equal `trunk_ids` share one forward over it; each uses the tokens
    before the first one in which it differs. Without `sampling`, the answer is greedy. `stop` has
    texts that end this answer, besides the pair's own. Without `max_new_tokens`, the engine's
    number of tokens ends it. A `patient` request shares the forwards of others, and has its own
    only while there are no others.
    """

    key: str
    prompt_ids: tuple[int, ...]
    prefix_ids: tuple[int, ...] = ()
    trunk_ids: tuple[int, ...] | None = None
    sampling: Sampling | None = None
    stop: tuple[str, ...] = ()
    max_new_tokens: int | None = None
    patient: bool = False

    @property
    def trunk(self) -> Trunk | None:
        """The trunk, or None. The request's last token is not shared: a forward must read it."""
        if not self.trunk_ids:
            return None
        both = zip(self.trunk_ids, [*self.prompt_ids, *self.prefix_ids][:-1], strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
        return Trunk(self.trunk_ids, shared)


@dataclass(frozen=True)
class Limits:
    """The conditions that end an answer: an EOS token, a stop text, or the number of tokens."""

    eos_ids: tuple[int, ...]
    max_new_tokens: int
    stops: "StopTexts | None" = None

    def complete(self, ids: list[int], answer_from: int) -> bool:
        """Return whether EOS or a stop text ends the answer, which begins at this index."""
        if ids[-1] in self.eos_ids:
            return True
        return self.stops is not None and self.stops.end(ids, answer_from)


class Disagreement(NamedTuple):
    """A pending token that is not the LLM's choice. `odds`: p(SLM's token) / p(LLM's token)."""

    position: int
    slm_token: int
    llm_token: int
    odds: float


class Visit(NamedTuple):
    """A call of the LLM.

    It read `seen` tokens; the first `kept` stay (an EOS at the end is judged unread). The LLM's own
    token follows them, unless the answer is complete. Since the visit before, the SLM ran `drafted`
    steps, and a lookup drafted at the positions `copied`, which the other fields do not count. The
    audit compared `audited` pending tokens with the LLM's choices. It rejects at most one token,
    the last of `disagreements`.
    """

    drafted: int
    seen: int
    kept: int
    audited: int = 0
    disagreements: tuple[Disagreement, ...] = ()
    copied: tuple[int, ...] = ()

    @property
    def rejects(self) -> bool:
        return any(each.position == self.kept for each in self.disagreements)


class Counts(NamedTuple):
    """Numbers of tokens and visits. `audited` and `disagreed` count pending tokens of the SLM.

    `rejected`: visits whose audit rejected one. Tokens dropped after it are not counted.
    """

    tokens: int
    llm_tokens: int
    visits: int
    audited: int
    disagreed: int
    rejected: int

    @classmethod
    def total(cls, all_counts: Iterable["Counts"]) -> "Counts":
        return cls(*map(sum, zip(*all_counts, strict=True)))


class Written(NamedTuple):
    """A token, who wrote it (see `Answer.writers`), and the drafts that it replaced, if any."""

    token_id: int
    by: str
    rejected: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The answer to a request by one policy.

    Unless it is truncated, its last token is EOS or completes a stop text. `scores` has the score
    of the draft at each position, or 0 if nothing drafted there.
    """

    key: str
    policy: "Policy"
    token_ids: tuple[int, ...]
    scores: tuple[float, ...]
    visits: tuple[Visit, ...]
    truncated: bool

    @property
    def writers(self) -> tuple[str, ...]:
        """Who wrote each token: `llm`, `slm` or `lookup`."""
        copied = {n for visit in self.visits for n in visit.copied if n < visit.kept}
        by_llm = {visit.kept for visit in self.visits}
        return tuple(
            "llm" if position in by_llm else "lookup" if position in copied else "slm"
            for position in range(len(self.token_ids))
        )

    @property
    def counts(self) -> Counts:
        return Counts(
            tokens=len(self.token_ids),
            llm_tokens=self.writers.count("llm"),
            visits=len(self.visits),
            audited=sum(visit.audited for visit in self.visits),
            disagreed=sum(len(visit.disagreements) for visit in self.visits),
            rejected=sum(visit.rejects for visit in self.visits),
        )


@dataclass(slots=True)
class Work:
    """Forwards run, positions computed (and written to the cache), positions attended to."""

    forwards: float = 0  # an integer, unless answers were repeated to fill a batch
    positions: int = 0
    kv_read: int = 0

    def add(self, positions: int, kv_read: int, forwards: float = 1) -> None:
        self.forwards += forwards
        self.positions += positions
        self.kv_read += kv_read


def llm_runs(waiting: int, drafting: int, delayed: bool) -> bool:
    """Return whether the LLM runs now. `waiting` sequences need it, `drafting` ones do not.

    A delayed LLM runs when half of them wait, which is near the optimum if a forward takes as long
    as reading its weights. No measured time decides, so that runs are reproducible.
    """
    return waiting > 0 and (not delayed or waiting >= drafting)
