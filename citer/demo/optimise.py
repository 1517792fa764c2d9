"""Train one model of the embedded pair: Muon for matrices, AdamW for other weights."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from citer.demo.corpus import Text, encode_text
from citer.progress import progress

IGNORED = -100
BUCKETS = 16  # batches; their texts are sorted by length together, to reduce padding


@dataclass(frozen=True)
class Training:
    """Steps, texts per step and peak learning rates, which fall over the last `decay` of steps."""

    steps: int
    batch: int
    matrix_rate: float = 0.01
    other_rate: float = 4e-3
    warmup: int = 50
    decay: float = 0.4


def train(
    model: PreTrainedModel,
    texts: Iterator[Text],
    tokenizer: PreTrainedTokenizerFast,
    recipe: Training,
    title: str,
) -> float:
    """Train `model` in place on completions.

    Returns the mean loss of the last 100 steps, in nats per token.
    """
    model.train()
    optimizers = _optimizers(model, recipe)
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, _shape(recipe)) for o in optimizers]
    losses: list[float] = []
    with progress(title, recipe.steps, "steps") as advance:
        for ids_BT, labels_BT in islice(_batches(texts, tokenizer, recipe.batch), recipe.steps):
            loss = _loss(model, ids_BT, labels_BT)
            loss.backward()
            for optimizer, schedule in zip(optimizers, schedules, strict=True):
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(loss.item())
            advance(1)
    model.eval()
    last = losses[-100:]
    return sum(last) / len(last)


def _optimizers(model: nn.Module, recipe: Training) -> list[torch.optim.Optimizer]:
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, weight in model.named_parameters():
        (matrices if ".layers." in name and weight.ndim == 2 else others).append(weight)
    return [
        torch.optim.Muon(matrices, lr=recipe.matrix_rate, weight_decay=0.01),
        torch.optim.AdamW(others, lr=recipe.other_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def _shape(recipe: Training) -> Callable[[int], float]:
    fall = recipe.steps * recipe.decay
    return lambda step: min(1.0, (step + 1) / recipe.warmup, (recipe.steps - step) / fall)


def _loss(model: PreTrainedModel, ids_BT: Tensor, labels_BT: Tensor) -> Tensor:
    hidden_BTH = model.base_model(input_ids=ids_BT, use_cache=False).last_hidden_state
    learned = labels_BT != IGNORED
    logits_NV = model.get_output_embeddings()(hidden_BTH[learned])
    return nn.functional.cross_entropy(logits_NV, labels_BT[learned])


def _batches(
    texts: Iterator[Text], tokenizer: PreTrainedTokenizerFast, size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    while True:
        encoded = [encode_text(text, tokenizer) for text in islice(texts, size * BUCKETS)]
        encoded.sort(key=lambda pair: len(pair[0]))
        for bucket in torch.randperm(BUCKETS, generator=generator).tolist():
            yield pad(encoded[bucket * size : (bucket + 1) * size])


def pad(encoded: list[tuple[list[int], int]]) -> tuple[Tensor, Tensor]:
    """Return ids_BT and next-token labels_BT. Right padding needs no mask in causal attention."""
    width = max(len(ids) for ids, _ in encoded)
    ids_BT = torch.zeros(len(encoded), width, dtype=torch.long)
    labels_BT = torch.full_like(ids_BT, IGNORED)
    for row, (ids, prompt) in enumerate(encoded):
        ids_BT[row, : len(ids)] = torch.tensor(ids)
        start = max(prompt, 1)
        labels_BT[row, start - 1 : len(ids) - 1] = torch.tensor(ids[start:])
    return ids_BT, labels_BT
