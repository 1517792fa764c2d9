"""The pair of models, loaded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from citer.config import PairParams
from citer.errors import InputError
from citer.models.cache import SlotCache, kv_shape
from citer.models.device import resolve_device
from citer.models.feed import Feed
from citer.models.folder import (
    check_pair,
    eos_token_ids,
    load_tokenizer,
    model_digest,
    tokenizer_digest,
)
from citer.models.forward import check_forward, wanted_hidden
from citer.models.packing import pack
from citer.models.vocabulary import Vocabulary

SMALL = 2**26  # bytes of the LLM's weights


@dataclass(frozen=True)
class LanguageModel:
    """One of the pair, in evaluation mode. `weight_bytes` are read by every forward.

    `cuda_graphs`: whether short forwards on a GPU are to be captured.
    """

    name: str
    path: Path
    digest: str
    network: PreTrainedModel
    cuda_graphs: bool = field(default=True, kw_only=True)

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

    def __reduce__(self) -> tuple[Callable[..., "LanguageModel"], tuple[Any, ...]]:
        """Pickle as the folder and settings: unpickling loads the weights anew."""
        folder, dtype = str(self.path), str(self.dtype).removeprefix("torch.")
        placement = {"device": self.device.type, "dtype": dtype, "cuda_graphs": self.cuda_graphs}
        params = PairParams.model_validate({"slm": folder, "llm": folder, **placement})
        return _reload, (self.name, self.path, self.digest, params)

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
    def vocabulary(self) -> Vocabulary:
        """What both models can write: one tokenizer's vocabulary, which they pad apart."""
        return Vocabulary(min(self.slm.vocab_size, self.llm.vocab_size), self.eos_ids)

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


def load_pair(
    slm: Path, llm: Path, params: PairParams, digests: tuple[str | None, str | None] = (None, None)
) -> Pair:
    """Check that the two folders make a pair, then load both.

    Who has just read their digests need not have them read again. Raises InputError, before any
    weight is read, where they make none.
    """
    check_pair(slm, llm)
    return Pair(
        slm=load_model("slm", slm, params, digests[0]),
        llm=load_model("llm", llm, params, digests[1]),
        tokenizer=load_tokenizer(slm),
        eos_ids=eos_token_ids(slm),
    )


def load_model(
    name: str, path: Path, params: PairParams, digest: str | None = None
) -> LanguageModel:
    """Load one model of a pair that was checked, for inference."""
    disable_progress_bar()  # of transformers, for each tensor
    network = AutoModelForCausalLM.from_pretrained(
        path, dtype=getattr(torch, params.dtype), attn_implementation="sdpa", local_files_only=True
    )
    network.requires_grad_(False)
    network.eval().to(resolve_device(params.device))
    pack(network)
    check_forward(network, path)
    known = digest or model_digest(path)
    return LanguageModel(name, path, known, network, cuda_graphs=params.cuda_graphs)


def _reload(name: str, path: Path, digest: str, params: PairParams) -> LanguageModel:
    """Raises InputError if the folder changed since the model was pickled."""
    model = load_model(name, path, params)
    if model.digest != digest:
        raise InputError(f"{path}: changed during the run: digest {model.digest}, not {digest}")
    return model


def padded_batch(rows: list[list[int]], device: torch.device) -> dict[str, Tensor]:
    """`input_ids` and `attention_mask` of rows of unequal length, padded on the right."""
    width = max(map(len, rows))
    ids_BT = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask_BT = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return {"input_ids": ids_BT.to(device), "attention_mask": mask_BT.to(device)}
