"""A pair of models, loaded."""

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
from citer.data.prompts import PromptFormat
from citer.errors import InputError
from citer.models.cache import SlotCache, kv_shape
from citer.models.card import ModelCard
from citer.models.device import resolve_device
from citer.models.feed import Feed
from citer.models.folder import ModelFolder, PairFolder
from citer.models.forward import check_forward, wanted_hidden
from citer.models.packing import pack
from citer.models.stop import StopTexts
from citer.models.vocabulary import Vocabulary

SMALL = 2**26  # bytes of the LLM's weights


@dataclass(frozen=True)
class LanguageModel:
    """One model of a pair, in evaluation mode.

    `cuda_graphs`: whether short forwards on a GPU are captured as CUDA graphs.
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
        """Bytes that every forward reads: all weights but an untied input embedding.

        A forward reads only the rows of its own tokens from that embedding.
        """
        embedding, head = self.network.get_input_embeddings(), self.network.get_output_embeddings()
        total = _bytes(self.network)
        return total if embedding.weight is head.weight else total - _bytes(embedding)

    @cached_property
    def kv_bytes(self) -> int:
        """Bytes of keys and values that one position occupies."""
        layers, heads, head_dim = kv_shape(self.network.config)
        return 2 * layers * heads * head_dim * self.dtype.itemsize

    @cached_property
    def card(self) -> ModelCard:
        context = self.network.config.max_position_embeddings
        sizes = (self.weight_bytes, self.kv_bytes, context, self.vocab_size)
        return ModelCard(*sizes, self.path, self.digest)

    def __reduce__(self) -> tuple[Callable[..., "LanguageModel"], tuple[Any, ...]]:
        """Pickle the folder and the settings only. Unpickling loads the weights again."""
        folder, dtype = str(self.path), str(self.dtype).removeprefix("torch.")
        placement = {"device": self.device.type, "dtype": dtype, "cuda_graphs": self.cuda_graphs}
        params = PairParams.model_validate({"slm": folder, "llm": folder, **placement})
        return _reload, (self.name, self.path, self.digest, params)

    def last_hidden(self, **inputs: Any) -> Tensor:
        """Return hidden_BTH after the final norm, the input of the LM head and of the router."""
        return self.network.base_model(**inputs).last_hidden_state

    def consume(self, ids_M: Tensor, feed: Feed, cache: SlotCache) -> Tensor:
        """Run a forward over a feed and add its tokens to the cache. Return hidden_WH."""
        return wanted_hidden(self.network, ids_M, feed, cache)

    def logits(self, hidden_NH: Tensor) -> Tensor:
        """Return logits_NV in float32, or in float64 for a model in float64."""
        return self.network.get_output_embeddings()(hidden_NH).to(
            torch.promote_types(self.dtype, torch.float32)
        )


def _bytes(module: nn.Module) -> int:
    return sum(weight.nbytes for weight in module.parameters())


@dataclass(frozen=True)
class Pair:
    """A small and a large model with one tokenizer. `eos_ids[0]` ends a reference.

    `llm` may be a `Judge` (citer/decoding/judge.py) instead. Outside `citer.decoding`, only its
    card is used.
    """

    slm: LanguageModel
    llm: LanguageModel
    tokenizer: PreTrainedTokenizerFast
    tokenizer_digest: str
    eos_ids: tuple[int, ...]
    prompts: PromptFormat

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The ids that both models have. They may pad the same vocabulary to two sizes."""
        return Vocabulary(min(self.slm.vocab_size, self.llm.card.vocab_size), self.eos_ids)

    @property
    def context(self) -> int:
        """The smaller context of the two models, in tokens."""
        return min(self.slm.card.context, self.llm.card.context)

    @property
    def is_small(self) -> bool:
        """Whether forwards are too small to multithread, so that several processes are faster."""
        if not isinstance(self.llm, LanguageModel):
            return False  # forked workers would share the judge's connection
        return self.llm.device.type == "cpu" and self.llm.weight_bytes < SMALL

    @cached_property
    def stops(self) -> StopTexts | None:
        """The texts that end an answer, or None if there are none."""
        return StopTexts(self.prompts.stop, self.tokenizer) if self.prompts.stop else None

    def ended(self, token_ids: Sequence[int]) -> bool:
        """Return whether an answer ends after these tokens, of which only the last is new."""
        return token_ids[-1] in self.eos_ids or bool(self.stops and self.stops.end(token_ids))

    def text(self, token_ids: Sequence[int]) -> str:
        """Decode an answer, without its EOS, special tokens and stop text."""
        text = str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))
        return self.stops.cut(text) if self.stops else text


def load_pair(folders: PairFolder, params: PairParams) -> Pair:
    """Load both models of a pair for inference."""
    return Pair(
        slm=load_model("slm", folders.slm, params),
        llm=load_model("llm", folders.llm, params),
        tokenizer=folders.slm.tokenizer,
        tokenizer_digest=folders.tokenizer_digest,
        eos_ids=folders.eos_ids,
        prompts=folders.prompts,
    )


def load_model(name: str, folder: ModelFolder, params: PairParams) -> LanguageModel:
    """Load one model for inference. The caller has checked the folder."""
    disable_progress_bar()  # transformers shows one per tensor
    network = AutoModelForCausalLM.from_pretrained(
        folder.path,
        dtype=getattr(torch, params.dtype),
        attn_implementation="sdpa",
        local_files_only=True,
    )
    network.requires_grad_(False)
    network.eval().to(resolve_device(params.device))
    pack(network)
    check_forward(network, folder.path)
    graphs = params.cuda_graphs
    return LanguageModel(name, folder.path, folder.digest, network, cuda_graphs=graphs)


def _reload(name: str, path: Path, digest: str, params: PairParams) -> LanguageModel:
    """Load a pickled model. Raises InputError if its folder has changed since."""
    model = load_model(name, ModelFolder(path), params)
    if model.digest != digest:
        raise InputError(f"{path}: changed during the run: digest {model.digest}, not {digest}")
    return model


def padded_batch(rows: list[list[int]], device: torch.device) -> dict[str, Tensor]:
    """Pad rows of token ids on the right: `input_ids` and `attention_mask`, both _BT."""
    width = max(map(len, rows))
    ids_BT = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask_BT = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return {"input_ids": ids_BT.to(device), "attention_mask": mask_BT.to(device)}
