"""A pair of models, loaded, and their predictions for given texts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from citer.config.pair import PairParams
from citer.data.prompts import PromptFormat
from citer.errors import InputError
from citer.models.cache import Batch, SlotCache, kv_shape
from citer.models.device import device_for, device_of
from citer.models.folder import Carded, ModelCard, ModelFolder, PairFolder
from citer.models.forward import Forward, wanted_hidden
from citer.models.network import forward_of, load_network, outlined
from citer.models.tokenizer import StopTexts
from citer.models.vocabulary import Vocabulary
from citer.models.weights import bytes_read

SMALL = 2**26  # bytes of weights
ROWS = 256  # rows of logits held at a time; with a small vocabulary they fit a core's cache
KEPT = 2**23 - 2**20  # logits on a CPU: malloc hands more back, and the kernel zeroes them anew


@dataclass(frozen=True)
class LanguageModel:
    """One model of a pair, in evaluation mode.

    A model without weights (`load_model`) has a network on the device `meta`. Its sizes are
    known, and it can be pickled. `runs_on` is where the weights go that unpickling loads.

    params: those by which it was loaded; None: it cannot be pickled
    forward: the stock forward, if the model is quantised or on several devices
    stored_bytes: bytes of a quantised model's weights that every forward reads
    """

    name: str
    path: Path
    digest: str
    network: PreTrainedModel
    params: PairParams | None = field(default=None, kw_only=True)
    forward: Forward = field(default=wanted_hidden, kw_only=True)
    stored_bytes: int | None = field(default=None, kw_only=True)
    runs_on: torch.device | None = field(default=None, kw_only=True)

    @cached_property
    def device(self) -> torch.device:
        """Where the logits are."""
        return self.runs_on or device_of(self.network.get_output_embeddings())

    @property
    def is_small(self) -> bool:
        """Whether forwards are too small to multithread, so that several processes are faster."""
        return self.device.type == "cpu" and self.weight_bytes < SMALL

    @property
    def fits_one_gpu(self) -> bool:
        """Whether all layers are on one device."""
        return not (self.params and self.params.llm_device_map)

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
        """Bytes that every forward reads: all weights but an untied input embedding."""
        if self.stored_bytes is not None:
            return self.stored_bytes
        sizes = {name: weight.nbytes for name, weight in self.network.named_parameters()}
        return bytes_read(self.network, sizes)

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
        assert self.params
        params = self.params.model_copy(update={"device": self.device.type})
        return _reload, (self.name, self.path, self.digest, params)

    def last_hidden(self, **inputs: Any) -> Tensor:
        """Return hidden_BTH after the final norm, the input of the LM head and of the router."""
        return self.network.base_model(**inputs).last_hidden_state

    def consume(self, ids_M: Tensor, batch: Batch, cache: SlotCache) -> Tensor:
        """Run a forward over a batch and add its tokens to the cache. Return hidden_WH."""
        return self.forward(self.network, ids_M, batch, cache)

    def logits(self, hidden_NH: Tensor) -> Tensor:
        """Return logits_NV in float32, or in float64 for a model in float64."""
        return self.network.get_output_embeddings()(hidden_NH).to(
            torch.promote_types(self.dtype, torch.float32)
        )


@dataclass(frozen=True)
class Pair:
    """A small and a large model with one tokenizer. `eos_ids[0]` ends a reference.

    `identity` is that of `PairFolder`, for the precision in which the models are loaded.

    An `llm` that is no LanguageModel is a `ServedModel` (citer/models/served.py) or a `Verifier`
    (citer/decoding/verifier.py). Outside `citer.decoding`, only the LLM's card is used.
    """

    slm: LanguageModel
    llm: LanguageModel | Carded
    tokenizer: PreTrainedTokenizerFast
    identity: dict[str, Any]
    eos_ids: tuple[int, ...]
    prompts: PromptFormat

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The ids that both models have. They may pad the same vocabulary to two sizes."""
        return Vocabulary(min(self.slm.vocab_size, self.llm.card.vocab_size), self.eos_ids)

    @property
    def local_llm(self) -> LanguageModel:
        """The LLM of a pair that was loaded in this process. Raises InputError without one."""
        if isinstance(self.llm, LanguageModel):
            return self.llm
        raise InputError(f"{self.llm.card.path}: runs elsewhere, expected pair.llm_url: null")

    @property
    def context(self) -> int:
        """The smaller context of the two models, in tokens."""
        return min(self.slm.card.context, self.llm.card.context)

    @property
    def is_small(self) -> bool:
        """Whether both models are small. One that a server runs shares batches in one process."""
        return isinstance(self.llm, LanguageModel) and self.llm.is_small

    @property
    def device(self) -> torch.device:
        """Where the SLM runs, and the LLM if it is on one device."""
        return self.slm.device

    @property
    def fits_one_gpu(self) -> bool:
        """Whether both models are loaded here, on one device."""
        return isinstance(self.llm, LanguageModel) and self.llm.fits_one_gpu

    @property
    def is_slow(self) -> bool:
        """Whether an answer may take a minute, so that work is best kept in small units."""
        largest = self.llm if isinstance(self.llm, LanguageModel) else self.slm
        return self.slm.device.type == "cpu" and largest.weight_bytes >= SMALL

    @cached_property
    def stops(self) -> StopTexts | None:
        """The texts that end an answer, or None if there are none."""
        return self.stops_with(())

    def stops_with(self, more: Sequence[str]) -> StopTexts | None:
        """Return the texts that end an answer to a request with `more` of them."""
        texts = (*self.prompts.stop, *more)
        return StopTexts(texts, self.tokenizer) if texts else None

    def ended(self, token_ids: Sequence[int]) -> bool:
        """Return whether an answer ends after these tokens, of which only the last is new."""
        return token_ids[-1] in self.eos_ids or bool(self.stops and self.stops.end(token_ids))

    def decoded(self, token_ids: Sequence[int]) -> str:
        """Decode without EOS and special tokens. Not every tokenizer flags each EOS as special."""
        kept = [token for token in token_ids if token not in self.eos_ids]
        return str(self.tokenizer.decode(kept, skip_special_tokens=True))

    def text(self, token_ids: Sequence[int], stop: Sequence[str] = ()) -> str:
        """Decode an answer, without its EOS, special tokens, the pair's stop texts and `stop`."""
        text = self.decoded(token_ids)
        stops = self.stops_with(stop) if stop else self.stops
        return stops.cut(text) if stops else text


def load_pair(
    folders: PairFolder,
    params: PairParams,
    loaded: LanguageModel | Carded | None = None,
    *,
    weights: bool = True,
) -> Pair:
    """Load both models of a pair for inference, or without weights, but none that a server runs.

    An LLM that was `loaded` with the same parameters is used again if it has the same digest.
    """
    kept = loaded if loaded and loaded.card.digest == folders.llm.digest else None
    kept = kept or folders.llm.reach(params.dtype)
    slm = load_model("slm", folders.slm, params, weights=weights)
    llm = kept or load_model("llm", folders.llm, params, weights=weights)
    identity = folders.identity(params.dtype)
    return Pair(slm, llm, folders.slm.tokenizer, identity, folders.eos_ids, folders.prompts)


def load_model(
    name: str, folder: ModelFolder, params: PairParams, *, weights: bool = True
) -> LanguageModel:
    """Load one model for inference, or without weights. The caller has checked the folder."""
    return LanguageModel(
        name,
        folder.path,
        folder.digest,
        load_network(name, folder, params) if weights else outlined(folder, params),
        params=params.model_copy(update={"slm_weights": folder.weights}),
        forward=forward_of(name, folder, params),
        stored_bytes=folder.stored_bytes if folder.quantised else None,
        runs_on=None if weights else device_for(name, params),
    )


_RELOADED: WeakValueDictionary[tuple[str, Path, str], LanguageModel] = WeakValueDictionary()


def _reload(name: str, path: Path, digest: str, params: PairParams) -> LanguageModel:
    """Load a pickled model, unless this process still has one of the same pickle.

    Raises InputError if its folder has changed since.
    """
    key = name, path, params.model_dump_json()
    folder = ModelFolder(path, weights=params.slm_weights)
    model = _RELOADED.get(key) or load_model(name, folder, params)
    if model.digest != digest:
        raise InputError(f"{path}: changed during the run: digest {model.digest}, not {digest}")
    _RELOADED[key] = model
    return model


class Text(NamedTuple):
    """The token ids of a text. The ids from `first` on are predicted."""

    ids: Sequence[int]
    first: int


class Predicted(NamedTuple):
    """At most `ROWS` predicted positions of a batch, in the order of its texts."""

    hidden_CH: Tensor
    logits_CV: Tensor
    logprob_CV: Tensor
    given_C: Tensor  # the text's ids at these positions


def length_buckets(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Group indices, longest first, into batches of width x rows <= `batch_tokens`."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def predict(
    model: LanguageModel, vocabulary: Vocabulary, texts: Sequence[Text]
) -> Iterator[Predicted]:
    """Run one forward over `texts` (teacher forcing). Yields `ROWS` positions at a time.

    Raises InputError for logits that are not finite.
    """
    read = [torch.tensor(text.ids[:-1]) for text in texts]
    ids_BT = pad_sequence(read, batch_first=True).to(model.device)
    mask_BT = pad_sequence([*map(torch.ones_like, read)], batch_first=True).to(model.device)
    hidden_BTH = model.last_hidden(input_ids=ids_BT, attention_mask=mask_BT, use_cache=False)
    parts = zip(hidden_BTH, texts, strict=True)
    hidden_NH = torch.cat([row_TH[first - 1 : len(ids) - 1] for row_TH, (ids, first) in parts])
    given = [token for ids, first in texts for token in ids[first:]]
    given_N = torch.tensor(given, device=model.device)
    rows = ROWS if model.device.type == "cuda" else max(1, min(ROWS, KEPT // vocabulary.size))
    for hidden_CH, given_C in zip(hidden_NH.split(rows), given_N.split(rows), strict=True):
        logits_CV = vocabulary.choices(model.logits(hidden_CH))
        if not logits_CV.amax(-1).isfinite().all():
            expected = "expected another pair.dtype"
            raise InputError(f"{model.path}: logits that are not finite, {expected}")
        yield Predicted(hidden_CH, logits_CV, logits_CV.log_softmax(-1), given_C)
