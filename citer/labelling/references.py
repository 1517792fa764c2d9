"""Let the LLM answer questions that need a reference, in parts that have a file each."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from citer.data.problems import Problem
from citer.data.tasks.grading import WRONG, assess
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE
from citer.evaluation.methods import Row
from citer.evaluation.sweep import answered, parts_of, request
from citer.executors.base import Executor
from citer.models.sampling import Sampler
from citer.progress import Advance
from citer.storage.schema import WRITTEN


class Trying(NamedTuple):
    """How the LLM answers, and whether an answer must be right if it is graded."""

    must_be_right: bool
    sampler: Sampler


class Written(NamedTuple):
    """What the LLM wrote for a question: a row of WRITTEN."""

    problem_id: str
    text: str | None
    correct: bool | None
    failure: str | None
    cut_off: bool


def write(
    title: str,
    engine: Engine,
    executor: Executor,
    problems: Sequence[Problem],
    trying: Trying,
    folder: Path,
) -> dict[str, Written]:
    """Return what the LLM alone writes for each problem, by id.

    A part of the problems with a file in `folder` is not answered again, so `folder` must belong to
    this engine's pair and limits, these problems and this `trying`.
    """
    parts = parts_of(problems, engine, folder)
    rows = answered(executor, partial(_write, engine, trying), parts, WRITTEN, title)
    return {row["problem_id"]: Written(**row) for row in rows}


def _write(
    engine: Engine, trying: Trying, problems: Sequence[Problem], advance: Advance
) -> pa.Table:
    """Answer each problem, and return the WRITTEN table: a job."""
    by_id = {problem.problem_id: problem for problem in problems}
    requests = (request(each, engine.pair, trying.sampler) for each in problems)
    written: dict[str, Row] = {}
    for answer in engine.decode(requests, LLM_ALONE):
        text, cut_off = engine.pair.text(answer.token_ids), answer.truncated
        judged = _judged(by_id[answer.key], text, cut_off, trying.must_be_right)
        written[answer.key] = judged._asdict()
        advance(1)
    return pa.Table.from_pylist([written[key] for key in by_id], WRITTEN)


def _judged(problem: Problem, text: str, cut_off: bool, must_be_right: bool) -> Written:
    correct, failure = None, None
    if problem.answer is not None:
        correct, _, failure = WRONG if cut_off else assess(problem, text)
    is_kept = not cut_off and not (must_be_right and correct is False)
    return Written(problem.problem_id, text if is_kept else None, correct, failure, cut_off)
