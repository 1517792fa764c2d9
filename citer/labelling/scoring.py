"""Each half of the token table, brought up to date: only what is missing is scored."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from citer.closure import code_digest
from citer.config import PairParams, ScoreParams
from citer.data.problems import Problem
from citer.data.prompts import TEMPLATE_HASH, Encoded, check_context, encode_all
from citer.data.tokens import half_schema, keep_fitting, shard_name
from citer.executor import Advance, InLine, write_tables
from citer.io import read_json
from citer.labelling.teacher import score
from citer.models.features import FEATURE
from citer.models.folder import (
    check_pair,
    context_length,
    eos_token_ids,
    load_tokenizer,
    model_digest,
    tokenizer_digest,
)
from citer.models.pair import LanguageModel, load_model
from citer.models.vocabulary import Vocabulary
from citer.progress import progress


class Scored(NamedTuple):
    """Problems whose rows were there already, and problems scored anew."""

    kept: int
    added: int


def score_half(
    name: str,
    pair: Mapping[str, Path],
    problems: Sequence[Problem],
    folder: Path,
    params: ScoreParams,
    placement: PairParams,
) -> Scored:
    """Bring a half's shards in `folder` up to date; the model is loaded only if some are missing.

    `name` is the half's model, of `pair` = {"slm": folder, "llm": folder}. Raises InputError
    where the two are no pair.
    """
    check_pair(**pair)
    path, eos_ids = pair[name], eos_token_ids(pair["slm"])  # both halves end with the SLM's EOS
    examples = encode_all(problems, load_tokenizer(path), eos_ids[0])
    named = ((f"problem {key}", example) for key, example in examples.items())
    check_context(named, context_length(path))
    metadata = half_metadata(name, pair, placement.dtype)
    missing = keep_fitting(folder, examples, metadata)
    if missing:
        model = load_model(name, path, placement)
        vocabulary = Vocabulary(metadata["vocab_size"], eos_ids)
        _write_shards(model, vocabulary, missing, folder, params, metadata)
    return Scored(len(examples) - len(missing), len(missing))


def half_metadata(name: str, pair: Mapping[str, Path], dtype: str) -> dict[str, Any]:
    """A half's identity. `vocab_size`: the ids that both models can write."""
    path = pair[name]
    configs = {model: read_json(folder / "config.json") for model, folder in pair.items()}
    metadata = {
        name: {"id": path.as_posix(), "digest": model_digest(path)},
        "code": code_digest(f"score_{name}"),
        "dtype": dtype,
        "tokenizer": tokenizer_digest(path),
        "template": TEMPLATE_HASH,
        "vocab_size": min(config["vocab_size"] for config in configs.values()),
    }
    if name == "slm":
        metadata |= {"feature": FEATURE, "hidden_size": configs["slm"]["hidden_size"]}
    return metadata


def _write_shards(
    model: LanguageModel,
    vocabulary: Vocabulary,
    examples: Mapping[str, Encoded],
    folder: Path,
    params: ScoreParams,
    metadata: Mapping[str, Any],
) -> None:
    work = partial(_score, model, vocabulary, params.batch_tokens)
    shards = _in_shards(examples, params.shard_problems)
    paths = {folder / shard_name(shard): shard for shard in shards}
    total = sum(len(example.reference_ids) for example in examples.values())
    with progress(f"score {model.name}", total, "tokens") as advance:
        # Forwards over whole texts are large enough to multithread: no fork is faster.
        write_tables(InLine(), work, paths, half_schema(metadata), metadata, advance)


def _score(
    model: LanguageModel,
    vocabulary: Vocabulary,
    batch_tokens: int,
    examples: Mapping[str, Encoded],
    *,
    advance: Advance,
) -> pa.Table:
    return score(model, examples, batch_tokens, vocabulary, advance)


def _in_shards(examples: Mapping[str, Encoded], size: int) -> Iterator[dict[str, Encoded]]:
    items = list(examples.items())
    for start in range(0, len(items), size):
        yield dict(items[start : start + size])
