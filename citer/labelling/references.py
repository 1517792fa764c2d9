"""Let the LLM answer questions that need a reference, in parts that have a file each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from citer.data.problems import Problem
from citer.data.tasks.grading import WRONG, assess
from citer.decoding.answer import Answer
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE
from citer.evaluation.sweep import answered, parts_of, request
from citer.executors.base import Executor
from citer.models.pair import Pair
from citer.models.sampling import Sampler
from citer.progress import Advance
from citer.storage.schema import WRITTEN


class Trying(NamedTuple):
    """How the LLM answers, and whether an answer must be right if it is graded.

    It answers `slots` questions at once, with at most `max_new_tokens` tokens each.
    """

    must_be_right: bool
    sampler: Sampler
    slots: int
    max_new_tokens: int


class Written(NamedTuple):
    """What the LLM wrote for a question: a row of WRITTEN without its id."""

    text: str | None
    correct: bool | None
    failure: str | None
    cut_off: bool


def write(
    title: str,
    pair: Pair,
    executor: Executor,
    problems: Sequence[Problem],
    trying: Trying,
    folder: Path,
) -> dict[str, Written]:
    """Return what the LLM alone writes for each problem, by id.

    A part of the problems with a file in `folder` is not answered again, so `folder` must belong to
    this pair, these problems and this `trying`.
    """
    engine = Engine(pair, trying.slots, trying.max_new_tokens)
    parts = parts_of(problems, engine, folder)
    rows = answered(executor, _Writing(engine, trying), parts, WRITTEN, title)
    return {row.pop("problem_id"): Written(**row) for row in rows}


@dataclass(frozen=True)
class _Writing:
    """The job: answer each problem, and keep the answer if it can be a reference."""

    engine: Engine
    trying: Trying

    def __call__(self, problems: Sequence[Problem], /, *, advance: Advance) -> pa.Table:
        """Return the WRITTEN table of the problems, in their order."""
        by_id = {problem.problem_id: problem for problem in problems}
        requests = (request(each, self.engine.pair, self.trying.sampler) for each in problems)
        written: dict[str, Written] = {}
        for answer in self.engine.decode(requests, LLM_ALONE):
            written[answer.key] = self._judged(by_id[answer.key], answer)
            advance(1)
        rows = [{"problem_id": p.problem_id, **written[p.problem_id]._asdict()} for p in problems]
        return pa.Table.from_pylist(rows, WRITTEN)

    def _judged(self, problem: Problem, answer: Answer) -> Written:
        text, cut_off = self.engine.pair.text(answer.token_ids), answer.truncated
        correct, failure = None, None
        if problem.answer is not None:
            correct, _, failure = WRONG if cut_off else assess(problem, text)
        if cut_off or (self.trying.must_be_right and correct is False):
            return Written(None, correct, failure, cut_off)
        return Written(text, correct, failure, cut_off)
