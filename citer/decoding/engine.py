"""Routed decoding: greedy, batched over slots, each model with a cache of its own.

The one decoder: rollouts, evaluation and serving all run it. A step asks the SLM for every
answer's next token and its score; where the score falls below the threshold, the LLM first
consumes in one forward what it has missed, the prompt included, and writes the token instead.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import torch

from citer.decoding.lane import Lane, Work
from citer.decoding.policy import Policy, StepView
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
    """The tokens written (EOS the last, unless truncated), who wrote each, and at which score.

    A score is 0 where the SLM was not asked. `slm` and `llm` count what this answer alone took.
    """

    key: str
    token_ids: tuple[int, ...]
    by_llm: tuple[bool, ...]
    scores: tuple[float, ...]
    truncated: bool
    slm: Work
    llm: Work


@dataclass(eq=False)
class _Row:
    """An answer in the making, in one slot of both lanes."""

    request: Request
    slot: int
    ids: list[int]
    seed: int
    by_llm: list[bool] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    def write(self, token: int, by_llm: bool, score: float) -> None:
        self.ids.append(token)
        self.by_llm.append(by_llm)
        self.scores.append(score)


class Engine:
    """Decodes with a pair, `slots` answers at a time, at most `max_new_tokens` each."""

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

    @torch.inference_mode()
    def decode(self, requests: Iterable[Request], policy: Policy) -> Iterator[Answer]:
        """Answer every request, in the order in which they finish.

        A slot that is free takes the next request at once. Raises InputError for a request
        that does not fit into the models' context.
        """
        waiting = iter(requests)
        free = list(range(self.slots))[::-1]
        rows: list[_Row] = []
        while True:
            for request in islice(waiting, len(free)):
                rows.append(self._admit(request, free.pop()))
            if not rows:
                return
            rows.sort(key=lambda row: row.slot)
            self._step(rows, policy)
            for row in [row for row in rows if self._finished(row)]:
                rows.remove(row)
                free.append(row.slot)
                yield self._answer(row)

    def _admit(self, request: Request, slot: int) -> _Row:
        ids = [*request.prompt_ids, *request.prefix_ids]
        self._check_context(request, len(ids) + self.max_new_tokens)
        for lane in (self._slm, self._llm):
            lane.reset(slot)
        return _Row(request, slot, ids, _stable_hash(request.key))

    def _check_context(self, request: Request, length: int) -> None:
        for model in (self.pair.slm, self.pair.llm):
            context = model.network.config.max_position_embeddings
            if length > context:
                raise InputError(
                    f"{request.key}: prompt and answer may take {length} tokens, "
                    f"{model.path} has a context of {context}"
                )

    def _step(self, rows: list[_Row], policy: Policy) -> None:
        """Write the next token of every row."""
        visits = self._draft(rows, policy) if policy.asks_slm else [(row, 0.0) for row in rows]
        if visits:
            tokens = self._visit([row for row, _ in visits])
            for (row, score), token in zip(visits, tokens, strict=True):
                row.write(token, by_llm=True, score=score)

    def _draft(self, rows: list[_Row], policy: Policy) -> list[tuple[_Row, float]]:
        """Write the SLM's token where it may stand; return the other rows, with their scores."""
        hidden_NH = self._consume(self._slm, rows)
        logits_NV = self.pair.slm.logits(hidden_NH)[:, : self.pair.vocab_size]
        device = hidden_NH.device
        view = StepView(
            hidden_NH,
            logits_NV,
            seed_N=torch.tensor([row.seed for row in rows], device=device),
            position_N=torch.tensor([_position(row) for row in rows], device=device),
        )
        score_N, token_N = policy.scorer(view).double(), logits_NV.argmax(-1)
        visits = []
        # Both in one transfer: float64 holds every token id exactly.
        for row, (score, token) in zip(
            rows, torch.stack([score_N, token_N.double()], 1).tolist(), strict=True
        ):
            if score < policy.tau:
                visits.append((row, score))
            else:
                row.write(int(token), by_llm=False, score=score)
        return visits

    def _visit(self, rows: list[_Row]) -> list[int]:
        """The LLM catches up on these rows; returns the token that it writes in each."""
        logits_NV = self.pair.llm.logits(self._consume(self._llm, rows))
        return logits_NV[:, : self.pair.vocab_size].argmax(-1).tolist()

    def _consume(self, lane: Lane, rows: list[_Row]) -> torch.Tensor:
        for row in rows:
            if row.request.trunk_ids and not lane.cache.lengths[row.slot]:
                lane.start_from(row.request.trunk_ids, row.slot, row.ids)
        return lane.consume([row.slot for row in rows], [row.ids for row in rows])

    def _finished(self, row: _Row) -> bool:
        return row.ids[-1] in self.pair.eos_ids or len(row.by_llm) == self.max_new_tokens

    def _answer(self, row: _Row) -> Answer:
        written = row.ids[len(row.ids) - len(row.by_llm) :]
        return Answer(
            key=row.request.key,
            token_ids=tuple(written),
            by_llm=tuple(row.by_llm),
            scores=tuple(row.scores),
            truncated=written[-1] not in self.pair.eos_ids,
            slm=self._slm.work[row.slot],
            llm=self._llm.work[row.slot],
        )


def _position(row: _Row) -> int:
    return len(row.ids) - len(row.request.prompt_ids)


def _stable_hash(key: str) -> int:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
