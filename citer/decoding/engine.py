"""Routed decoding: greedy, batched over slots, each model with a cache of its own.

The one decoder: rollouts, evaluation and serving all run it, and CITER, speculative decoding and
all that lies between are settings of it (`citer.rule`). A step asks the SLM for every answer's next
token and its score. Where a rule calls for a visit, the LLM consumes in one forward what it has
missed, the prompt included, judges it and writes a token of its own. It may be delayed until
half of the answers need it, so that they share that forward (`citer.decoding.delay`).

Many policies are decoded as one, as far as their answers agree (`citer.decoding.walk`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch

from citer.decoding.answer import Answer, Request
from citer.decoding.delay import llm_runs
from citer.decoding.lane import Lane, MakeGraphs, Rows
from citer.decoding.policy import Policy
from citer.decoding.reading import Drafts, Verdicts
from citer.decoding.walk import Draft, Limits, Need, Verdict, Walk
from citer.decoding.work import Work
from citer.errors import InputError
from citer.models.feed import Read, Turn
from citer.models.graphs import cuda_graphs
from citer.models.pair import Pair


class Engine:
    """Decodes with a pair, `slots` requests at a time, at most `max_new_tokens` an answer.

    A `delayed` LLM runs when half of the answers in flight wait for it, else when one does. On a
    GPU short forwards are CUDA graphs, unless `make_graphs` is `citer.models.graphs.no_graphs`.
    """

    def __init__(
        self,
        pair: Pair,
        slots: int,
        max_new_tokens: int,
        delayed: bool = False,
        make_graphs: MakeGraphs = cuda_graphs,
    ) -> None:
        self.pair = pair
        self.slots = slots
        self.limits = Limits(pair.eos_ids, max_new_tokens)
        self.delayed = delayed
        self.make_graphs = make_graphs
        self._slm = Lane(pair.slm, slots, make_graphs)
        self._llm = Lane(pair.llm, slots, make_graphs)

    def __reduce__(self) -> tuple[type["Engine"], tuple[Any, ...]]:
        """Pickle as the pair and settings: an unpickled engine is a new, idle one."""
        limit = self.limits.max_new_tokens
        return Engine, (self.pair, self.slots, limit, self.delayed, self.make_graphs)

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
        return self.sweep(requests, [policy])

    @torch.inference_mode()
    def sweep(self, requests: Iterable[Request], policies: Sequence[Policy]) -> Iterator[Answer]:
        """`decode` by each of `policies`, no two of them equal: an answer for every request.

        An iterator that is left early does the next one no harm; two at a time would.
        """
        scorers = list(dict.fromkeys(policy.scorer for policy in policies))
        routes = {policy: scorers.index(policy.scorer) for policy in policies}
        read = Drafts(self.pair, tuple(scorers))
        queue = iter(requests)
        free = list(range(self.slots))[::-1]
        waiting: dict[Need, list[Walk]] = {need: [] for need in Need}
        while True:
            for request in islice(queue, len(free)):
                walk = self._admit(request, free.pop(), routes)
                waiting[walk.go_on()[0]].append(walk)
            drafting, visiting = waiting[Need.SLM], waiting[Need.LLM]
            if llm_runs(len(visiting), len(drafting), self.delayed):
                walks, waiting[Need.LLM] = visiting, []
                self._visit(walks)
            elif drafting:
                walks, waiting[Need.SLM] = drafting, []
                self._draft(walks, read)
            else:
                return
            for walk in walks:
                need, answers = walk.go_on()
                yield from answers
                waiting[need].append(walk)
            free += [walk.slot for walk in waiting[Need.NOTHING]]
            waiting[Need.NOTHING].clear()

    def _admit(self, request: Request, slot: int, routes: Mapping[Policy, int]) -> Walk:
        walk = Walk(request, slot, routes, self.limits)
        self._check_context(request, len(walk.ids) + self.limits.max_new_tokens)
        return walk

    def _check_context(self, request: Request, length: int) -> None:
        for model in (self.pair.slm, self.pair.llm):
            context = model.network.config.max_position_embeddings
            if length > context:
                raise InputError(
                    f"{request.key}: prompt and answer may take {length} tokens, "
                    f"{model.path} has a context of {context}"
                )

    def _draft(self, walks: list[Walk], read: Drafts) -> None:
        """The SLM's next token for these walks, and how safely each may stand."""
        walks.sort(key=lambda walk: walk.slot)  # neighbouring slots are read uncopied
        for walk in walks:
            self._slm.cut(walk.slot, walk.slm_read)
        turns = [Turn(walk.slot, walk.ids, [(walk.seed, walk.position)]) for walk in walks]
        drafts = self._consume(self._slm, walks, turns, read)
        for walk, [(token, *scores)] in zip(walks, drafts, strict=True):
            walk.take_draft(Draft(int(token), scores))

    def _visit(self, walks: list[Walk]) -> None:
        """The LLM catches up on these walks and judges what it has not yet judged."""
        walks.sort(key=lambda walk: walk.slot)  # likewise
        for walk in walks:
            self._llm.cut(walk.slot, walk.llm_read)
        judged = [walk.judged() for walk in walks]
        turns = [
            Turn(walk.slot, walk.ids[: walk.llm_reads_to], [(token or 0,) for token in standing])
            for walk, standing in zip(walks, judged, strict=True)
        ]
        read = self._consume(self._llm, walks, turns, Verdicts(self.pair))
        for walk, standing, rows in zip(walks, judged, read, strict=True):
            walk.take_verdicts(_verdicts(standing, rows))

    def _consume(self, lane: Lane, walks: list[Walk], turns: list[Turn], read: Read) -> list[Rows]:
        """What is read of the lane's model at each walk's turn."""
        fresh = [
            (walk.request.trunk_ids, walk.slot, walk.ids[: walk.begin])
            for walk in walks
            if walk.request.trunk_ids and not lane.cache.lengths[walk.slot]
        ]
        if fresh:
            lane.start_from(*zip(*fresh, strict=True))
        return lane.consume(turns, read)


def _verdicts(standing: list[int | None], rows: Rows) -> list[Verdict]:
    """Odds are those of the token that stands there, if one does."""
    return [
        Verdict(int(choice), None if token is None else odds)
        for (choice, odds), token in zip(rows, standing, strict=True)
    ]
