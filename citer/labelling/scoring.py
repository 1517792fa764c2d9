"""Score the problems that a half of the token table lacks."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from citer.config.params import PairParams, ScoreParams
from citer.data.problems import Problem
from citer.data.prompts import Encoded
from citer.data.tokens import half_schema, keep_fitting, shard_name
from citer.executors.base import Executor
from citer.executors.choose import write_tables
from citer.executors.workers import WorkerParams
from citer.labelling.teacher import half, score
from citer.models.folder import Carded, PairFolder
from citer.models.outlined import open_model
from citer.models.pair import LanguageModel
from citer.models.room import check_examples
from citer.models.router import FEATURE
from citer.models.vocabulary import Vocabulary
from citer.progress import progress
from citer.storage.code import code_digest

Name = Literal["slm", "llm"]


class Scored(NamedTuple):
    """Numbers of problems: with rows already in the table, and newly scored."""

    kept: int
    added: int


def score_half(
    name: Name,
    folders: PairFolder,
    problems: Sequence[Problem],
    output: Path,
    params: ScoreParams,
    placement: PairParams,
    workers: WorkerParams,
) -> Scored:
    """Bring the shards of model `name` in `output` up to date.

    Loads the model only if rows are missing. Raises InputError if a problem exceeds its context.
    """
    model = getattr(folders, name)
    examples = folders.prompts.encode_all(problems)
    check_examples(examples, model.context)
    metadata = half_metadata(name, folders, placement.dtype)
    missing = keep_fitting(output, examples, metadata)
    if missing:
        opened = open_model(name, model, placement, workers)
        _write_shards(name, *opened, folders.vocabulary, missing, output, params, metadata)
    return Scored(len(examples) - len(missing), len(missing))


def half_metadata(name: Name, folders: PairFolder, dtype: str) -> dict[str, Any]:
    """Return the identity of a half. `vocab_size` counts the ids that both models have."""
    model = getattr(folders, name)
    metadata = {
        name: {"id": model.path.as_posix(), "digest": model.digest},
        "code": code_digest(f"score_{name}"),
        "dtype": dtype,
        "tokenizer": folders.tokenizer_digest,
        "template": folders.prompts.digest,
        "vocab_size": folders.vocabulary.size,
    }
    if name == "slm":
        metadata |= {"feature": FEATURE, "hidden_size": model.config.hidden_size}
    return metadata


def _write_shards(
    name: Name,
    model: LanguageModel | Carded,
    executor: Executor,
    vocabulary: Vocabulary,
    examples: Mapping[str, Encoded],
    folder: Path,
    params: ScoreParams,
    metadata: Mapping[str, Any],
) -> None:
    job = partial(score, half(model, vocabulary), batch_tokens=params.batch_tokens)
    shards = _in_shards(examples, params.shard_problems)
    paths = {folder / shard_name(shard): shard for shard in shards}
    total = sum(len(example.reference_ids) for example in examples.values())
    with progress(f"score {name}", total, "tokens") as advance:
        write_tables(executor, job, paths, half_schema(metadata), metadata, advance)


def _in_shards(examples: Mapping[str, Encoded], size: int) -> Iterator[dict[str, Encoded]]:
    items = list(examples.items())
    for start in range(0, len(items), size):
        yield dict(items[start : start + size])
