"""vLLM's loop around the drafter, for greedy requests: batches whose rows come, move and go."""

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
import torch

from citer.models.pair import Pair
from citer.rule import Rule
from citer.vllm.accept import Audit
from citer.vllm.drafting import Drafter, Row

Prompts = Mapping[str, Sequence[int]]


class Lockstep:
    """Answers prompts with at most `rows` of them in a step, each at a random place.

    A request in flight is left out of a step with probability `pauses`, as if it were preempted.
    """

    def __init__(self, pair: Pair, drafter: Drafter, rows: int, cap: int, pauses: float = 0.0):
        self.pair, self.drafter = pair, drafter
        self.rows, self.cap, self.pauses = rows, cap, pauses
        self.forwards = 0
        self.drafts: dict[str, list[int]] = {}

    def run(self, prompts: Prompts, rules: Mapping[str, Rule], limit: int) -> dict[str, list[int]]:
        random, waiting = Random(0), list(prompts)
        answers: dict[str, list[int]] = {key: [] for key in prompts}
        self.drafts = {key: [] for key in prompts}
        active: list[str] = []
        while waiting or active:
            while waiting and len(active) < self.rows:
                active.append(waiting.pop(0))
            batch = [key for key in active if random.random() >= self.pauses] or active[:1]
            random.shuffle(batch)
            self._visit(batch, prompts, rules, answers)
            active = [key for key in active if not self._ended(answers[key], limit)]
            self._draft([key for key in batch if key in active], prompts, rules, answers, limit)
        return answers

    def _ended(self, answer: list[int], limit: int) -> bool:
        ends = [n for n, token in enumerate(answer[:limit]) if token in self.pair.eos_ids]
        del answer[ends[0] + 1 if ends else limit :]
        return bool(ends) or len(answer) == limit

    def _visit(
        self,
        batch: list[str],
        prompts: Prompts,
        rules: Mapping[str, Rule],
        answers: dict[str, list[int]],
    ) -> None:
        """Judge the drafts of the batch; keep those that stand, and write the LLM's own token."""
        self.forwards += 1
        all_logits = {key: self._logits([*prompts[key], *answers[key]], key) for key in batch}
        logits_NV = torch.cat([all_logits[key][:-1] for key in batch])
        draft_N = torch.tensor([token for key in batch for token in self.drafts[key]])
        audit = Audit([rules[key].audit for key in batch])
        counts = [len(self.drafts[key]) for key in batch]
        audit.apply(logits_NV, draft_N.long(), counts, [0.0] * len(batch))
        for key, judged_NV in zip(batch, logits_NV.split(counts), strict=True):
            self._write(answers[key], self.drafts[key], judged_NV, all_logits[key][-1])

    def _logits(self, ids: list[int], key: str) -> torch.Tensor:
        drafts = self.drafts[key]
        inputs = torch.tensor([[*ids, *drafts]])
        hidden_TH = self.pair.local_llm.last_hidden(input_ids=inputs)[0, len(ids) - 1 :]
        return self.pair.local_llm.logits(hidden_TH)[:, : self.pair.vocabulary.size]

    def _write(
        self, answer: list[int], drafts: list[int], logits_NV: torch.Tensor, bonus_V: torch.Tensor
    ) -> None:
        for draft, token in zip(drafts, logits_NV.argmax(-1).tolist(), strict=True):
            answer.append(token)
            if token != draft:
                return
        answer.append(int(bonus_V.argmax()))

    def _draft(
        self,
        batch: list[str],
        prompts: Prompts,
        rules: Mapping[str, Rule],
        answers: dict[str, list[int]],
        limit: int,
    ) -> None:
        stops = set(self.pair.eos_ids)
        rows = []
        for key in batch:
            ids = np.array([*prompts[key], *answers[key]], np.int32)
            room = min(self.cap, limit - len(answers[key]) - 1)
            rows.append(Row(key, ids, rules[key], room, stops))
        for key, drafted in zip(batch, self.drafter.draft(rows), strict=True):
            self.drafts[key] = drafted.ids
