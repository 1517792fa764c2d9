"""What routing must beat: transformers' `generate`, and a straightforward implementation of CITER.

The latter follows the definition of the method, as the published code has it: one answer at a time,
the LLM without a cache, and a whole forward for every token of a rollout. The tests compare its
results with the engine's.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig

from citer.decoding.answer import Request
from citer.decoding.policy import Policy, StepView
from citer.models.pair import LanguageModel, Pair
from citer.models.sampling import stable_hash
from citer.models.vocabulary import Vocabulary


def generate(
    pair: Pair,
    model: LanguageModel,
    requests: Sequence[Request],
    batch: int,
    new_tokens: int,
    **options: Any,
) -> int:
    """Answer prompts of equal length, `batch` at a time; return the number of new tokens."""
    written = 0
    for start in range(0, len(requests), batch):
        prompts = [request.prompt_ids for request in requests[start : start + batch]]
        ids_BT = torch.tensor(prompts, device=model.device)
        written += write(pair, model, ids_BT, new_tokens, **options).numel() - ids_BT.numel()
    return written


def write(
    pair: Pair, model: LanguageModel, ids_BT: Tensor, new_tokens: int, **options: Any
) -> Tensor:
    """Return the prompts with their greedy answers. Without EOS, answers have full length."""
    config = GenerationConfig(
        max_new_tokens=new_tokens,
        do_sample=False,
        eos_token_id=list(pair.eos_ids) or None,
        pad_token_id=0,
    )
    network: Any = model.network
    return network.generate(
        ids_BT, attention_mask=torch.ones_like(ids_BT), generation_config=config, **options
    )


@torch.inference_mode()
def decode(pair: Pair, request: Request, policy: Policy, new_tokens: int) -> list[int]:
    """Route one answer by its tokens' scores, without audits. Return its token ids.

    The SLM keeps its cache. Each token by the LLM takes one `generate` call without a cache.
    """
    ids, cached = list(request.prompt_ids), DynamicCache(config=pair.slm.network.config)
    unseen = ids
    for position in range(new_tokens):
        hidden_1H = _last_hidden(pair.slm, unseen, cached)
        logits_1V = pair.vocabulary.choices(pair.slm.logits(hidden_1H))
        if _falls(policy, request, position, hidden_1H, logits_1V):
            token = _generate_one(pair, ids)
        else:
            token = int(logits_1V.argmax())
        ids, unseen = [*ids, token], [token]
        if token in pair.eos_ids:
            break
    return ids[len(request.prompt_ids) :]


def _last_hidden(model: LanguageModel, ids: Sequence[int], cached: DynamicCache | None) -> Tensor:
    ids_1T = torch.tensor([ids], device=model.device)
    out = model.network.base_model(
        input_ids=ids_1T, past_key_values=cached, use_cache=cached is not None
    )
    return out.last_hidden_state[:, -1]


def _falls(
    policy: Policy, request: Request, position: int, hidden_1H: Tensor, logits_1V: Tensor
) -> bool:
    seed_1, position_1 = (
        torch.tensor([number], device=hidden_1H.device)
        for number in (stable_hash(request.key), position)
    )
    score_1 = policy.scorer(StepView(hidden_1H, logits_1V, seed_1, position_1))
    return float(score_1) < policy.rule.least_score


def _generate_one(pair: Pair, ids: Sequence[int]) -> int:
    ids_1T = torch.tensor([ids], device=pair.local_llm.device)
    return int(write(pair, pair.local_llm, ids_1T, 1, use_cache=False)[0, -1])


@torch.inference_mode()
def predict(model: LanguageModel, ids: Sequence[int], vocabulary: Vocabulary) -> int:
    """Return the model's next token, from a forward over all ids."""
    hidden_1H = _last_hidden(model, ids, None)
    return int(vocabulary.choices(model.logits(hidden_1H)).argmax())
