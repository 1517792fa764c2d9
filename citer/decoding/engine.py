"""Routed decoding: greedy, batched over slots, each model with a cache of its own.

The one decoder: rollouts, evaluation and serving all run it. A step asks the SLM for every
answer's next token and its score; where the score falls below the threshold, the LLM first
consumes in one forward what it has missed, the prompt included, and writes the token instead.

Many thresholds are decoded as one: their answers share every token until a score parts them and
the two models' tokens differ. Then the slot writes one branch to its end, is cut back to the
fork, and writes the other: a depth-first walk of the trie of a question's answers.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import torch

from citer.decoding.lane import Lane, Work
from citer.decoding.policy import Policy, Scorer, StepView
from citer.errors import InputError
from citer.models.pair import Pair


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
class _Row:
    """A slot's walk: the answer being written, for all `taus` (ascending) that still share it."""

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


class _Draft(NamedTuple):
    """The SLM's next token for a row and its score; `UNASKED` and 0 where it was not asked."""

    row: _Row
    token: int
    score: float


UNASKED = -1


class Engine:
    """Decodes with a pair, `slots` requests at a time, at most `max_new_tokens` an answer."""

    def __init__(self, pair: Pair, slots: int, max_new_tokens: int) -> None:
        self.pair = pair
        self.slots = slots
        self.max_new_tokens = max_new_tokens
        self._slm = Lane(pair.slm, slots)
        self._llm = Lane(pair.llm, slots)

    @property
    def slm_work(self) -> Work:
        """What the SLM really ran since the engine was made, at this batch."""
        return self._slm.total

    @property
    def llm_work(self) -> Work:
        return self._llm.total

    def decode(self, requests: Iterable[Request], policy: Policy) -> Iterator[Answer]:
        """Answer every request, in the order in which they finish.

        A slot that is free takes the next request at once. Raises InputError for a request
        that does not fit into the models' context.
        """
        return self.sweep(requests, policy.scorer, [policy.tau])

    @torch.inference_mode()
    def sweep(
        self, requests: Iterable[Request], scorer: Scorer, taus: Sequence[float]
    ) -> Iterator[Answer]:
        """`decode` at each of `taus`: an answer for every request and threshold."""
        thresholds = tuple(sorted(set(taus)))
        waiting = iter(requests)
        free = list(range(self.slots))[::-1]
        rows: list[_Row] = []
        while True:
            for request in islice(waiting, len(free)):
                rows.append(self._admit(request, free.pop(), thresholds))
            if not rows:
                return
            rows.sort(key=lambda row: row.slot)
            self._step(rows, scorer)
            for row in rows:
                while row.ids and self._ended(row):
                    yield from self._answers(row)
                    self._go_back(row)
            free += [row.slot for row in rows if not row.ids]
            rows = [row for row in rows if row.ids]

    def _admit(self, request: Request, slot: int, taus: tuple[float, ...]) -> _Row:
        ids = [*request.prompt_ids, *request.prefix_ids]
        self._check_context(request, len(ids) + self.max_new_tokens)
        self._cut(slot, 0)
        return _Row(request, slot, _stable_hash(request.key), ids, taus)

    def _check_context(self, request: Request, length: int) -> None:
        for model in (self.pair.slm, self.pair.llm):
            context = model.network.config.max_position_embeddings
            if length > context:
                raise InputError(
                    f"{request.key}: prompt and answer may take {length} tokens, "
                    f"{model.path} has a context of {context}"
                )

    def _step(self, rows: list[_Row], scorer: Scorer) -> None:
        """Write the next token of every row."""
        asked = [row for row in rows if row.asks_slm]
        visits = [_Draft(row, UNASKED, 0.0) for row in rows if not row.asks_slm]
        for draft in self._draft(asked, scorer) if asked else ():
            if draft.score < draft.row.taus[-1]:
                visits.append(draft)
            else:
                draft.row.write(draft.token, draft.score)
        if visits:
            visits.sort(key=lambda draft: draft.row.slot)
            tokens = self._visit([draft.row for draft in visits])
            for (row, token, score), theirs in zip(visits, tokens, strict=True):
                row.write_either(token, theirs, score)

    def _draft(self, rows: list[_Row], scorer: Scorer) -> list[_Draft]:
        """The SLM's next token for these rows, and how safely each may stand."""
        hidden_NH = self._consume(self._slm, rows)
        logits_NV = self.pair.slm.logits(hidden_NH)[:, : self.pair.vocab_size]
        device = hidden_NH.device
        view = StepView(
            hidden_NH,
            logits_NV,
            seed_N=torch.tensor([row.seed for row in rows], device=device),
            position_N=torch.tensor([row.position for row in rows], device=device),
        )
        score_N, token_N = scorer(view).double(), logits_NV.argmax(-1)
        # Both in one transfer: float64 holds every token id exactly.
        drafts = torch.stack([token_N.double(), score_N], 1).tolist()
        return [
            _Draft(row, int(token), score) for row, (token, score) in zip(rows, drafts, strict=True)
        ]

    def _visit(self, rows: list[_Row]) -> list[int]:
        """The LLM catches up on these rows; returns the token that it writes in each."""
        logits_NV = self.pair.llm.logits(self._consume(self._llm, rows))
        return logits_NV[:, : self.pair.vocab_size].argmax(-1).tolist()

    def _consume(self, lane: Lane, rows: list[_Row]) -> torch.Tensor:
        for row in rows:
            if row.request.trunk_ids and not lane.cache.lengths[row.slot]:
                lane.start_from(row.request.trunk_ids, row.slot, row.ids)
        return lane.consume([row.slot for row in rows], [row.ids for row in rows])

    def _ended(self, row: _Row) -> bool:
        return row.ids[-1] in self.pair.eos_ids or len(row.scores) == self.max_new_tokens

    def _answers(self, row: _Row) -> Iterator[Answer]:
        written, scores = tuple(row.written), tuple(row.scores)
        truncated = written[-1] not in self.pair.eos_ids
        for tau in row.taus:
            yield Answer(row.request.key, tau, written, scores, truncated)

    def _go_back(self, row: _Row) -> None:
        """Turn to the row's last fork; without one the walk is over, and nothing is left."""
        if row.forks:
            row.take_last_fork()
            self._cut(row.slot, len(row.ids) - 1)
        else:
            row.ids.clear()

    def _cut(self, slot: int, length: int) -> None:
        for lane in (self._slm, self._llm):
            lane.cut(slot, length)


def _stable_hash(key: str) -> int:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
