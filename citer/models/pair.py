"""The pair of models: what makes two models a pair, and loading them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils.logging import disable_progress_bar

from citer.config import PairParams
from citer.errors import InputError
from citer.io import digest, read_json
from citer.models.cache import SlotCache, kv_shape
from citer.models.device import resolve_device
from citer.models.feed import Feed
from citer.models.forward import wanted_hidden
from citer.models.packing import pack

# Decoders whose whole cache is plain keys and values a position, so that it can be cut anywhere.
MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
SMALL = 2**26  # bytes of the LLM's weights
ROUND_TRIP = "Problem: (A) 3 + 14 = 17.\nSo the answer is \\boxed{17}."


@dataclass(frozen=True)
class LanguageModel:
    """One of the pair, in evaluation mode. `weight_bytes` are read by every forward."""

    name: str
    path: Path
    digest: str
    network: PreTrainedModel

    @cached_property
    def device(self) -> torch.device:
        return self.network.device

    @cached_property
    def dtype(self) -> torch.dtype:
        return self.network.dtype

    @cached_property
    def hidden_size(self) -> int:
        return self.network.config.hidden_size

    @cached_property
    def vocab_size(self) -> int:
        return self.network.config.vocab_size

    @cached_property
    def weight_bytes(self) -> int:
        """All weights but an untied input embedding, of which a forward reads only its rows."""
        embedding, head = self.network.get_input_embeddings(), self.network.get_output_embeddings()
        total = _bytes(self.network)
        return total if embedding.weight is head.weight else total - _bytes(embedding)

    @cached_property
    def kv_bytes(self) -> int:
        """Bytes of keys and values that one position occupies."""
        layers, heads, head_dim = kv_shape(self.network.config)
        return 2 * layers * heads * head_dim * self.dtype.itemsize

    def last_hidden(self, **inputs: Any) -> Tensor:
        """hidden_BTH after the final norm: what the head and the router read."""
        return self.network.base_model(**inputs).last_hidden_state

    def consume(self, ids_M: Tensor, feed: Feed, cache: SlotCache) -> Tensor:
        """hidden_WH after the tokens that the feed wants; the cache then holds them all."""
        return wanted_hidden(self.network, ids_M, feed, cache)

    def logits(self, hidden_NH: Tensor) -> Tensor:
        """logits_NV in float32, or in float64 for a model in float64."""
        return self.network.get_output_embeddings()(hidden_NH).to(
            torch.promote_types(self.dtype, torch.float32)
        )


def _bytes(module: nn.Module) -> int:
    return sum(weight.nbytes for weight in module.parameters())


@dataclass(frozen=True)
class Pair:
    """A small and a large model over one tokenizer; `eos_ids[0]` ends a reference."""

    slm: LanguageModel
    llm: LanguageModel
    tokenizer: PreTrainedTokenizerFast
    eos_ids: tuple[int, ...]

    @property
    def eos_id(self) -> int:
        return self.eos_ids[0]

    @cached_property
    def vocab_size(self) -> int:
        """The ids that both models can write: one tokenizer's vocabulary, padded apart."""
        return min(self.slm.vocab_size, self.llm.vocab_size)

    @property
    def is_small(self) -> bool:
        """Whether torch's threads find nothing to share in a forward, and processes are faster."""
        return self.llm.device.type == "cpu" and self.llm.weight_bytes < SMALL

    @cached_property
    def tokenizer_digest(self) -> str:
        return tokenizer_digest(self.slm.path)

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of an answer, its EOS and special tokens left out."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))


def load_pair(slm: Path, llm: Path, params: PairParams) -> Pair:
    """Check that the two folders make a pair, then load both.

    Raises InputError, before any weight is read, where they do not.
    """
    check_pair(slm, llm)
    return Pair(
        slm=load_model("slm", slm, params),
        llm=load_model("llm", llm, params),
        tokenizer=load_tokenizer(slm),
        eos_ids=eos_token_ids(slm),
    )


def load_model(name: str, path: Path, params: PairParams) -> LanguageModel:
    """Load one model for inference; raises InputError where the folder is no usable model."""
    check_model(path)
    disable_progress_bar()  # of transformers, for each tensor
    network = AutoModelForCausalLM.from_pretrained(
        path, dtype=getattr(torch, params.dtype), attn_implementation="sdpa", local_files_only=True
    )
    network.requires_grad_(False)
    network.eval().to(resolve_device(params.device))
    pack(network)
    return LanguageModel(name, path, model_digest(path), network)


def check_pair(slm: Path, llm: Path) -> None:
    """Cheap: configurations and tokenizers only. Vocabularies may be padded apart.

    Raises InputError naming both folders and what differs.
    """
    check_model(slm)
    check_model(llm)
    ours, theirs = tokenizer_parts(slm), tokenizer_parts(llm)
    for part in ours:
        if ours[part] != theirs[part]:
            raise InputError(f"{slm} and {llm}: not one tokenizer: their `{part}` differ")
    if set(eos_token_ids(slm)) != set(eos_token_ids(llm)):
        ends = f"{list(eos_token_ids(slm))} and {list(eos_token_ids(llm))}"
        raise InputError(f"{slm} and {llm}: not one EOS: {ends}")


def check_model(path: Path) -> None:
    """Raise InputError where `path` holds no model that the engine can run."""
    if not (path / "config.json").is_file():
        raise InputError(f"{path}: no config.json, expected a Hugging Face model folder")
    model_type = read_json(path / "config.json").get("model_type")
    if model_type not in MODEL_TYPES:
        known = ", ".join(MODEL_TYPES)
        raise InputError(f"{path}: model type {model_type!r}, expected one of {known}")
    config = AutoConfig.from_pretrained(path, local_files_only=True)
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or _slides(config):
        raise InputError(f"{path}: a sliding-window cache cannot be cut, expected full attention")
    for file in weight_files(path):
        _check_weights(file)


def _check_weights(file: Path) -> None:
    """Opening reads the header alone, and holds it against the file's length."""
    try:
        with safe_open(file, "pt"):
            pass
    except FileNotFoundError:
        raise InputError(
            f"{file}: no such file, expected the model's safetensors weights"
        ) from None
    except SafetensorError as error:
        raise InputError(f"{file}: not whole safetensors weights: {error}") from None


def _slides(config: PreTrainedConfig) -> bool:
    """Mistral has a window and no switch for it; Qwen2's applies only where it is switched on."""
    window = getattr(config, "sliding_window", None)
    return bool(window and getattr(config, "use_sliding_window", True))


def weight_files(path: Path) -> list[Path]:
    """The safetensors files of a model folder, whole or in shards, whether there or not."""
    index = path / "model.safetensors.index.json"
    if index.is_file():
        return sorted({path / name for name in read_json(index)["weight_map"].values()})
    return [path / "model.safetensors"]


def context_length(path: Path) -> int:
    """The positions that a model was made for."""
    return read_json(path / "config.json")["max_position_embeddings"]


def model_digest(path: Path) -> str:
    """Digest of a model's configuration and weights: its identity."""
    return digest(path / "config.json", *weight_files(path))


def load_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """The folder's own tokenizer.json.

    `AutoTokenizer` would replace the pre-tokenizer by the model family's. Raises InputError where
    text does not survive the way to ids and back.
    """
    if not (path / "tokenizer.json").is_file():
        raise InputError(f"{path}: no tokenizer.json, expected a fast tokenizer")
    read_json(path / "tokenizer.json")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
    back = tokenizer.decode(tokenizer.encode(ROUND_TRIP, add_special_tokens=False))
    if back != ROUND_TRIP:
        raise InputError(f"{path}: the tokenizer turns {ROUND_TRIP!r} into {back!r}")
    return tokenizer


def tokenizer_parts(path: Path) -> dict[str, Any]:
    """What decides which ids a text gets."""
    content = json.loads(load_tokenizer(path).backend_tokenizer.to_str())
    return {
        part: content[part] for part in ("normalizer", "pre_tokenizer", "model", "added_tokens")
    }


def tokenizer_digest(path: Path) -> str:
    return digest(json.dumps(tokenizer_parts(path), sort_keys=True))


def eos_token_ids(path: Path) -> tuple[int, ...]:
    """The ids that end an answer: generation_config.json's, else config.json's."""
    for name in ("generation_config.json", "config.json"):
        found = read_json(path / name).get("eos_token_id") if (path / name).is_file() else None
        if found is not None:
            return tuple(found) if isinstance(found, list) else (found,)
    raise InputError(f"{path}: no eos_token_id in generation_config.json or config.json")


def padded_batch(rows: list[list[int]], device: torch.device) -> dict[str, Tensor]:
    """`input_ids` and `attention_mask` of rows of unequal length, padded on the right."""
    width = max(map(len, rows))
    ids_BT = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask_BT = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return {"input_ids": ids_BT.to(device), "attention_mask": mask_BT.to(device)}
