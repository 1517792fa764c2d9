"""The schema of every table on disk. `citer.storage.tables` checks tables as it writes and reads.

docs/architecture.md says what a row of each is, and which file has it.
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
MESSAGES = pa.list_(pa.struct([_required("role", pa.string()), _required("content", pa.string())]))

PROBLEM = pa.schema(
    [
        _required("problem_id", pa.string()),
        _required("task", pa.string()),
        _required("question", pa.string()),
        pa.field("choices", CHOICES),  # null if the task has no options
        pa.field("reference", pa.string()),  # may be null in validation and test
        pa.field("answer", pa.string()),  # the right answer, for the task's grader
        _required("source", pa.string()),
        _required("split", pa.string()),
        pa.field("messages", MESSAGES),  # the turns before the question; null without any
        pa.field("written_by", pa.string()),  # "llm": the LLM wrote the reference; null: given
    ]
)

PROBED = pa.schema(
    [
        _required("problem_id", pa.string()),
        _required("task", pa.string()),
        _required("model", pa.string()),  # "slm" or "llm"
        _required("text", pa.string()),
        pa.field("extracted", pa.string()),  # what the grader read; null if the task does not say
        pa.field("correct", pa.bool_()),  # false for a truncated answer; null: not graded
        _required("truncated", pa.bool_()),
        _required("tokens", pa.int32()),  # of the answer, including EOS
    ]
)

_POSITION = [
    _required("problem_id", pa.string()),
    _required("position", pa.int32()),  # index in the reference, which ends with EOS
    _required("gt_token", pa.int32()),
]

LLM_TOKEN = pa.schema(
    [
        *_POSITION,
        _required("llm_token", pa.int32()),
        _required("llm_logprob_gt", pa.float32()),  # nats
    ]
)


def slm_token(hidden_size: int) -> pa.Schema:
    """Return the schema of the SLM's tokens. `slm_hidden` has H float16, after the final norm."""
    return pa.schema(
        [
            *_POSITION,
            _required("slm_token", pa.int32()),
            _required("slm_logprob_gt", pa.float32()),
            _required("slm_margin", pa.float32()),  # top-1 minus top-2 logit
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
        _required("label", pa.int8()),  # 1: accept the SLM's token, 0: use the LLM's
        _required("origin", pa.string()),
        pa.field("slm_branch_correct", pa.bool_()),  # null: no rollout was needed
        pa.field("llm_branch_correct", pa.bool_()),
        _required("iteration", pa.int32()),
        pa.field("failure", pa.string()),  # why the grader failed on a branch; null: it did not
        pa.field("fall", pa.float32()),  # nats; null: the outcome was not `suffix`
    ]
)


HOLDOUT = pa.schema(
    [
        *(PREFERENCE.field(name) for name in ("problem_id", "position", "case", "label")),
        _required("score", pa.float32()),  # P(label 1), calibrated on these rows
    ]
)

_RULE = [
    _required("visit", pa.string()),  # see `citer.rule`
    _required("threshold", pa.float64()),  # τ, ρ or γ
    _required("audit", pa.float64()),  # β; 0: no audit
    pa.field("by", pa.string()),  # the scorer; null: the rule names none
    pa.field("draft", pa.string()),  # "lookup" or "both"; null: the SLM
    pa.field("cap", pa.int32()),  # K; null: none
]

# See `citer.decoding.answer.Counts`. The tokens of an answer include EOS.
_COUNTED = ("tokens", "llm_tokens", "visits", "audited", "disagreed", "rejected")
_COUNTS = [_required(name, pa.int32()) for name in _COUNTED]

OUTCOME = pa.schema(
    [
        _required("split", pa.string()),
        _required("method", pa.string()),
        *_RULE,
        _required("problem_id", pa.string()),
        _required("task", pa.string()),
        _required("correct", pa.bool_()),  # by the measure; false for a truncated answer
        pa.field("share", pa.float64()),  # of the answer; null: 1 if correct, else 0
        pa.field("failure", pa.string()),  # why a user's grader failed; null: it did not
        _required("truncated", pa.bool_()),
        *_COUNTS,
        _required("slm_steps", pa.int32()),
        _required("bytes", pa.int64()),  # moved at batch 1
    ]
)

_WORK = pa.struct([_required(name, pa.int64()) for name in ("forwards", "positions", "kv_read")])
_TRACE = [_required("forwards", pa.binary()), _required("slm", _WORK), _required("llm", _WORK)]

RESULT = pa.schema(
    [
        _required("policy", pa.int32()),  # its place in the sweep
        _required("problem_id", pa.string()),
        _required("trace", pa.struct(_TRACE)),
        _required("scores", pa.list_(pa.float32())),  # empty if the LLM was called
        _required("correct", pa.bool_()),
        _required("truncated", pa.bool_()),
        _required("counts", pa.struct(_COUNTS)),
        pa.field("share", pa.float64()),  # null if `correct` says it
        pa.field("failure", pa.string()),  # of the grader
        _required("token_ids", pa.list_(pa.int32())),  # empty unless the LLM alone wrote them
    ]
)

DISAGREEMENT = pa.struct(
    [
        _required("position", pa.int32()),  # in the answer; both models read its tokens before
        _required("slm_token", pa.int32()),
        _required("llm_token", pa.int32()),
        _required("slm_text", pa.string()),
        _required("llm_text", pa.string()),
        _required("odds", pa.float64()),  # p(SLM's token) / p(LLM's token), both by the LLM
        _required("rejected", pa.bool_()),  # false: the SLM's token was kept
    ]
)

AUDITED = pa.schema(
    [
        *(PROBLEM.field(name) for name in ("problem_id", "task", "question", "choices")),
        *(PROBLEM.field(name) for name in ("messages", "answer")),
        _required("completion", pa.string()),  # the text, without EOS and stop text
        _required("token_ids", pa.list_(pa.int32())),
        _required("truncated", pa.bool_()),
        _required("audited", pa.list_(pa.int32())),  # positions of the SLM's tokens, checked once
        _required("disagreements", pa.list_(DISAGREEMENT)),  # audited, not the LLM's choice
        pa.field("request", pa.string()),  # id of the reply, such as chatcmpl-…
        pa.field("user", pa.string()),  # who asked, as the request names them
        pa.field("reference", pa.string()),  # the LLM's own answer; null if it is not known
    ]
)


def point(batches: Iterable[str]) -> pa.Schema:
    """Return the schema of points; `batches` are names such as `b8_delayed`."""
    prices = [(f"bytes_per_answer_{name}", f"cost_{name}") for name in batches]
    return pa.schema(
        [
            _required("method", pa.string()),
            _required("kind", pa.string()),  # see `citer.evaluation.methods`
            _required("colour", pa.string()),
            _required("marker", pa.string()),
            _required("split", pa.string()),
            _required("task", pa.string()),  # or "all"; on test only
            *_RULE,
            _required("questions", pa.int32()),
            _required("accuracy", pa.float64()),  # or `fidelity`, by the measure
            _required("accuracy_low", pa.float64()),  # 95 % interval over questions
            _required("accuracy_high", pa.float64()),
            pa.field("mean_share", pa.float64()),  # of the answers; accuracy if all are 0 or 1
            _required("llm_fraction", pa.float64()),
            _required("visits_per_token", pa.float64()),
            _required("slm_steps_per_token", pa.float64()),
            pa.field("agreement", pa.float64()),  # share of audited tokens; null without audits
            pa.field("rejected_share", pa.float64()),  # the same
            _required("tokens_per_answer", pa.float64()),
            _required("truncated_share", pa.float64()),
            *(_required(name, pa.float64()) for both in prices for name in both),
        ]
    )
