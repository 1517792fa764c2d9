"""What the head `judge` learns from: labelled positions where the models write different tokens."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from citer.data.problems import first_id
from citer.data.prompts import Encoded
from citer.data.tokens import places, read_features
from citer.errors import InputError
from citer.executors.base import Executor, Unit
from citer.executors.choose import run_one
from citer.labelling.teacher import length_buckets
from citer.models.features import judge_features
from citer.models.forced import ROWS, Text, states
from citer.models.pair import LanguageModel, Pair
from citer.progress import Advance, progress
from citer.storage.schema import judged
from citer.storage.tables import read_table, table_metadata, write_table


def differing(tokens: pa.Table, labels: pa.Table) -> pa.Table:
    """Return problem_id, position, label and slm_token where the LLM writes another token."""
    here = tokens.take(places(tokens, labels))
    rows = labels.select(["problem_id", "position", "label"])
    rows = rows.append_column("slm_token", here["slm_token"])
    return rows.filter(pa.array(here["slm_token"].to_numpy() != here["llm_token"].to_numpy()))


def judged_rows(
    executor: Executor,
    pair: Pair,
    slm_tokens: Path,
    examples: Mapping[str, Encoded],
    tokens: pa.Table,
    labels: pa.Table,
    batch_tokens: int,
) -> pa.Table:
    """Return the rows that train the head `judge`, of the schema `judged`. Raises InputError."""
    rows = differing(tokens, labels)
    questions = len({first_id(key) for key in rows["problem_id"].to_pylist()})
    if questions < 2:  # one to train on, one held out
        differ = f"the models write different tokens in {questions} labelled questions"
        raise InputError(f"label.judge: {differ}, expected 2 or more, or false")
    job = partial(judged_features, pair, slm_tokens, examples, batch_tokens=batch_tokens)
    with progress("judge", len(rows["problem_id"].unique()), "references") as advance:
        feature_NF = run_one(executor, job, Unit("the rows of the head judge", rows), advance)
    schema, width = judged(feature_NF.shape[1]), 2 * feature_NF.shape[1]
    feature_N = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(rows), [None, pa.py_buffer(feature_NF)]
    )
    columns = [*(rows[name] for name in schema.names[:-1]), feature_N]
    return pa.table(columns, schema=schema)


def write_judged(path: Path, rows: pa.Table, pair: Pair, metadata: dict[str, Any]) -> None:
    """Write `judged_rows`, with the sizes that training needs."""
    width = rows.schema.field("feature").type.byte_width // 2
    sizes = {"inputs": width, "hidden_size": judge_width(pair.slm)}
    write_table(path, rows, rows.schema, metadata | {"judge": sizes})


class Judged(NamedTuple):
    """What trains the head `judge`: labelled rows with feature_NF, and how wide its MLP is."""

    rows: pa.Table
    feature_NF: np.ndarray
    hidden_size: int


def judge_width(slm: LanguageModel) -> int:
    """Return the hidden size of the head `judge`.

    Its rows are few, and each forward of the LLM reads its weights. On the embedded pair, a head as
    wide as `stand` had the same AUC on held-out rows.
    """
    return max(1, slm.hidden_size // 4)


def read_judged(path: Path) -> Judged:
    """Read a table of `write_judged`. Raises InputError."""
    sizes = table_metadata(path)["judge"]
    rows = read_table(path, judged(sizes["inputs"]))
    feature_NF = np.frombuffer(b"".join(rows["feature"].to_pylist()), np.float16)
    return Judged(rows, feature_NF.reshape(len(rows), -1).copy(), sizes["hidden_size"])


@torch.inference_mode()
def judged_features(
    pair: Pair,
    slm_tokens: Path,
    examples: Mapping[str, Encoded],
    rows: pa.Table,
    *,
    batch_tokens: int,
    advance: Advance,
) -> np.ndarray:
    """Return feature_NF (float16) of N `differing` rows, see `judge_features`.

    The LLM reads each reference with such a row once. The SLM's features are those of its tokens in
    `slm_tokens`. Raises InputError if the LLM runs elsewhere, or if its states are beyond
    float16.
    """
    slm_NF = torch.from_numpy(read_features(slm_tokens, rows))
    llm_NH = _llm_states(pair.local_llm, examples, rows, batch_tokens, advance)
    token_N = torch.from_numpy(rows["slm_token"].to_numpy().astype(np.int64))
    parts = zip(slm_NF.split(ROWS), llm_NH.split(ROWS), token_N.split(ROWS), strict=True)
    feature_NF = torch.cat([_features(pair, *part) for part in parts]).numpy()
    if not np.isfinite(feature_NF).all():
        raise InputError(
            f"{pair.llm.card.path}: hidden states beyond float16, expected at most 65504"
        )
    return feature_NF


def _features(pair: Pair, slm_CF: Tensor, llm_CH: Tensor, token_C: Tensor) -> Tensor:
    llm = pair.local_llm
    logprob_CV = pair.vocabulary.choices(llm.logits(llm_CH)).log_softmax(-1)
    slm_CF, token_C = slm_CF.to(llm.device), token_C.to(llm.device)
    return judge_features(slm_CF, llm_CH, logprob_CV, token_C).half().cpu()


def _llm_states(
    llm: LanguageModel,
    examples: Mapping[str, Encoded],
    rows: pa.Table,
    batch_tokens: int,
    advance: Advance,
) -> Tensor:
    """Return hidden_NH, the states from which the LLM chose its token at each row."""
    position_N = rows["position"].to_numpy()
    row_M = rows.select(["problem_id"]).to_pandas().groupby("problem_id", sort=False).indices
    texts = {key: _text(examples[key]) for key in row_M}
    hidden_NH = torch.empty(len(rows), llm.hidden_size, dtype=llm.dtype, device=llm.device)
    keys = list(texts)
    for batch in length_buckets([len(texts[key].ids) for key in keys], batch_tokens):
        read = [keys[n] for n in batch]
        read_NH, _ = states(llm, [texts[key] for key in read])
        lengths = [len(examples[key].reference_ids) for key in read]
        for key, part_TH in zip(read, read_NH.split(lengths), strict=True):
            hidden_NH[row_M[key]] = part_TH[position_N[row_M[key]]]
        advance(len(batch))
    return hidden_NH


def _text(example: Encoded) -> Text:
    return Text([*example.prompt_ids, *example.reference_ids], len(example.prompt_ids))
