"""Teacher-forced scoring: one forward over prompt and reference, one row per reference token."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import torch
from torch import Tensor

from citer.config.params import Params
from citer.data.problems import Problem
from citer.data.prompts import Encoded
from citer.data.tokens import half_schema, keep_fitting, reference_rows, shard_name
from citer.decoding.served import verifier_of
from citer.decoding.verifier import Verifier
from citer.errors import InputError
from citer.executors.tables import write_tables
from citer.models.folder import Carded, PairFolder
from citer.models.outlined import open_model
from citer.models.pair import LanguageModel, Predicted, Text, length_buckets, predict
from citer.models.room import check_examples
from citer.models.router import FEATURE, confidence_features
from citer.models.vocabulary import Vocabulary
from citer.progress import Advance, progress, say
from citer.storage.code import code_digest

# Problems of a file: a killed run scores at most one file again, and no folder has too many files.
SHARD = 128
Name = Literal["slm", "llm"]
Columns = dict[str, Tensor]
Half = Callable[[Sequence[Text]], Columns]


def score_half(
    name: Name, folders: PairFolder, problems: Sequence[Problem], output: Path, params: Params
) -> None:
    """Bring the shards of model `name` in `output` up to date. Loads the model only if some miss.

    Raises InputError if a problem exceeds its context.
    """
    model = getattr(folders, name)
    examples = folders.prompts.encode_all(problems)
    check_examples(examples, model.context)
    metadata = half_metadata(name, folders, params.pair.dtype)
    missing = keep_fitting(output, examples, metadata)
    if missing:
        opened, executor = open_model(name, model, params.pair, params.workers)
        most = params.score.batch_tokens
        job = partial(score, half(opened, folders.vocabulary), batch_tokens=most)
        items = list(missing.items())
        shards = [dict(items[start : start + SHARD]) for start in range(0, len(items), SHARD)]
        paths = {output / shard_name(shard): shard for shard in shards}
        total = sum(len(example.reference_ids) for example in missing.values())
        with progress(f"score {name}", total, "tokens") as advance:
            write_tables(executor, job, paths, half_schema(metadata), metadata, advance)
    earlier = f"{len(examples) - len(missing)} were already in {output}"
    say(f"score_{name}: {len(missing)} problems scored; {earlier}")


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


def half(model: LanguageModel | Carded, vocabulary: Vocabulary) -> Half:
    """Return the function that computes a model's half of the token table."""
    if isinstance(model, LanguageModel) and model.name == "slm":
        return partial(slm_half, model, vocabulary)
    return partial(llm_half, verifier_of(model, vocabulary))


def slm_half(model: LanguageModel, vocabulary: Vocabulary, texts: Sequence[Text]) -> Columns:
    """Compute the SLM's columns of the token table, one row per predicted token.

    Raises InputError for hidden states that float16 cannot hold, and for logits not finite.
    """
    parts = [_slm_columns(predicted) for predicted in predict(model, vocabulary, texts)]
    columns = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    if not columns["slm_hidden"].isfinite().all():
        raise InputError(f"{model.path}: hidden states beyond float16, expected at most 65504")
    return columns


def llm_half(verifier: Verifier, texts: Sequence[Text]) -> Columns:
    """Compute the LLM's columns of the token table, one row per predicted token."""
    return dict(zip(("llm_token", "llm_logprob_gt"), verifier.score(texts), strict=True))


@torch.inference_mode()
def score(
    half: Half, examples: Mapping[str, Encoded], batch_tokens: int, advance: Advance
) -> pa.Table:
    """Score every reference token. Rows are in the order of `examples`.

    A forward takes at most `batch_tokens` padded tokens (one example at least). `advance` counts
    scored tokens.
    """
    texts = [Text([*p, *r], len(p)) for p, r in examples.values()]
    parts: list[Columns] = []
    order: list[int] = []
    for batch in length_buckets([len(text.ids) - 1 for text in texts], batch_tokens):
        parts.append(half([texts[index] for index in batch]))
        before = len(order)
        order += [index for index in batch for _ in texts[index].ids[texts[index].first :]]
        advance(len(order) - before)
    sort_N = torch.tensor(order).argsort(stable=True)
    table = reference_rows(examples)
    for name in parts[0]:
        column = torch.cat([part[name] for part in parts])[sort_N]
        table = table.append_column(name, _arrow(column))
    return table


def _slm_columns(predicted: Predicted) -> Columns:
    hidden_CH, logits_CV, logprob_CV, given_C = predicted
    entropy_C, margin_C, top_CK = confidence_features(logprob_CV)
    columns = {
        "slm_token": logits_CV.argmax(-1).int(),
        "slm_logprob_gt": logprob_CV.gather(1, given_C[:, None]).squeeze(1).float(),
        "slm_margin": margin_C.float(),
        "slm_entropy": entropy_C.float(),
        "slm_top_logprobs": top_CK.float(),
        "slm_hidden": hidden_CH.half(),
    }
    return {name: column.cpu() for name, column in columns.items()}


def _arrow(column: Tensor) -> pa.Array:
    """Convert to Arrow. Vectors of float16 become fixed-size binary, other vectors lists."""
    if column.ndim == 1:
        return pa.array(column.numpy())
    length, width = column.shape
    if column.dtype == torch.float16:
        return pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(2 * width), length, [None, pa.py_buffer(column.numpy())]
        )
    return pa.FixedSizeListArray.from_arrays(pa.array(column.flatten().numpy()), width)
