"""A model's folder, before any weight is read: is it usable, whose is it, what are its tokens."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, Field, PositiveInt
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from citer.data.prompts import token_ids
from citer.errors import InputError, reading
from citer.io import digest, read_as

# Decoders whose whole cache is plain keys and values a position, so that it can be cut anywhere.
ModelType = Literal["llama", "mistral", "qwen2", "qwen3"]
DERIVED = "rotary_emb.inv_freq"  # which old checkpoints hold, and configurations tell
ROUND_TRIP = "Problem: (A) 3 + 14 = 17.\nSo the answer is \\boxed{17}."


class Config(BaseModel):
    """What config.json must say itself: transformers has a default for what it leaves out."""

    model_type: ModelType
    vocab_size: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt | None = None
    max_position_embeddings: PositiveInt
    quantization_config: None = None  # weights are packed, and their bytes counted, as they are


class Ends(BaseModel):
    """Of generation_config.json or config.json."""

    eos_token_id: int | list[int] | None = None


class Index(BaseModel):
    """Which shard holds a weight."""

    weight_map: Annotated[dict[str, str], Field(min_length=1)]


def check_pair(slm: Path, llm: Path) -> None:
    """Cheap: configurations and tokenizers only. Vocabularies may be padded apart.

    Raises InputError naming both folders and what differs, or that nothing does.
    """
    check_model(slm)
    check_model(llm)
    if any(map(Path.samefile, weight_files(slm), weight_files(llm))):
        raise InputError(f"{slm} and {llm}: the same weights, expected two models")
    if set(eos_token_ids(slm)) != set(eos_token_ids(llm)):
        ends = f"{list(eos_token_ids(slm))} and {list(eos_token_ids(llm))}"
        raise InputError(f"{slm} and {llm}: not one EOS: {ends}")
    ours, theirs = tokenizer_parts(slm), tokenizer_parts(llm)
    for part in ours | theirs:
        if ours.get(part) != theirs.get(part):
            raise InputError(f"{slm} and {llm}: not one tokenizer: their `{part}` differ")


def check_model(path: Path) -> None:
    """Raise InputError where `path` holds no model that the engine can run."""
    if not (path / "config.json").is_file():
        raise InputError(f"{path}: no config.json, expected a Hugging Face model folder")
    _check_files(path)
    size = read_as(path / "config.json", Config).vocab_size
    if beyond := [end for end in eos_token_ids(path) if not 0 <= end < size]:
        raise InputError(f"{path}: eos_token_id: {beyond[0]}: expected one below vocab_size {size}")
    found = {name: shape for file in weight_files(path) for name, shape in _shapes(file).items()}
    network = _outline(path)
    config = network.config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or _slides(config):
        raise InputError(f"{path}: a sliding-window cache cannot be cut, expected full attention")
    rope = config.rope_parameters["rope_type"]
    if rope in ("dynamic", "longrope"):
        raise InputError(
            f"{path}: rope_type {rope!r} depends on a batch's longest row, expected another"
        )
    _check_tensors(path, network, found)


def _check_files(path: Path) -> None:
    """Raise InputError for a FIFO or a device, which might never end, and for a broken link."""
    for file in path.iterdir():
        if not file.is_dir():
            with reading(file):
                file.stat()


def _shapes(file: Path) -> dict[str, list[int]]:
    """Of all tensors, from the header alone, which opening holds against the file's length."""
    try:
        with reading(file), safe_open(file, "pt") as tensors:
            return {name: tensors.get_slice(name).get_shape() for name in sorted(tensors.keys())}
    except SafetensorError as error:
        raise InputError(f"{file}: not whole safetensors weights: {error}") from None


def _outline(path: Path) -> PreTrainedModel:
    """The model that the configurations describe, without weights."""
    try:
        if (path / "generation_config.json").is_file():
            GenerationConfig.from_pretrained(path, local_files_only=True)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(
                AutoConfig.from_pretrained(path, local_files_only=True)
            )
    except Exception as error:  # a wrong configuration ends anywhere
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InputError(f"{path}: no usable model: {said}") from error


def _check_tensors(path: Path, network: PreTrainedModel, found: Mapping[str, list[int]]) -> None:
    """Refuse what transformers would make up or leave out; the first difference is told."""
    wrong = list(_misfits(network, found))
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise InputError(f"{path}: {wrong[0]}{more}")


def _misfits(network: PreTrainedModel, found: Mapping[str, list[int]]) -> Iterator[str]:
    expected = {name: list(tensor.shape) for name, tensor in network.state_dict().items()}
    for name in sorted(expected.keys() | found):
        if name not in found:
            if name not in network.all_tied_weights_keys:
                yield f"{name}: no such tensor, config.json expects it"
        elif name not in expected:
            if not name.endswith(DERIVED):
                yield f"{name}: a tensor too many, config.json expects none such"
        elif found[name] != expected[name]:
            shape = f"its shape is {found[name]}"
            yield f"{name}: {shape}, config.json expects {expected[name]}"


def _slides(config: PreTrainedConfig) -> bool:
    """Mistral has a window and no switch for it; Qwen2's applies only where it is switched on."""
    window = getattr(config, "sliding_window", None)
    return bool(window and getattr(config, "use_sliding_window", True))


def weight_files(path: Path) -> list[Path]:
    """The safetensors files of a model folder, whole or in shards, whether there or not."""
    whole, index = path / "model.safetensors", path / "model.safetensors.index.json"
    if index.is_file() and not whole.is_file():  # with both there, transformers reads the whole one
        return sorted({path / name for name in read_as(index, Index).weight_map.values()})
    return [whole]


def context_length(path: Path) -> int:
    """The positions that a model was made for."""
    return read_as(path / "config.json", Config).max_position_embeddings


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
    _check_files(path)
    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
        back = tokenizer.decode(token_ids(ROUND_TRIP, tokenizer, begins=False))
    except Exception as error:  # tokenizers raises nothing narrower
        raise InputError(f"{path}: no usable tokenizer: {error!r}") from error
    if back != ROUND_TRIP:
        raise InputError(f"{path}: the tokenizer turns {ROUND_TRIP!r} into {back!r}")
    _check_ids(path, tokenizer)
    return tokenizer


def _check_ids(path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """Raise InputError where a text could get an id that the model has no embedding for."""
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    ids = {token: n for token, n in tokenizer.get_vocab().items() if token not in special}
    last = max(ids, key=ids.__getitem__)
    if ids[last] >= (size := read_as(path / "config.json", Config).vocab_size):
        told = f"{last!r} has the id {ids[last]}, expected one below vocab_size {size}"
        raise InputError(f"{path}/tokenizer.json: {told}")


def tokenizer_parts(path: Path) -> dict[str, Any]:
    """What decides which ids a text gets, and which end an answer.

    Truncation and padding are not among it: encoding asks for neither. `prompt` and `eos` are there
    only where they say more than the rest, so that other tokenizers keep their digest.
    """
    tokenizer, eos_ids = load_tokenizer(path), eos_token_ids(path)
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    parts = {
        part: content[part] for part in ("normalizer", "pre_tokenizer", "model", "added_tokens")
    }
    plain, prompt = (token_ids(ROUND_TRIP, tokenizer, begins=begins) for begins in (False, True))
    if prompt != plain:  # by the post-processor, which tokenizer_config.json may change
        parts["prompt"] = prompt
    if len(eos_ids) > 1:
        parts["eos"] = sorted(eos_ids)
    return parts


def tokenizer_digest(path: Path) -> str:
    return digest(json.dumps(tokenizer_parts(path), sort_keys=True))


def eos_token_ids(path: Path) -> tuple[int, ...]:
    """The ids that end an answer: generation_config.json's, else config.json's."""
    for name in ("generation_config.json", "config.json"):
        if not (path / name).is_file():
            continue
        found = read_as(path / name, Ends).eos_token_id
        if found is not None and found != []:
            return tuple(dict.fromkeys(found)) if isinstance(found, list) else (found,)
    raise InputError(f"{path}: no eos_token_id in generation_config.json or config.json")
