"""Baselines by transformers: `generate` with one model, and assisted generation."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from citer.decoding.answer import Request
from citer.models.pair import LanguageModel, Pair


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
