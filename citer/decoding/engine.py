"""Routed decoding: greedy, batched over slots, each model with a cache of its own.

The one decoder: rollouts, evaluation and serving all run it, and CITER, speculative decoding and
all that lies between are settings of it (`citer.decoding.policy.Rule`). A step asks the SLM for
every answer's next token and its score. Where a rule calls for a visit, the LLM consumes in one
forward what it has missed, the prompt included, judges it and writes a token of its own. It may be
made to wait until several answers need it, so that they share that forward.

Many policies are decoded as one, as far as their answers agree (`citer.decoding.walk`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import torch
from torch import Tensor

from citer.decoding.answer import Answer, Request
from citer.decoding.lane import Lane, Work
from citer.decoding.policy import Policy, Scorer, StepView
from citer.decoding.walk import Draft, Limits, Need, Verdict, Walk
from citer.errors import InputError
from citer.models.pair import Pair


class Engine:
    """Decodes with a pair, `slots` requests at a time, at most `max_new_tokens` an answer.

    The LLM runs when `llm_batch` answers wait for it, or when none can go on without it.
    """

    def __init__(self, pair: Pair, slots: int, max_new_tokens: int, llm_batch: int = 1) -> None:
        self.pair = pair
        self.slots = slots
        self.limits = Limits(pair.eos_ids, max_new_tokens)
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
        return self.sweep(requests, [policy])

    @torch.inference_mode()
    def sweep(self, requests: Iterable[Request], policies: Sequence[Policy]) -> Iterator[Answer]:
        """`decode` by each of `policies`, no two of them equal: an answer for every request."""
        scorers = list(dict.fromkeys(policy.scorer for policy in policies))
        routes = {policy: scorers.index(policy.scorer) for policy in policies}
        queue = iter(requests)
        free = list(range(self.slots))[::-1]
        waiting: dict[Need, list[Walk]] = {need: [] for need in Need}
        while True:
            for request in islice(queue, len(free)):
                walk = self._admit(request, free.pop(), routes)
                waiting[walk.go_on()[0]].append(walk)
            if waiting[Need.SLM] and len(waiting[Need.LLM]) < self.llm_batch:
                walks, waiting[Need.SLM] = waiting[Need.SLM], []
                self._draft(walks, scorers)
            elif waiting[Need.LLM]:
                walks, waiting[Need.LLM] = waiting[Need.LLM], []
                self._visit(walks)
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

    def _draft(self, walks: list[Walk], scorers: Sequence[Scorer]) -> None:
        """The SLM's next token for these walks, and how safely each may stand."""
        walks.sort(key=lambda walk: walk.slot)  # neighbouring slots are read uncopied
        for walk in walks:
            self._slm.cut(walk.slot, walk.slm_read)
        hidden_NH = self._consume(self._slm, walks, [walk.ids for walk in walks], [1] * len(walks))
        logits_NV = self.pair.slm.logits(hidden_NH)[:, : self.pair.vocab_size]
        places = [[walk.seed for walk in walks], [walk.position for walk in walks]]
        view = StepView(hidden_NH, logits_NV, *torch.tensor(places, device=hidden_NH.device))
        # All in one transfer: float64 holds every token id exactly.
        columns = [logits_NV.argmax(-1), *(scorer(view) for scorer in scorers)]
        drafts = torch.stack([column.double() for column in columns], 1)
        for walk, (token, *scores) in zip(walks, drafts.tolist(), strict=True):
            walk.take_draft(Draft(int(token), scores))

    def _visit(self, walks: list[Walk]) -> None:
        """The LLM catches up on these walks and judges what it has not yet judged."""
        walks.sort(key=lambda walk: walk.slot)  # likewise
        for walk in walks:
            self._llm.cut(walk.slot, walk.llm_read)
        counts = [len(walk.judged()) for walk in walks]
        read = [walk.ids[: walk.llm_reads] for walk in walks]
        logits_MV = self.pair.llm.logits(self._consume(self._llm, walks, read, counts))
        verdicts = iter(_verdicts(logits_MV[:, : self.pair.vocab_size], walks))
        for walk, count in zip(walks, counts, strict=True):
            walk.take_verdicts(list(islice(verdicts, count)))

    def _consume(
        self, lane: Lane, walks: list[Walk], ids: list[list[int]], counts: list[int]
    ) -> Tensor:
        """hidden_MH of the lane's model after each of the last `counts[n]` of `ids[n]`."""
        begun = [
            (walk.request.trunk_ids, walk.slot, walk.ids[: walk.begin])
            for walk in walks
            if walk.request.trunk_ids and not lane.cache.lengths[walk.slot]
        ]
        if begun:
            lane.start_from(*zip(*begun, strict=True))
        return lane.consume([walk.slot for walk in walks], ids, counts)


def _verdicts(logits_MV: Tensor, walks: list[Walk]) -> list[Verdict]:
    """The LLM's choice, and the odds against it of the token that stands there, if one does."""
    standing = [token for walk in walks for token in walk.judged()]
    token_M = torch.tensor([token or 0 for token in standing], device=logits_MV.device)
    best_M, choice_M = logits_MV.max(-1)
    odds_M = (logits_MV.gather(1, token_M[:, None]).squeeze(1) - best_M).exp()
    judged = torch.stack([choice_M.double(), odds_M.double()], 1).tolist()
    return [
        Verdict(int(choice), None if token is None else odds)
        for (choice, odds), token in zip(judged, standing, strict=True)
    ]
