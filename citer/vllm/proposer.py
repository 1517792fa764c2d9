"""The proposer that vLLM runs after each forward of the LLM (`citer.vllm.RoutedProposer`).

With tensor parallelism, every rank has one. The SLM runs on the first rank only: vLLM's scheduler
reads the drafts of that rank and sends them to all with the next step. All ranks audit alike,
because each has all logits and all requests.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citer.decoding.answer import Disagreement, Visit
from citer.errors import InputError
from citer.models.sampling import Sampling, stable_hash
from citer.progress import warn
from citer.rule import LLM, Rule
from citer.vllm import KEY
from citer.vllm.accept import JudgedRow
from citer.vllm.counts import Counts
from citer.vllm.drafting import NONE, Drafted, Drafter, Row
from citer.vllm.loading import engine_of, load, read_served, read_settings
from citer.vllm.runner import Hooked, Request, drafts_here, hook

MOST = 2**63 - 1
KEPT = 1024  # requests whose counts nobody has taken, beyond those in flight


class RoutedProposer(Hooked):
    """Drafts for each request by its own rule, and counts what came of it.

    `drafter` is None on all tensor-parallel ranks but the first.
    """

    def __init__(self, vllm_config: Any) -> None:
        """Raises InputError if vLLM, the LLM, the router or a setting is not as expected."""
        hook()
        settings = read_settings(vllm_config.additional_config)
        self._asked = lru_cache(maxsize=KEPT)(self._parsed)
        slots: int = vllm_config.scheduler_config.max_num_seqs
        self._cap: int = vllm_config.speculative_config.num_speculative_tokens
        self._served = read_served(settings, self._cap)
        self._longest: int = vllm_config.model_config.max_model_len
        self.counts = Counts(KEPT + slots)
        self._last: dict[str, Drafted] = {}  # of the step before
        self.drafter = None
        if drafts_here():
            pair, router = load(settings, engine_of(vllm_config))
            self._longest = min(self._longest, pair.slm.card.context)
            self.drafter = Drafter(pair, router, slots, self._longest)
            self.drafter.reserve()  # now: vLLM gives the memory that is left to its own cache

    def load_model(self, model: Any) -> None:
        """Do nothing: vLLM calls this with the LLM."""

    def rule(self, request: Request) -> Rule:
        """Return the rule of a request. If it is not valid, the LLM alone writes the answer."""
        asked = (request.params.extra_args or {}).get(KEY)
        if not isinstance(asked, dict) or "rule" not in asked:
            return self._served.rule
        return self._asked(str(asked["rule"]))

    def _parsed(self, text: str) -> Rule:
        try:
            return self._served.asked({"rule": text})
        except InputError as error:
            warn(f"{error}; the LLM alone answers")
            return LLM

    def beta(self, request: Request) -> float:
        return self.rule(request).audit

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: NDArray[np.int32],
        token_ids_cpu: NDArray[np.int32],
        **_: Any,
    ) -> list[list[int]]:
        """Return the drafts for each row of vLLM's batch: between none and the cap.

        `sampled_token_ids` has the tokens that this step wrote, and is empty for a row whose prompt
        is not yet read. `token_ids_cpu` has prompts and answers, of the given lengths.
        """
        if self.drafter is None:
            return [[] for _ in sampled_token_ids]
        rows = []
        steps = zip(self.batch, sampled_token_ids, self.audit.rows(), strict=False)
        for n, (request, written, judged) in enumerate(steps):
            if not written:
                continue
            row = self._row(request, written, token_ids_cpu[n, : num_tokens_no_spec[n]])
            rows.append((n, row))
            self._count(request, row, written, judged)
        return self._draft(rows, len(sampled_token_ids))

    def _draft(self, rows: Sequence[tuple[int, Row]], total: int) -> list[list[int]]:
        assert self.drafter, "only on the first rank"
        before = self.drafter.runner.total.forwards
        drafted = self.drafter.draft([row for _, row in rows])
        self.counts.total.llm_forwards += 1
        self.counts.total.slm_forwards += self.drafter.runner.total.forwards - before
        self._last = {row.key: own for (_, row), own in zip(rows, drafted, strict=True)}
        drafts: list[list[int]] = [[] for _ in range(total)]
        for (n, _), own in zip(rows, drafted, strict=True):
            drafts[n] = own.ids
        return drafts

    def _row(self, request: Request, written: list[int], ids: NDArray[np.int32]) -> Row:
        rule, stops = self.rule(request), request.stops
        room = 0
        if request.text_only and not any(token in stops for token in written):
            # The LLM's own token follows the drafts.
            limit = min(self._longest, request.prompt_tokens + request.params.max_tokens)
            room = min(self._cap, limit - len(ids) - 1)
        return Row(request.key, ids, rule, room, stops, _sampling(request, rule))

    def _count(self, request: Request, row: Row, written: list[int], judged: JudgedRow) -> None:
        """Record the visit that wrote `written`: drafts that were kept, and the LLM's token."""
        first = len(row.ids) - request.prompt_tokens - len(written)
        audited = 0
        if row.rule.audit and not request.params.temperature:
            audited = min(len(written), len(judged.drafts))
        disagreements = tuple(
            Disagreement(first + n, judged.drafts[n], judged.choices[n], judged.odds[n])
            for n in range(audited)
            if judged.drafts[n] != judged.choices[n]
        )
        steps = self._last.get(request.key, NONE).steps
        seen, kept = first + len(judged.drafts), first + len(written) - 1
        visit = Visit(steps, seen, kept, audited, disagreements)
        self.counts.add(request.key, visit)


def _sampling(request: Request, rule: Rule) -> Sampling | None:
    """Return how the SLM samples, or None if its drafts are greedy.

    Exact rules get greedy drafts. Any drafts are exact there, and these are accepted most often.
    """
    params = request.params
    if rule.exact or not params.temperature:
        return None
    seed = stable_hash(request.key) if params.seed is None else params.seed
    # vLLM adds the number of the choice to a seed, and takes any top_k. Ours are of 64 bits.
    seed, top_k = seed & MOST, min(max(params.top_k, 0), MOST)
    return Sampling(params.temperature, top_k, params.top_p, seed)
