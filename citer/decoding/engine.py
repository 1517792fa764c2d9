"""Routed decoding: greedy, batched over slots, each model with a cache of its own.

The one decoder: rollouts, evaluation and serving all run it. A step asks the SLM for every
answer's next token and its score; where the score falls below the threshold, the LLM first
consumes in one forward what it has missed, the prompt included, and writes the token instead.
It may be made to wait until several answers need it, so that they share that forward.

Many thresholds are decoded as one: their answers share every token until a score parts them and
the two models' tokens differ. Then the slot writes one branch to its end, is cut back to the
fork, and writes the other: a depth-first walk of the trie of a question's answers.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import torch

from citer.decoding.lane import Lane, Work
from citer.decoding.policy import Policy, Scorer, StepView
from citer.decoding.walk import Answer, Request, Row
from citer.errors import InputError
from citer.models.pair import Pair


class _Draft(NamedTuple):
    """The SLM's next token for a row and its score; `UNASKED` and 0 where it was not asked."""

    row: Row
    token: int
    score: float

    @property
    def stands(self) -> bool:
        """Whether it stands for all thresholds that share the row."""
        return self.score >= self.row.taus[-1]


UNASKED = -1


class Engine:
    """Decodes with a pair, `slots` requests at a time, at most `max_new_tokens` an answer.

    The LLM runs when `llm_batch` answers wait for it, or when none can go on without it.
    """

    def __init__(self, pair: Pair, slots: int, max_new_tokens: int, llm_batch: int = 1) -> None:
        self.pair = pair
        self.slots = slots
        self.max_new_tokens = max_new_tokens
        self.llm_batch = llm_batch
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
        queue = iter(requests)
        free = list(range(self.slots))[::-1]
        ready: list[Row] = []
        fallen: list[_Draft] = []
        while True:
            for request in islice(queue, len(free)):
                ready.append(self._admit(request, free.pop(), thresholds))
            if not (ready or fallen):
                return
            if ready and len(fallen) < self.llm_batch:
                drafts, ready = self._draft(ready, scorer), []
                written = [draft.row for draft in drafts if draft.stands]
                fallen += [draft for draft in drafts if not draft.stands]
            else:
                written, fallen = self._visit(fallen), []
            for row in written:
                while row.ids and self._ended(row):
                    yield from self._answers(row)
                    self._go_back(row)
            ready += [row for row in written if row.ids]
            free += [row.slot for row in written if not row.ids]

    def _admit(self, request: Request, slot: int, taus: tuple[float, ...]) -> Row:
        ids = [*request.prompt_ids, *request.prefix_ids]
        self._check_context(request, len(ids) + self.max_new_tokens)
        self._cut(slot, 0)
        return Row(request, slot, stable_hash(request.key), ids, taus)

    def _check_context(self, request: Request, length: int) -> None:
        for model in (self.pair.slm, self.pair.llm):
            context = model.network.config.max_position_embeddings
            if length > context:
                raise InputError(
                    f"{request.key}: prompt and answer may take {length} tokens, "
                    f"{model.path} has a context of {context}"
                )

    def _draft(self, rows: list[Row], scorer: Scorer) -> list[_Draft]:
        """The SLM's next token for every row that asks it; written where it stands."""
        asked = [row for row in rows if row.asks_slm]
        drafts = [_Draft(row, UNASKED, 0.0) for row in rows if not row.asks_slm]
        drafts += self._ask_slm(asked, scorer) if asked else []
        for row, token, score in (draft for draft in drafts if draft.stands):
            row.write(token, score)
        return drafts

    def _ask_slm(self, rows: list[Row], scorer: Scorer) -> list[_Draft]:
        """The SLM's next token for these rows, and how safely each may stand."""
        rows = sorted(rows, key=lambda row: row.slot)  # neighbouring slots are read uncopied
        hidden_NH = self._consume(self._slm, rows)
        logits_NV = self.pair.slm.logits(hidden_NH)[:, : self.pair.vocab_size]
        places = [[row.seed for row in rows], [row.position for row in rows]]
        view = StepView(hidden_NH, logits_NV, *torch.tensor(places, device=hidden_NH.device))
        score_N, token_N = scorer(view).double(), logits_NV.argmax(-1)
        # Both in one transfer: float64 holds every token id exactly.
        drafts = torch.stack([token_N.double(), score_N], 1).tolist()
        return [
            _Draft(row, int(token), score) for row, (token, score) in zip(rows, drafts, strict=True)
        ]

    def _visit(self, fallen: list[_Draft]) -> list[Row]:
        """The LLM catches up on these drafts' rows and writes its own token in each."""
        fallen = sorted(fallen, key=lambda draft: draft.row.slot)  # likewise
        rows = [draft.row for draft in fallen]
        logits_NV = self.pair.llm.logits(self._consume(self._llm, rows))
        tokens = logits_NV[:, : self.pair.vocab_size].argmax(-1).tolist()
        for (row, ours, score), theirs in zip(fallen, tokens, strict=True):
            row.write_either(ours, theirs, score)
        return rows

    def _consume(self, lane: Lane, rows: list[Row]) -> torch.Tensor:
        """hidden_NH of the lane's model, after the last token of each row."""
        begun = [
            (row.request.trunk_ids, row.slot, row.ids)
            for row in rows
            if row.request.trunk_ids and not lane.cache.lengths[row.slot]
        ]
        if begun:
            lane.start_from(*zip(*begun, strict=True))
        return lane.consume([row.slot for row in rows], [row.ids for row in rows])

    def _ended(self, row: Row) -> bool:
        return row.ids[-1] in self.pair.eos_ids or len(row.scores) == self.max_new_tokens

    def _answers(self, row: Row) -> Iterator[Answer]:
        written, scores = tuple(row.written), tuple(row.scores)
        truncated = written[-1] not in self.pair.eos_ids
        for tau in row.taus:
            yield Answer(row.request.key, tau, written, scores, truncated)

    def _go_back(self, row: Row) -> None:
        """Turn to the row's last fork; without one the walk is over, and nothing is left."""
        if row.forks:
            row.take_last_fork()
            self._cut(row.slot, len(row.ids) - 1)
        else:
            row.ids.clear()

    def _cut(self, slot: int, length: int) -> None:
        for lane in (self._slm, self._llm):
            lane.cut(slot, length)


def stable_hash(key: str) -> int:
    """The seed that scorers see for a request, alike in every process: 63 bits."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
