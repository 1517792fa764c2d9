"""Every table on disk, declared once. `citer.io` checks them on writing and on reading.

A row of PROBLEM is a question; of LLM_TOKEN and `slm_token(H)` one position of a reference as a
model predicts it; of PREFERENCE one labelled position; of POINT one method by one rule on one
task; of OUTCOME one question answered by one method by one rule; of DISAGREEMENT one token of a
routed answer at which an audit found that the models differ.
"""

from collections.abc import Iterable

import pyarrow as pa

VERSION = 2
TOP_LOGPROBS = 8

SPLITS = ("sft", "preference", "validation", "test")
CASES = ("slm_right", "llm_right", "same_wrong", "contested")


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


CHOICES = pa.list_(pa.struct([_required("label", pa.string()), _required("text", pa.string())]))

PROBLEM = pa.schema(
    [
        _required("problem_id", pa.string()),
        _required("task", pa.string()),
        _required("question", pa.string()),
        pa.field("choices", CHOICES),  # null in math
        pa.field("reference", pa.string()),  # may be null in validation and test
        pa.field("answer", pa.string()),  # mc: the label; math: what the last \boxed{} holds
        _required("source", pa.string()),
        _required("split", pa.string()),
    ]
)

_POSITION = [
    _required("problem_id", pa.string()),
    _required("position", pa.int32()),  # index in the reference; its EOS is the last
    _required("gt_token", pa.int32()),
]

LLM_TOKEN = pa.schema(
    [
        *_POSITION,
        _required("llm_token", pa.int32()),
        _required("llm_logprob_gt", pa.float32()),  # nats
        _required("llm_margin", pa.float32()),  # top-1 minus top-2 logit
    ]
)


def slm_token(hidden_size: int) -> pa.Schema:
    """The SLM's half of the token table; `slm_hidden` holds H float16, after the final norm."""
    return pa.schema(
        [
            *_POSITION,
            _required("slm_token", pa.int32()),
            _required("slm_logprob_gt", pa.float32()),
            _required("slm_margin", pa.float32()),
            _required("slm_entropy", pa.float32()),  # nats
            _required("slm_top_logprobs", pa.list_(pa.float32(), TOP_LOGPROBS)),
            _required("slm_hidden", pa.binary(2 * hidden_size)),
        ]
    )


PREFERENCE = pa.schema(
    [
        _required("problem_id", pa.string()),
        _required("position", pa.int32()),
        _required("case", pa.string()),
        _required("label", pa.int8()),  # 1: the SLM's token may stand
        _required("origin", pa.string()),
        pa.field("slm_branch_correct", pa.bool_()),  # null: not rolled out
        pa.field("llm_branch_correct", pa.bool_()),
        _required("iteration", pa.int32()),
    ]
)

_RULE = [
    _required("visit", pa.string()),  # see `citer.rule`
    _required("threshold", pa.float64()),  # τ, ρ or γ
    _required("audit", pa.float64()),
]

OUTCOME = pa.schema(
    [
        _required("split", pa.string()),
        _required("method", pa.string()),
        *_RULE,
        _required("problem_id", pa.string()),
        _required("task", pa.string()),
        _required("correct", pa.bool_()),  # a truncated answer is not
        _required("truncated", pa.bool_()),
        _required("tokens", pa.int32()),  # of the answer, its EOS with them
        _required("llm_tokens", pa.int32()),
        _required("visits", pa.int32()),
        _required("audited", pa.int32()),  # tokens of the SLM that an audit looked at
        _required("disagreed", pa.int32()),  # of those, not the LLM's choice
        _required("rejected", pa.int32()),  # of those, rolled back
        _required("slm_steps", pa.int32()),
        _required("bytes", pa.int64()),  # moved at batch 1
    ]
)

DISAGREEMENT = pa.schema(
    [
        _required("problem_id", pa.string()),
        _required("position", pa.int32()),  # in the answer, which is as it was before this token
        _required("slm_token", pa.int32()),
        _required("llm_token", pa.int32()),
        _required("slm_text", pa.string()),
        _required("llm_text", pa.string()),
        _required("odds", pa.float64()),  # of the SLM's token against the LLM's, by the LLM
        _required("rejected", pa.bool_()),  # else the SLM's was let stand
    ]
)


def point(batches: Iterable[str]) -> pa.Schema:
    """A point of the frontier on test, priced for every way of batching named (`b8_delayed`)."""
    prices = [(f"bytes_per_answer_{name}", f"cost_{name}") for name in batches]
    return pa.schema(
        [
            _required("method", pa.string()),
            _required("kind", pa.string()),  # see `citer.evaluation.methods`
            _required("colour", pa.string()),
            _required("marker", pa.string()),
            _required("task", pa.string()),  # or "all"
            *_RULE,
            _required("questions", pa.int32()),
            _required("accuracy", pa.float64()),
            _required("accuracy_low", pa.float64()),  # 95 % interval over questions
            _required("accuracy_high", pa.float64()),
            _required("llm_fraction", pa.float64()),
            _required("visits_per_token", pa.float64()),
            _required("slm_steps_per_token", pa.float64()),
            pa.field("agreement", pa.float64()),  # share of audited tokens; null without audits
            pa.field("rejected_share", pa.float64()),  # likewise
            _required("tokens_per_answer", pa.float64()),
            _required("truncated_share", pa.float64()),
            *(_required(name, pa.float64()) for both in prices for name in both),
        ]
    )
