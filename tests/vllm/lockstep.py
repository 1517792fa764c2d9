"""vLLM's loop around routing, for greedy requests: batches whose rows come, move and go.

Both models read every text anew. As in vLLM, each request has a slot, and the LLM reads as many
places for drafts as the scheduler gives it, also those after the end of a rule.
"""

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
import torch
from torch import Tensor

from citer.models.pair import Pair
from citer.models.router import Router
from citer.rule import Rule
from citer.vllm.drafting import Flag, most_pending
from citer.vllm.loading import Served
from citer.vllm.routing import Drafter, Routing, Rows

Prompts = Mapping[str, Sequence[int]]
CPU = torch.device("cpu")


class Lockstep:
    """Answers prompts with at most `slots` of them in a step, each at a random place.

    A request in flight is left out of a step with probability `pauses`, as if it were preempted.
    """

    def __init__(
        self, pair: Pair, router: Router, slots: int, cap: int, pauses: float = 0.0
    ) -> None:
        eos_E = torch.tensor(pair.eos_ids)
        drafter = Drafter(router, pair.vocabulary, eos_E, Flag(CPU))
        self.pair, self.slots, self.cap, self.pauses = pair, slots, cap, pauses
        served = Served("score 1", None, cap, scored=True, logged=True)
        self.routing = Routing(served, slots, CPU, drafter)
        self.forwards = 0
        self._drafts: dict[str, list[int]] = {}

    def run(self, prompts: Prompts, rules: Mapping[str, Rule], limit: int) -> dict[str, list[int]]:
        random, waiting = Random(0), list(prompts)
        answers: dict[str, list[int]] = {key: [] for key in prompts}
        self._drafts = {key: [] for key in prompts}
        places: dict[str, int] = {}
        while waiting or places:
            while waiting and len(places) < self.slots:
                key = waiting.pop(0)
                places[key] = min({*range(self.slots)} - {*places.values()})
                self.routing.add(places[key], rules[key])
            batch = [key for key in places if random.random() >= self.pauses] or [*places][:1]
            random.shuffle(batch)
            self._visit(batch, places, prompts, answers)
            places = {key: n for key, n in places.items() if not self._ended(answers[key], limit)}
            left = [key for key in batch if key in places]
            self._draft(left, [places[key] for key in left], prompts, rules, answers)
        return answers

    def _ended(self, answer: list[int], limit: int) -> bool:
        ends = [n for n, token in enumerate(answer[:limit]) if token in self.pair.eos_ids]
        del answer[ends[0] + 1 if ends else limit :]
        return bool(ends) or len(answer) == limit

    def _visit(
        self,
        batch: list[str],
        places: Mapping[str, int],
        prompts: Prompts,
        answers: dict[str, list[int]],
    ) -> None:
        """Judge the drafts of the batch; keep those that stand, and write the LLM's own token."""
        self.forwards += 1
        rows, slots, first_N = self._rows(batch, places, prompts, answers)
        texts = ([*prompts[key], *answers[key], *self._drafts[key]] for key in batch)
        counts = [len(self._drafts[key]) for key in batch]
        logits_NV = torch.cat([self._llm(*each) for each in zip(texts, counts, strict=True)])
        draft_N = rows.draft_N.masked_fill(self.routing.withdrawn(rows).roll(-1), -1)
        self.routing.audit(logits_NV, rows, np.array(slots), torch.zeros(len(draft_N)))
        written, lengths = [], [1 + count for count in counts]
        for key, own_NV, drafts_N in zip(
            batch, logits_NV.split(lengths), draft_N.split(lengths), strict=True
        ):
            kept = _accepted(own_NV.argmax(-1).tolist(), drafts_N.tolist())
            answers[key] += kept
            written.append(len(kept))
        slot_R, written_R = torch.tensor(slots), torch.tensor(written)
        self.routing.count(batch, rows, slot_R, written_R, first_N)

    def _rows(
        self,
        batch: list[str],
        places: Mapping[str, int],
        prompts: Prompts,
        answers: Mapping[str, list[int]],
    ) -> tuple[Rows, list[int], Tensor]:
        lasts = {key: [*prompts[key], *answers[key]][-1] for key in batch}
        rows = [
            (places[key], local, token, len(answers[key]) + local)
            for key in batch
            for local, token in enumerate([lasts[key], *self._drafts[key]])
        ]
        slot_N, local_N, input_N, first_N = torch.tensor(rows).unbind(1)
        return Rows(slot_N, local_N, input_N), [places[key] for key in batch], first_N

    def _llm(self, ids: list[int], drafts: int) -> Tensor:
        hidden_TH = self.pair.local_llm.last_hidden(input_ids=torch.tensor([ids]))[0]
        logits_NV = self.pair.local_llm.logits(hidden_TH[-1 - drafts :])
        return logits_NV[:, : self.pair.vocabulary.size]

    def _draft(
        self,
        batch: list[str],
        slots: list[int],
        prompts: Prompts,
        rules: Mapping[str, Rule],
        answers: Mapping[str, list[int]],
    ) -> None:
        """Draft for all rows until nobody goes on; give each as many places as vLLM would."""
        if not batch:
            return
        texts = [[*prompts[key], *answers[key]] for key in batch]
        drafts: list[list[int]] = [[] for _ in batch]
        drafter, slot_N = self.routing.drafter, torch.tensor(slots)
        assert drafter
        begun = self.routing.begin(np.array(slots), slot_N, torch.ones(len(slots)), self.cap)
        if begun:
            goes_on = True
            while goes_on:
                hidden_NH = torch.stack([self._slm(ids) for ids in texts])
                logits_NV = self.pair.slm.logits(hidden_NH)
                token_N = self.pair.vocabulary.choices(logits_NV.clone()).argmax(-1)
                goes_on = begun.take(token_N, drafter.scores(token_N, hidden_NH, logits_NV))
                for ids, own, token in zip(texts, drafts, token_N.tolist(), strict=True):
                    ids.append(token)
                    own.append(token)
            self.routing.end(slot_N, begun)
        for key, own in zip(batch, drafts, strict=True):
            places = min(self.cap, most_pending(rules[key]))
            self._drafts[key] = (own + [0] * self.cap)[:places]

    def _slm(self, ids: list[int]) -> Tensor:
        hidden_TH: Tensor = self.pair.slm.last_hidden(input_ids=torch.tensor([ids]))[0]
        return hidden_TH[-1]


def _accepted(choices: Sequence[int], drafts: Sequence[int]) -> list[int]:
    """Return the drafts that are the sampler's own choices, and its token after them."""
    written = []
    for choice, draft in zip(choices, drafts, strict=True):
        written.append(choice)
        if choice != draft:
            break
    return written
