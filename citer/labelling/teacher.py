"""Teacher-forced scoring: one parallel forward over prompt + reference, a row a reference token."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import torch
from torch import Tensor

from citer.data.prompts import Encoded
from citer.data.tokens import reference_rows
from citer.errors import InputError
from citer.models.features import certainty
from citer.models.pair import LanguageModel, padded_batch
from citer.models.vocabulary import Vocabulary

ROWS = 256  # of logits held at a time: those of a small vocabulary stay in a core's cache


@torch.inference_mode()
def score(
    model: LanguageModel,
    examples: Mapping[str, Encoded],
    batch_tokens: int,
    vocabulary: Vocabulary,
    advance: Callable[[float], None],
) -> pa.Table:
    """A row for every reference token, in the order of `examples`; the SLM's with its extras.

    A forward takes at most `batch_tokens` padded tokens (one example at least).
    """
    encoded = list(examples.values())
    parts, order = [], []
    for batch in length_buckets([len(p) + len(r) - 1 for p, r in encoded], batch_tokens):
        hidden_NH, gt_N = _reference_states(model, [encoded[index] for index in batch])
        parts.append(_read_in_chunks(model, hidden_NH, gt_N, vocabulary))
        order += [index for index in batch for _ in encoded[index].reference_ids]
        advance(len(gt_N))
    sort_N = torch.tensor(order).argsort(stable=True)
    columns = {name: torch.cat([part[name] for part in parts])[sort_N] for name in parts[0]}
    table = reference_rows(examples)
    for name, column in columns.items():
        table = table.append_column(name, _arrow(column))
    return table


def length_buckets(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Deal indices, longest first, into batches of width x rows <= `batch_tokens`."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _reference_states(model: LanguageModel, batch: Sequence[Encoded]) -> tuple[Tensor, Tensor]:
    """hidden_NH that predict the references' tokens gt_N; one forward."""
    inputs = padded_batch([[*p, *r[:-1]] for p, r in batch], model.device)
    hidden_BTH = model.last_hidden(**inputs, use_cache=False)
    states = zip(hidden_BTH, batch, strict=True)
    hidden_NH = torch.cat([state_TH[len(p) - 1 :][: len(r)] for state_TH, (p, r) in states])
    return hidden_NH, torch.tensor([token for _, r in batch for token in r], device=model.device)


def _read_in_chunks(
    model: LanguageModel, hidden_NH: Tensor, gt_N: Tensor, vocabulary: Vocabulary
) -> dict[str, Tensor]:
    """Columns on the CPU; never more than `ROWS` rows of logits at a time."""
    parts = []
    for hidden_CH, gt_C in zip(hidden_NH.split(ROWS), gt_N.split(ROWS), strict=True):
        logits_CV = vocabulary.choices(model.logits(hidden_CH))
        logprob_CV = logits_CV.log_softmax(-1)
        columns = {
            f"{model.name}_token": logits_CV.argmax(-1).int(),
            f"{model.name}_logprob_gt": logprob_CV.gather(1, gt_C[:, None]).squeeze(1).float(),
        }
        if model.name == "slm":
            entropy_C, margin_C, top_CK = certainty(logprob_CV)
            columns |= {
                "slm_margin": margin_C.float(),
                "slm_entropy": entropy_C.float(),
                "slm_top_logprobs": top_CK.float(),
                "slm_hidden": _finite(
                    hidden_CH.half(),
                    f"{model.path}: hidden states beyond float16, expected at most 65504",
                ),
            }
        else:
            first_C, second_C = logprob_CV.topk(2).values.unbind(1)
            columns["llm_margin"] = _finite(
                (first_C - second_C).float(),
                f"{model.path}: logits that are no numbers, expected another pair.dtype",
            )
        parts.append({name: column.cpu() for name, column in columns.items()})
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _finite(values: Tensor, complaint: str) -> Tensor:
    if not values.isfinite().all():
        raise InputError(complaint)
    return values


def _arrow(column: Tensor) -> pa.Array:
    """Vectors of float16 become fixed-size binary, other vectors lists."""
    if column.ndim == 1:
        return pa.array(column.numpy())
    length, width = column.shape
    if column.dtype == torch.float16:
        return pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(2 * width), length, [None, pa.py_buffer(column.numpy())]
        )
    return pa.FixedSizeListArray.from_arrays(pa.array(column.flatten().numpy()), width)
