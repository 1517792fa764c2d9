"""The random pairs of models to measure, and their requests.

They have Qwen2's architecture. Their answers all have the same length, because no token
ends them. A seeded schedule replaces the router's decisions; the router is still computed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
)
from transformers.initialization import no_init_weights

from benchmarks.padded import Shape
from citer.data.prompts import PlainPrompts, PromptSettings
from citer.decoding.answer import Request
from citer.decoding.policy import Policy, StepView
from citer.evaluation.bounds import random
from citer.models.pair import LanguageModel, Pair
from citer.models.rounding import pack
from citer.models.router import Head, RouterMLP
from citer.rule import Rule

SEED = 17
PROMPT, NEW_TOKENS = 128, 256  # tokens, for random pairs


def qwen2(shape: Shape, *, tied: bool) -> Qwen2Config:
    """Return the configuration of a Qwen2 model."""
    return Qwen2Config(
        **shape._asdict(),
        max_position_embeddings=2 * (PROMPT + NEW_TOKENS),
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )


CPU = {
    "slm": qwen2(Shape(32_768, 640, 1_728, 9, 10, 2, 64), tied=True),  # 60 M
    "llm": qwen2(Shape(32_768, 1_536, 4_224, 20, 12, 2, 128), tied=False),  # 600 M
}
GPU = {
    "slm": qwen2(Shape(151_936, 1_536, 8_960, 28, 12, 2, 128), tied=True),  # Qwen2-1.5B
    "llm": qwen2(Shape(152_064, 3_584, 18_944, 28, 28, 4, 128), tied=False),  # Qwen2-7B
}


@dataclass(frozen=True)
class Subject:
    """A pair with a random head of matching size, and a prompt to answer."""

    name: str
    pair: Pair
    head: Head
    request: Request
    new_tokens: int

    def policy(self, fraction: float) -> Policy:
        """Return a policy by which the LLM writes this fraction of the tokens, chosen by a seed."""
        schedule, scorer = partial(random, SEED), self.head

        def score(view: StepView) -> torch.Tensor:
            scorer(view)
            return schedule(view)

        return Policy(score, Rule("score", fraction))


def pair_names() -> list[str]:
    """Return the names of the pairs that this machine can measure."""
    return ["cpu-bf16", *(["gpu"] if torch.cuda.is_available() else [])]


def make_subject(name: str) -> Subject:
    shapes, device = (GPU, "cuda") if name == "gpu" else (CPU, "cpu")
    return random_subject(name, shapes, torch.bfloat16, torch.device(device))


def random_subject(
    name: str, shapes: Mapping[str, Qwen2Config], dtype: torch.dtype, device: torch.device
) -> Subject:
    """Return a random pair, which answers a prompt of 128 tokens with 256."""
    slm, llm = (
        LanguageModel(model, Path(f"{name}-{model}"), "", _random_network(own, dtype, device))
        for model, own in shapes.items()
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    pair = Pair(slm, llm, tokenizer, {}, (), PlainPrompts(PromptSettings(), tokenizer, [0]))
    generator = torch.Generator().manual_seed(SEED)
    prompt = torch.randint(pair.vocabulary.size, (PROMPT,), generator=generator).tolist()
    return Subject(name, pair, random_head(pair), Request("0", tuple(prompt)), NEW_TOKENS)


def _random_network(
    config: Qwen2Config, dtype: torch.dtype, device: torch.device
) -> PreTrainedModel:
    """Make a network with uniform weights. transformers' own initialisation takes minutes."""
    with no_init_weights(), device:
        network = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    network.tie_weights()
    network.eval().requires_grad_(False)
    generator = torch.Generator(device).manual_seed(SEED)
    for name, weight in network.named_parameters():
        if weight.ndim > 1:
            weight.uniform_(-0.03, 0.03, generator=generator)
        else:
            weight.fill_(float("norm" in name))
    pack(network)
    return network


def generated(
    pair: Pair, model: LanguageModel, prompt_ids: Sequence[int], new_tokens: int, **options: Any
) -> tuple[int, ...]:
    """Return the greedy answer by transformers. Without EOS, it has full length."""
    network: Any = model.network
    ids_BT = torch.tensor([prompt_ids], device=model.device)
    ends = {"eos_token_id": list(pair.eos_ids) or None, "pad_token_id": 0}
    config = GenerationConfig(max_new_tokens=new_tokens, do_sample=False, **ends)
    asked = {"attention_mask": torch.ones_like(ids_BT), "generation_config": config, **options}
    return tuple(network.generate(ids_BT, **asked)[0, ids_BT.shape[1] :].tolist())


def random_head(pair: Pair) -> Head:
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        mlp = RouterMLP(pair.slm.hidden_size, dropout=0.1)
    mlp.eval().requires_grad_(False)
    return Head(mlp).to(pair.slm.device)
