"""The token table on disk: a folder of Parquet shards for each half, the SLM's and the LLM's.

A shard's metadata says which model scored it, and what both halves must have in common.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from citer.data.prompts import Encoded
from citer.errors import InputError
from citer.io import digest, read_table, remove, table_metadata
from citer.schema import LLM_TOKEN, TOP_LOGPROBS, VERSION, slm_token

SHARED = ("dtype", "tokenizer", "template", "vocab_size")
SCALARS = ("slm_entropy", "slm_margin")
KEY = ["problem_id", "position", "gt_token"]
KEY_SCHEMA = pa.schema([LLM_TOKEN.field(name) for name in KEY])


def shard_name(examples: Mapping[str, Encoded]) -> str:
    """By content: the problems of a shard, with the ids of their prompts and references."""
    return digest(*(json.dumps([key, *ids]) for key, ids in examples.items())) + ".parquet"


def half_schema(metadata: Mapping[str, Any]) -> pa.Schema:
    return slm_token(metadata["hidden_size"]) if "slm" in metadata else LLM_TOKEN


def keep_fitting(
    folder: Path, wanted: Mapping[str, Encoded], metadata: Mapping[str, Any]
) -> dict[str, Encoded]:
    """Remove whatever is no whole shard of `wanted` under `metadata`; return what is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = dict(wanted)
    for path in sorted(folder.iterdir()):
        held = _problems_of(path, metadata)
        if all(key in missing for key in held) and path.name == shard_name(
            {key: wanted[key] for key in held}
        ):
            for key in held:
                del missing[key]
        else:
            remove(path)
    return missing


def _problems_of(path: Path, metadata: Mapping[str, Any]) -> list[str]:
    """The problems that a shard holds; none where it is torn, foreign or of another model."""
    try:
        table = read_table(path, half_schema(metadata), ["problem_id"])
        fits = table_metadata(path) == {"schema_version": VERSION, **metadata}
    except InputError:
        return []
    return table["problem_id"].unique().to_pylist() if fits else []


def read_identity(slm: Path, llm: Path) -> dict[str, Any]:
    """The pair that scored the two halves, in the fields of a router's card.

    Raises InputError where a half is not there or the two do not belong together.
    """
    ours, theirs = _half_metadata(slm), _half_metadata(llm)
    for field in SHARED:
        if ours[field] != theirs[field]:
            both = f"{ours[field]!r} and {theirs[field]!r}"
            raise InputError(f"{slm} and {llm}: not scored alike: their {field} are {both}")
    return {
        field: value
        for field, value in (ours | theirs).items()
        if field not in ("schema_version", "code", "hidden_size", "vocab_size")
    }


def _half_metadata(folder: Path) -> dict[str, Any]:
    """What all the shards of a folder say of themselves."""
    shards = _shards(folder)
    first = table_metadata(shards[0])
    for path in shards[1:]:
        if table_metadata(path) != first:
            raise InputError(f"{path}: not scored like {shards[0].name}: score {folder} again")
    return first


def _shards(folder: Path) -> list[Path]:
    if shards := sorted(folder.glob("*.parquet")):
        return shards
    raise InputError(f"{folder}: no shards, expected scored tokens")


def read_tokens(slm: Path, llm: Path, examples: Mapping[str, Encoded]) -> pa.Table:
    """Join the light columns of both halves; rows in the order of `examples` and position.

    Columns: problem_id, position, gt_token, slm_token, slm_margin, llm_token, llm_margin. Raises
    InputError where a half does not hold just the references of `examples`.
    """
    ours = _read_light(slm, ["slm_token", "slm_margin"], examples)
    theirs = _read_light(llm, ["llm_token", "llm_margin"], examples)
    return pa.table({name: side[name] for side in (ours, theirs) for name in side.column_names})


def _read_light(folder: Path, columns: list[str], examples: Mapping[str, Encoded]) -> pa.Table:
    schema, expected = half_schema(_half_metadata(folder)), reference_rows(examples)
    table = pa.concat_tables(read_table(path, schema, KEY + columns) for path in _shards(folder))
    key_N = _keys(table, expected["problem_id"].unique())
    table = table.take(np.argsort(key_N)).combine_chunks()
    if not table.select(KEY).equals(expected):
        raise InputError(f"{folder}: not the references of the problems at hand: score them again")
    return table


def reference_rows(examples: Mapping[str, Encoded]) -> pa.Table:
    """problem_id, position and gt_token of every reference token, in order."""
    references = [example.reference_ids for example in examples.values()]
    lengths = [len(reference) for reference in references]
    owner_N = np.repeat(np.arange(len(references)), lengths)
    return pa.table(
        {
            "problem_id": pa.array(list(examples)).take(pa.array(owner_N)),
            "position": np.concatenate([np.arange(length) for length in lengths]),
            "gt_token": np.concatenate(references),
        },
        schema=KEY_SCHEMA,
    )


def read_features(folder: Path, rows: pa.Table) -> np.ndarray:
    """feature_NF (float16, see `citer.models.features`) of N `rows` (problem_id, position).

    The rows are sorted as labels are. One shard is in memory at a time. Raises InputError where a
    row is in no shard.
    """
    metadata = _half_metadata(folder)
    problem_ids = rows["problem_id"].unique()
    key_N = _keys(rows, problem_ids)
    assert np.all(np.diff(key_N) > 0), "rows in order"
    width = metadata["hidden_size"] + len(SCALARS) + TOP_LOGPROBS
    feature_NF = np.empty((len(key_N), width), np.float16)
    found = 0
    for shard_key_M, shard_MF in _read_states(folder, metadata, problem_ids):
        target_M = np.searchsorted(key_N, shard_key_M).clip(max=len(key_N) - 1)
        labelled_M = key_N[target_M] == shard_key_M
        feature_NF[target_M[labelled_M]] = shard_MF[labelled_M]
        found += int(labelled_M.sum())
    if found != len(key_N):
        raise InputError(f"{folder}: states of {found} labelled tokens, expected {len(key_N)}")
    return feature_NF


def _read_states(
    folder: Path, metadata: Mapping[str, Any], problem_ids: pa.Array
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    columns = ["problem_id", "position", "slm_hidden", *SCALARS, "slm_top_logprobs"]
    for path in _shards(folder):
        for batch in read_table(path, half_schema(metadata), columns).to_batches():
            states = np.frombuffer(batch["slm_hidden"].buffers()[1], np.float16)
            start = batch["slm_hidden"].offset
            state_MH = states.reshape(-1, metadata["hidden_size"])[start : start + len(batch)]
            scalar_M2 = np.stack([batch[name].to_numpy() for name in SCALARS], 1)
            top_MK = batch["slm_top_logprobs"].flatten().to_numpy().reshape(len(batch), -1)
            feature_MF = np.concatenate([state_MH, scalar_M2, top_MK], 1, dtype=np.float16)
            yield _keys(batch, problem_ids), feature_MF


def _keys(rows: pa.Table | pa.RecordBatch, problem_ids: pa.Array) -> np.ndarray:
    """One int64 a row, ascending with problem and position; negative for another problem's."""
    rank_N = pc.fill_null(pc.index_in(rows["problem_id"], problem_ids), -1).to_numpy()
    return rank_N.astype(np.int64) * 2**32 + rows["position"].to_numpy()
