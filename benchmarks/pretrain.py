"""Train the embedded pair: a tokenizer, an SLM that knows no facts, and an LLM that knows all.

The SLM is pretrained on other facts than the pipeline's. It learns the form of answers from them.
It learns the pipeline's facts only when the pipeline finetunes it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from benchmarks.corpus import Mix, Text, encode_text, texts
from citer.demo.knowledge import OTHER_WORLD, TRUTH, Design
from citer.progress import progress
from citer.storage.tables import digest, replacing, write_json

EOS = "<|end|>"
VOCABULARY = 1024
TOKENIZER_TEXTS = 6000
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


@dataclass(frozen=True)
class Recipe:
    """One model of the pair: its shape, its corpus and its training."""

    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int
    mix: Mix
    training: Training


SLM = Recipe(
    64, 2, 4, 128, Mix(facts=OTHER_WORLD, mc=0.27, sums=0.08), Training(steps=2000, batch=16)
)
LLM = Recipe(128, 4, 4, 384, Mix(facts=TRUTH), Training(steps=2000, batch=16))


def make_pair(
    folder: Path, seed: int, slm: Recipe = SLM, llm: Recipe = LLM, design: Design | None = None
) -> None:
    """Train both models and write `folder`/{slm,llm,card.json}, or nothing if interrupted.

    The card has the command, the recipes, the digests of the weights, and the losses at the end.
    The same torch on the same kind of CPU gives the same bytes. With another torch or CPU, only the
    losses can be compared.
    """
    sample = islice(texts(llm.mix, seed, design), TOKENIZER_TEXTS)
    tokenizer = train_tokenizer(part for text in sample for part in text)
    with replacing(folder) as aside:
        recipes = {"slm": slm, "llm": llm}
        for name in recipes:  # before its first use, which would add padding to the file
            tokenizer.save_pretrained(aside / name)
        made = {
            name: _make(aside / name, own, tokenizer, seed, texts(own.mix, seed, design))
            for name, own in recipes.items()
        }
        card = {
            "command": "OMP_NUM_THREADS=1 citer pretrain",
            "seed": seed,
            "torch": torch.__version__,
            "cpu": torch.backends.cpu.get_cpu_capability(),
        }
        write_json(aside / "card.json", card | made)


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Train byte-level BPE with one token for each digit. It decodes any text unchanged."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d|\n| ?\(|\)| ?\\|[{}]"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=EOS, pad_token=EOS)


def _make(
    folder: Path, own: Recipe, tokenizer: PreTrainedTokenizerFast, seed: int, corpus: Iterator[Text]
) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = _fresh(own, tokenizer)
    loss = train(model, corpus, tokenizer, own.training, f"pretrain {folder.name}")
    model.save_pretrained(folder)
    return {
        "recipe": asdict(own),
        "digest": digest(folder / "model.safetensors"),
        "loss_nats": round(loss, 4),
    }


def _fresh(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Initialise a model. Its layers add nothing yet, so that the head sees the embeddings."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.06,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    model = Qwen2ForCausalLM(config)
    for name, weight in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            nn.init.zeros_(weight)
    return model


def train(
    model: PreTrainedModel,
    texts: Iterator[Text],
    tokenizer: PreTrainedTokenizerFast,
    recipe: Training,
    title: str,
) -> float:
    """Train `model` in place on completions. Returns the mean loss of 100 last steps, in nats."""
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
    ids = [torch.tensor(ids) for ids, _ in encoded]
    labels = [ids_T.roll(-1) for ids_T in ids]
    for labels_T, (_, prompt) in zip(labels, encoded, strict=True):
        labels_T[: max(prompt, 1) - 1] = labels_T[-1] = IGNORED
    return pad_sequence(ids, True), pad_sequence(labels, True, IGNORED)
