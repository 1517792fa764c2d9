"""The slowest right answer: no cache, no batch, one whole forward a token."""

from collections.abc import Callable

import torch

from citer.decoding.engine import Request, stable_hash
from citer.decoding.policy import Policy, StepView
from citer.models.pair import LanguageModel, Pair

Scorer = Callable[[StepView], torch.Tensor]


def next_hidden(model: LanguageModel, ids: list[int]) -> torch.Tensor:
    return model.last_hidden(input_ids=torch.tensor([ids]), use_cache=False)[:, -1]


def uncached(
    pair: Pair, request: Request, policy: Policy, max_new_tokens: int
) -> tuple[list[int], list[bool]]:
    """Tokens and their origins, as the policy's definition says."""
    ids = [*request.prompt_ids, *request.prefix_ids]
    written: list[int] = []
    by_llm: list[bool] = []
    while len(written) < max_new_tokens and (not written or written[-1] not in pair.eos_ids):
        hidden = next_hidden(pair.slm, ids)
        logits = pair.slm.logits(hidden)
        position = len(ids) - len(request.prompt_ids)
        view = StepView(
            hidden, logits, torch.tensor([stable_hash(request.key)]), torch.tensor([position])
        )
        routed = float(policy.scorer(view)) < policy.tau
        if routed:
            logits = pair.llm.logits(next_hidden(pair.llm, ids))
        written.append(int(logits[0, : pair.vocab_size].argmax()))
        by_llm.append(routed)
        ids.append(written[-1])
    return written, by_llm


def scheduled(salt: int, levels: int = 1_000_003) -> Scorer:
    """A pseudo-random score by request and position alone: any schedule of visits may come."""

    def score(view: StepView) -> torch.Tensor:
        mixed = (view.seed_N % 1_000_003) * 7919 + (view.position_N + salt) * 104_729
        return (mixed * 2_654_435_761 % 1_000_003 % levels).double() / levels

    return score


random_scorer = scheduled(0)
