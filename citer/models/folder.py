"""Model folders before their weights are loaded: a single model, and two models that form a pair.

An object reads each file at most once, at the first use of a value, and caches it. A stage makes
its objects once and passes them on. Only a new object sees that a folder has changed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from citer.config.pair import Weights
from citer.data.prompts import FORMATS, PromptFormat, PromptSettings, token_ids
from citer.errors import InputError, reading
from citer.models.families import Config, EosSetting, check_settings
from citer.models.router import FEATURE
from citer.models.tokenizer import ROUND_TRIP, load_tokenizer, named_eos_ids
from citer.models.vocabulary import Vocabulary
from citer.models.weights import (
    Index,
    Stored,
    bytes_read,
    check_quantiser,
    check_tensors,
    kept_digest,
    refuse_quantised,
    stored_tensors,
)
from citer.storage.tables import digest, read_as


class ModelCard(NamedTuple):
    """A model's sizes, its limits and its identity.

    weight_bytes: bytes of weights that one forward reads
    kv_bytes: bytes of keys and values that one position occupies
    context: largest number of positions of a sequence
    vocab_size: number of ids that the model has logits for, padding included
    path: the model's folder, by which error messages name it
    digest: of its configuration and weights
    """

    weight_bytes: int
    kv_bytes: int
    context: int
    vocab_size: int
    path: Path
    digest: str


class Carded(Protocol):
    """A model that has a card: loaded in this process, or elsewhere."""

    @property
    def card(self) -> ModelCard: ...


PLAIN = PromptSettings()


@dataclass(eq=False)
class ModelFolder:
    """A Hugging Face model folder. Every property raises InputError if its file is not usable."""

    path: Path
    settings: PromptSettings = PLAIN
    weights: Weights = "stored"

    def __str__(self) -> str:
        return str(self.path)

    @cached_property
    def config(self) -> Config:
        """The checked fields of config.json."""
        path = self.path / "config.json"
        if not path.is_file():
            raise InputError(f"{self}: no config.json, expected a Hugging Face model folder")
        for file in self.path.iterdir():
            if not file.is_dir():
                with reading(file):  # refuses a broken link, and what might never end
                    file.stat()
        return read_as(path, Config)

    @property
    def context(self) -> int:
        """The largest number of positions of a sequence."""
        return self.config.max_position_embeddings

    @property
    def quantised(self) -> bool:
        return self.config.quantization_config is not None

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """The ids that end an answer. The first one ends a reference."""
        return tuple(dict.fromkeys((self.prompts.eos_id, *self._listed_eos_ids)))

    @cached_property
    def _listed_eos_ids(self) -> list[int]:
        """The EOS ids of generation_config.json, config.json and the tokenizer, in this order."""
        path = self.path / "generation_config.json"
        generation = read_as(path, EosSetting).eos_ids if path.is_file() else ()
        named = named_eos_ids(self.tokenizer, self.config.vocab_size)
        if ids := list(dict.fromkeys((*generation, *self.config.eos_ids, *named))):
            return ids
        expected = "eos_token_id in generation_config.json or config.json"
        raise InputError(f"{self}: no EOS, expected {expected}")

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        return load_tokenizer(self.path, self.config.vocab_size)

    @cached_property
    def tokenizer_parts(self) -> dict[str, Any]:
        """Everything that decides which ids a text gets.

        `prompt` shows what the post-processor adds, which tokenizer_config.json may change.
        """
        content = json.loads(self.tokenizer.backend_tokenizer.to_str())
        names = ("normalizer", "pre_tokenizer", "model", "added_tokens")
        prompt = token_ids(ROUND_TRIP, self.tokenizer, begins=True)
        return {name: content[name] for name in names} | {"prompt": prompt}

    @cached_property
    def prompts(self) -> PromptFormat:
        """The format of prompts and references."""
        return self.prompts_after(self._listed_eos_ids)

    def prompts_after(self, eos_ids: Sequence[int]) -> PromptFormat:
        """Make the format of this folder's tokenizer with other EOS ids."""
        try:
            return FORMATS[self.settings.kind](self.settings, self.tokenizer, eos_ids)
        except InputError as error:
            raise InputError(f"{self}: {error}") from None

    @cached_property
    def weight_files(self) -> list[Path]:
        """The safetensors files. They may be missing."""
        single, index = (self.path / f"model.safetensors{end}" for end in ("", ".index.json"))
        if index.is_file() and not single.is_file():  # transformers prefers the single file
            return sorted({self.path / name for name in read_as(index, Index).weight_map.values()})
        return [single]

    @cached_property
    def stored(self) -> dict[str, Stored]:
        """Every stored tensor, from the files' headers."""
        return dict(chain.from_iterable(stored_tensors(f).items() for f in self.weight_files))

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes of stored weights that every forward reads (see `LanguageModel.weight_bytes`)."""
        sizes = {name: tensor.nbytes for name, tensor in self.stored.items()}
        return bytes_read(outline(self.path), sizes)

    @cached_property
    def digest(self) -> str:
        """The model's identity: a digest of configuration and weights, and their rounding."""
        stored = kept_digest(self.path / "config.json", *self.weight_files)
        return stored if self.weights == "stored" else f"{stored}-{self.weights}"

    def reach(self, dtype: str) -> Carded | None:
        """Return the model if a server runs it, and None if it is to be loaded here."""
        return None

    def check(self, *, may_be_quantised: bool = False) -> None:
        """Raise InputError if the engine cannot run this model. Reads no weight."""
        if self.quantised and not may_be_quantised:
            refuse_quantised(self.path)
        if (adapter := self.path / "adapter_config.json").exists():
            raise InputError(f"{adapter}: transformers would add it to the weights, expected none")
        self.check_ends()
        stored, network = self.stored, outline(self.path)
        if settings := self.config.quantization_config:
            check_quantiser(self.path, settings)
        check_tensors(self.path, network, stored, bool(settings))

    def check_ends(self) -> None:
        """Raise InputError for an EOS id outside of the vocabulary."""
        size = self.config.vocab_size
        if beyond := [end for end in self.eos_ids if not 0 <= end < size]:
            expected = f"expected one below vocab_size {size}"
            raise InputError(f"{self}: eos_token_id: {beyond[0]}: {expected}")


class PairFolder:
    """The folders of an SLM and an LLM, checked when the object is made. Reads no weights.

    Raises InputError with the first difference, or if both hold the same model.
    """

    def __init__(
        self, slm: Path | ModelFolder, llm: Path | ModelFolder, settings: PromptSettings = PLAIN
    ) -> None:
        self.slm = slm if isinstance(slm, ModelFolder) else ModelFolder(slm, settings)
        self.llm = llm if isinstance(llm, ModelFolder) else ModelFolder(llm, settings)
        self.slm.check()
        self.llm.check(may_be_quantised=True)
        if any(map(Path.samefile, self.slm.weight_files, self.llm.weight_files)):
            raise InputError(f"{self}: the same weights, expected two models")
        if part := differing_part(self.slm, self.llm):
            raise InputError(f"{self}: different tokenizers: their `{part}` differs")
        self._check_prompts()
        size = self.vocabulary.size
        if beyond := [number for number in self.eos_ids if number >= size]:
            expected = f"expected ids below {size}, the smaller vocabulary"
            raise InputError(f"{self}: EOS {', '.join(map(str, beyond))}: {expected}")

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
        return Vocabulary(size, self.eos_ids)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The EOS ids of both models, those of the SLM first."""
        return tuple(dict.fromkeys((*self.slm.eos_ids, *self.llm.eos_ids)))

    @property
    def tokenizer_digest(self) -> str:
        """A digest of what decides a text's ids, and of the ids that end an answer."""
        parts = {**self.slm.tokenizer_parts, "eos": sorted(self.eos_ids)}
        return digest(json.dumps(parts, sort_keys=True))

    def identity(self, dtype: str) -> dict[str, Any]:
        """Return the fields of a router's card that bind it to this pair, loaded in `dtype`."""
        slm, llm = (
            {"id": model.path.as_posix(), "digest": model.digest} for model in (self.slm, self.llm)
        )
        return {
            "feature": FEATURE,
            "slm": slm,
            "llm": llm,
            "dtype": dtype,
            "tokenizer": self.tokenizer_digest,
            "template": self.prompts.digest,
        }

    @property
    def prompts(self) -> PromptFormat:
        """The format of both models' prompts, made from the SLM's folder."""
        return self.slm.prompts

    def _check_prompts(self) -> None:
        """Compare the ids of a problem of each task in use.

        Equal tokenizers are not enough: a format may read settings that `tokenizer_parts` omits.
        """
        llm_prompts, size = self.llm.prompts_after(self.slm.eos_ids), self.vocabulary.size
        for problem in self.prompts.examples():
            slm, llm = self.prompts.encode(problem), llm_prompts.encode(problem)
            if slm != llm:
                part = "reference" if slm.prompt_ids == llm.prompt_ids else "prompt"
                found = f"different ids for a {problem.task} {part}"
                raise InputError(f"{self}: {found}, expected those of one prompt format")
            if (last := max(slm.prompt_ids)) >= size:
                token = self.slm.tokenizer.convert_ids_to_tokens(last)
                expected = f"expected one below {size}, the smaller vocabulary"
                raise InputError(f"{self}: {token!r} of a prompt has the id {last}, {expected}")


def differing_part(slm: ModelFolder, llm: ModelFolder) -> str | None:
    """Return the first part in which the tokenizers of two folders differ, or None."""
    one, other = slm.tokenizer_parts, llm.tokenizer_parts
    return next((part for part in one | other if one.get(part) != other.get(part)), None)


def outline(path: Path) -> PreTrainedModel:
    """Build the model that the configurations describe, without weights.

    Raises InputError if the engine cannot run it.
    """
    try:
        if (path / "generation_config.json").is_file():
            GenerationConfig.from_pretrained(path, local_files_only=True)
        config = AutoConfig.from_pretrained(path, local_files_only=True)
        check_settings(path, config)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config)
    except InputError:
        raise
    except Exception as error:  # a wrong configuration may raise anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InputError(f"{path}: no usable model: {reason}") from error
