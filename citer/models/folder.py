"""Model folders before their weights are loaded: a single model, and two models that form a pair.

An object reads each file at most once, at the first use of a value, and caches it. A stage makes
its objects once and passes them on. Only a new object sees that a folder has changed.
"""

import json
from collections.abc import Callable
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, PositiveInt
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from citer.data.prompts import PlainPrompts, PromptFormat, probes
from citer.errors import InputError, reading
from citer.io import digest, read_as
from citer.models.tokenizer import load_tokenizer, tokenizer_parts
from citer.models.vocabulary import Vocabulary
from citer.models.weights import check_tensors, tensor_shapes, weight_files

# Decoders that cache only plain keys and values per position, so that a cache can be cut anywhere.
ModelType = Literal["llama", "mistral", "qwen2", "qwen3"]
MakePrompts = Callable[[PreTrainedTokenizerFast, int], PromptFormat]  # (tokenizer, EOS id)


class EosSetting(BaseModel):
    """The EOS ids, as both files store them."""

    eos_token_id: int | list[int] | None = None

    @property
    def eos_ids(self) -> tuple[int, ...]:
        setting = self.eos_token_id
        ids = setting if isinstance(setting, list) else [] if setting is None else [setting]
        return tuple(dict.fromkeys(ids))


class Config(EosSetting):
    """Fields that citer needs or refuses. transformers would replace missing ones by defaults."""

    model_type: ModelType
    vocab_size: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt | None = None
    max_position_embeddings: PositiveInt
    quantization_config: None = None  # refused: packing and cost expect plain weights


class ModelFolder:
    """A Hugging Face model folder. Every property raises InputError if its file is not usable."""

    def __init__(self, path: Path, make_prompts: MakePrompts = PlainPrompts) -> None:
        self.path = path
        self.make_prompts = make_prompts

    def __str__(self) -> str:
        return str(self.path)

    @cached_property
    def config(self) -> Config:
        """The checked fields of config.json."""
        path = self.path / "config.json"
        if not path.is_file():
            raise InputError(f"{self}: no config.json, expected a Hugging Face model folder")
        _check_files(self.path)
        return read_as(path, Config)

    @property
    def context(self) -> int:
        """The largest number of positions of a sequence."""
        return self.config.max_position_embeddings

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """The ids that end an answer, from generation_config.json or else config.json."""
        path = self.path / "generation_config.json"
        ids = read_as(path, EosSetting).eos_ids if path.is_file() else ()
        if ids := ids or self.config.eos_ids:
            return ids
        raise InputError(f"{self}: no eos_token_id in generation_config.json or config.json")

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        return load_tokenizer(self.path, self.config.vocab_size)

    @cached_property
    def tokenizer_parts(self) -> dict[str, Any]:
        return tokenizer_parts(self.tokenizer, self.eos_ids)

    @cached_property
    def tokenizer_digest(self) -> str:
        return digest(json.dumps(self.tokenizer_parts, sort_keys=True))

    @cached_property
    def prompts(self) -> PromptFormat:
        """The format of prompts and references; the first EOS id ends a reference."""
        return self.make_prompts(self.tokenizer, self.eos_ids[0])

    @cached_property
    def weight_files(self) -> list[Path]:
        return weight_files(self.path)

    @cached_property
    def shapes(self) -> dict[str, list[int]]:
        """The shape of every stored tensor, from the files' headers."""
        return dict(chain.from_iterable(tensor_shapes(f).items() for f in self.weight_files))

    @cached_property
    def digest(self) -> str:
        """The model's identity: a digest of configuration and weights."""
        return digest(self.path / "config.json", *self.weight_files)

    def check(self) -> None:
        """Raise InputError if the engine cannot run this model. Reads no weight."""
        size = self.config.vocab_size
        if beyond := [end for end in self.eos_ids if not 0 <= end < size]:
            expected = f"expected one below vocab_size {size}"
            raise InputError(f"{self}: eos_token_id: {beyond[0]}: {expected}")
        shapes, network = self.shapes, outline(self.path)
        _check_cache(self.path, network.config)
        check_tensors(self.path, network, shapes)


class PairFolder:
    """The folders of an SLM and an LLM that form a pair, checked when the object is made.

    Reads configurations, tokenizers and weight headers, but no weights. Raises InputError with both
    folders and the first difference, or if both hold the same model.
    """

    def __init__(self, slm: Path, llm: Path, make_prompts: MakePrompts = PlainPrompts) -> None:
        self.slm = ModelFolder(slm, make_prompts)
        self.llm = ModelFolder(llm, make_prompts)
        self.slm.check()
        self.llm.check()
        self._check_weights()
        self._check_eos()
        self._check_tokenizers()
        self._check_prompts()

    def __str__(self) -> str:
        return f"{self.slm} and {self.llm}"

    @property
    def context(self) -> int:
        """The smaller context of the two models, in tokens."""
        return min(self.slm.context, self.llm.context)

    @property
    def vocabulary(self) -> Vocabulary:
        """The ids that both models have. Two folders may pad the same vocabulary to two sizes."""
        size = min(self.slm.config.vocab_size, self.llm.config.vocab_size)
        return Vocabulary(size, self.slm.eos_ids)

    @property
    def tokenizer_digest(self) -> str:
        return self.slm.tokenizer_digest

    @property
    def prompts(self) -> PromptFormat:
        """The format of both models' prompts."""
        return self.slm.prompts

    def _check_weights(self) -> None:
        if any(map(Path.samefile, self.slm.weight_files, self.llm.weight_files)):
            raise InputError(f"{self}: the same weights, expected two models")

    def _check_eos(self) -> None:
        if set(self.slm.eos_ids) != set(self.llm.eos_ids):
            eos = f"{list(self.slm.eos_ids)} and {list(self.llm.eos_ids)}"
            raise InputError(f"{self}: different EOS ids: {eos}")

    def _check_tokenizers(self) -> None:
        slm, llm = self.slm.tokenizer_parts, self.llm.tokenizer_parts
        for part in slm | llm:
            if slm.get(part) != llm.get(part):
                raise InputError(f"{self}: different tokenizers: their `{part}` differ")

    def _check_prompts(self) -> None:
        """Compare the ids of a problem of each task.

        Equal tokenizers are not enough: a format may read settings that `tokenizer_parts` omits.
        """
        llm_prompts = self.llm.make_prompts(self.llm.tokenizer, self.slm.eos_ids[0])
        if llm_prompts.digest != self.prompts.digest:
            digests = f"{self.prompts.digest} and {llm_prompts.digest}"
            raise InputError(f"{self}: different prompt formats: their digests are {digests}")
        for problem in probes():
            pairs = zip(self.prompts.encode(problem), llm_prompts.encode(problem), strict=True)
            for name, (slm, llm) in zip(("prompt", "reference"), pairs, strict=True):
                if slm != llm:
                    raise InputError(f"{self}: {_difference(f'{problem.task} {name}', slm, llm)}")


def _difference(name: str, slm: list[int], llm: list[int]) -> str:
    """Describe the first position in which two different lists of ids differ."""
    shorter = min(len(slm), len(llm))
    place = next((n for n in range(shorter) if slm[n] != llm[n]), shorter)
    ids = (str(ids[place]) if place < len(ids) else "none" for ids in (slm, llm))
    return f"different ids for a {name}: at position {place} {' and '.join(ids)}"


def _check_files(path: Path) -> None:
    """Raise InputError for a FIFO or a device, which might never end, and for a broken link."""
    for file in path.iterdir():
        if not file.is_dir():
            with reading(file):
                file.stat()


def outline(path: Path) -> PreTrainedModel:
    """Build the model that the configurations describe, without weights."""
    try:
        if (path / "generation_config.json").is_file():
            GenerationConfig.from_pretrained(path, local_files_only=True)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(
                AutoConfig.from_pretrained(path, local_files_only=True)
            )
    except Exception as error:  # a wrong configuration may raise anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InputError(f"{path}: no usable model: {reason}") from error


def _check_cache(path: Path, config: PreTrainedConfig) -> None:
    """Raise InputError for a cache that cannot be cut, or positions that depend on the batch."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or _slides(config):
        raise InputError(f"{path}: a sliding-window cache cannot be cut, expected full attention")
    rope = config.rope_parameters["rope_type"]
    if rope in ("dynamic", "longrope"):
        raise InputError(
            f"{path}: rope_type {rope!r} depends on a batch's longest row, expected another"
        )


def _slides(config: PreTrainedConfig) -> bool:
    """Return whether attention has a sliding window. Qwen2 can switch it off, Mistral cannot."""
    window = getattr(config, "sliding_window", None)
    return bool(window and getattr(config, "use_sliding_window", True))
