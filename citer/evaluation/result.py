"""The result of one policy on one question, as an object and as a row of the RESULT table."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

from citer.data.problems import Problem
from citer.data.tasks.grading import Grade
from citer.decoding.answer import Answer, Counts, Work
from citer.evaluation.cost import Trace
from citer.evaluation.methods import Row
from citer.rule import LLM


class Result(NamedTuple):
    """The answer of one policy to one question.

    It has `scores` if the SLM wrote all tokens, and `token_ids` if the LLM alone wrote them.
    A new field of a plain type also needs a column of its name in the RESULT schema.
    """

    problem: Problem
    trace: Trace
    scores: Sequence[float]  # in float32
    correct: bool
    truncated: bool
    counts: Counts
    share: float | None = None  # of the answer, where it is neither 0 nor 1
    failure: str | None = None  # why the grader failed
    token_ids: Sequence[int] = ()

    @classmethod
    def of(cls, problem: Problem, prompt_len: int, answer: Answer, grade: Grade) -> "Result":
        return cls(
            problem=problem,
            trace=Trace.of(prompt_len, len(answer.token_ids), answer.visits),
            scores=() if answer.visits else array("f", answer.scores),
            correct=grade.correct,
            truncated=answer.truncated,
            counts=answer.counts,
            share=grade.partial,
            failure=grade.failure,
            token_ids=answer.token_ids if answer.policy.rule == LLM else (),
        )


def as_row(policy: int, result: Result) -> Row:
    """Return the row of the RESULT table. `policy` is the policy's place in the sweep."""
    forwards, slm, llm = result.trace
    return {
        **result._asdict(),
        "policy": policy,
        "problem_id": result.problem.problem_id,
        "trace": {"forwards": forwards, "slm": asdict(slm), "llm": asdict(llm)},
        "counts": result.counts._asdict(),
    }


def from_row(row: Row, problems: Mapping[str, Problem]) -> Result:
    """Return the result of a row, whose question is in `problems` by its id."""
    trace = row["trace"]
    plain = {name: row[name] for name in Result._fields if name in row}
    return Result(
        **plain
        | {
            "problem": problems[row["problem_id"]],
            "trace": Trace(trace["forwards"], Work(**trace["slm"]), Work(**trace["llm"])),
            "scores": array("f", row["scores"]) if row["scores"] else (),
            "counts": Counts(**row["counts"]),
            "token_ids": tuple(row["token_ids"]),
        }
    )
