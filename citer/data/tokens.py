"""The token table on disk: two folders of Parquet shards, the SLM's half and the LLM's half.

The metadata of a shard identifies the model that scored it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from citer.data.prompts import Encoded
from citer.errors import InputError
from citer.storage.schema import LLM_TOKEN, TOP_LOGPROBS, VERSION, slm_token
from citer.storage.tables import digest, read_table, remove, table_metadata

SHARED = ("dtype", "tokenizer", "template", "vocab_size")
SCALARS = ("slm_entropy", "slm_margin")
KEY = ["problem_id", "position", "gt_token"]


def shard_name(examples: Mapping[str, Encoded]) -> str:
    """Return a digest of a shard's problems and the ids of their prompts and references."""
    return digest(*(json.dumps([key, *ids]) for key, ids in examples.items())) + ".parquet"


def half_schema(metadata: Mapping[str, Any]) -> pa.Schema:
    return slm_token(metadata["hidden_size"]) if "slm" in metadata else LLM_TOKEN


def keep_fitting(
    folder: Path, wanted: Mapping[str, Encoded], metadata: Mapping[str, Any]
) -> dict[str, Encoded]:
    """Keep the complete shards of `wanted` with this metadata, and remove all other files.

    Returns the problems that are in no shard.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = dict(wanted)
    for path in sorted(folder.iterdir()):
        keys = _problems_of(path, metadata)
        if all(key in missing for key in keys) and path.name == shard_name(
            {key: wanted[key] for key in keys}
        ):
            for key in keys:
                del missing[key]
        else:
            remove(path)
    return missing


def _problems_of(path: Path, metadata: Mapping[str, Any]) -> list[str]:
    """List a shard's problems. The list is empty for a damaged file or other metadata."""
    try:
        table = read_table(path, half_schema(metadata), ["problem_id"])
        fits = table_metadata(path) == {"schema_version": VERSION, **metadata}
    except InputError:
        return []
    return table["problem_id"].unique().to_pylist() if fits else []


def read_identity(slm: Path, llm: Path) -> dict[str, Any]:
    """Return the identity of the pair that scored both halves, as a router's card has it.

    Raises InputError if a half is missing, or if the halves differ in a field of `SHARED`.
    """
    slm_half, llm_half = _half_metadata(slm), _half_metadata(llm)
    for field in SHARED:
        if slm_half[field] != llm_half[field]:
            values = f"{slm_half[field]!r} and {llm_half[field]!r}"
            raise InputError(f"{slm} and {llm}: scored with different {field}: {values}")
    return {
        field: value
        for field, value in (slm_half | llm_half).items()
        if field not in ("schema_version", "code", "hidden_size", "vocab_size")
    }


def _half_metadata(folder: Path) -> dict[str, Any]:
    """Return the metadata of the shards of a folder, which `keep_fitting` keeps equal."""
    return table_metadata(_shards(folder)[0])


def _shards(folder: Path) -> list[Path]:
    if shards := sorted(folder.glob("*.parquet")):
        return shards
    raise InputError(f"{folder}: no shards, expected scored tokens")


def read_tokens(slm: Path, llm: Path, examples: Mapping[str, Encoded]) -> pa.Table:
    """Join both halves without the hidden states, in the order of `examples` and position.

    Raises InputError if the references in a half are not exactly those of `examples`.
    """
    slm_half = _read_columns(slm, ["slm_token", "slm_logprob_gt"], examples)
    llm_half = _read_columns(llm, ["llm_token", "llm_logprob_gt"], examples)
    halves = slm_half, llm_half
    return pa.table({name: half[name] for half in halves for name in half.column_names})


def _read_columns(folder: Path, columns: list[str], examples: Mapping[str, Encoded]) -> pa.Table:
    schema, expected = half_schema(_half_metadata(folder)), reference_rows(examples)
    table = pa.concat_tables(read_table(path, schema, KEY + columns) for path in _shards(folder))
    key_N = _keys(table, expected["problem_id"].unique())
    table = table.take(np.argsort(key_N)).combine_chunks()
    if not table.select(KEY).equals(expected):
        raise InputError(f"{folder}: not the references of the current problems: score them again")
    return table


def reference_rows(examples: Mapping[str, Encoded]) -> pa.Table:
    """Return problem_id, position and gt_token of every reference token, in order."""
    references = [example.reference_ids for example in examples.values()]
    lists = pa.array(references, pa.list_(pa.int32()))
    return pa.table(
        {
            "problem_id": pa.array(list(examples)).take(pc.list_parent_indices(lists)),
            "position": np.concatenate([np.arange(len(reference)) for reference in references]),
            "gt_token": lists.flatten(),
        },
        schema=pa.schema([LLM_TOKEN.field(name) for name in KEY]),
    )


def read_features(folder: Path, rows: pa.Table) -> np.ndarray:
    """Return feature_NF (float16, see `citer.models.router`) of N `rows` of a preference table.

    Holds one shard in memory at a time. Raises InputError if a row is in no shard.
    """
    metadata = _half_metadata(folder)
    problem_ids = rows["problem_id"].unique()
    key_N = _keys(rows, problem_ids)
    width = metadata["hidden_size"] + len(SCALARS) + TOP_LOGPROBS
    feature_NF = np.empty((len(key_N), width), np.float16)
    count = 0
    columns = ["problem_id", "position", "slm_hidden", *SCALARS, "slm_top_logprobs"]
    for path in _shards(folder):
        for batch in read_table(path, half_schema(metadata), columns).to_batches():
            states = np.frombuffer(batch["slm_hidden"].buffers()[1], np.float16)
            start = batch["slm_hidden"].offset
            state_MH = states.reshape(-1, metadata["hidden_size"])[start : start + len(batch)]
            scalar_M2 = np.stack([batch[name].to_numpy() for name in SCALARS], 1)
            top_MK = batch["slm_top_logprobs"].flatten().to_numpy().reshape(len(batch), -1)
            batch_MF = np.concatenate([state_MH, scalar_M2, top_MK], 1, dtype=np.float16)
            batch_key_M = _keys(batch, problem_ids)
            target_M = np.searchsorted(key_N, batch_key_M).clip(max=len(key_N) - 1)
            labelled_M = key_N[target_M] == batch_key_M
            feature_NF[target_M[labelled_M]] = batch_MF[labelled_M]
            count += int(labelled_M.sum())
    if count != len(key_N):
        raise InputError(f"{folder}: states of {count} labelled tokens, expected {len(key_N)}")
    return feature_NF


def _keys(rows: pa.Table | pa.RecordBatch, problem_ids: pa.Array) -> np.ndarray:
    """Return an int64 per row, ascending by problem and position, negative for other problems."""
    rank_N = pc.fill_null(pc.index_in(rows["problem_id"], problem_ids), -1).to_numpy()
    return rank_N.astype(np.int64) * 2**32 + rows["position"].to_numpy()
