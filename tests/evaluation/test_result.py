"""A result survives the RESULT table without loss."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from citer.data.tasks.grading import Grade
from citer.decoding.answer import Answer, Disagreement, Visit
from citer.decoding.policy import SLM_ALONE
from citer.evaluation.cost import Trace
from citer.evaluation.sweep import Result, as_row, from_row
from citer.storage.schema import RESULT
from citer.storage.tables import read_table, write_table
from tests.tiny import MATH

ODD = (0.1, 1 / 3, np.nextafter(np.float32(1), np.float32(0)).item(), 1e-45, 0.0)
ROUTED = Visit(3, 4, 2, 3, (Disagreement(2, 5, 6, 0.25),))


@pytest.mark.parametrize("visits", [(), (ROUTED,)])
def test_a_result_is_read_as_it_was_written(visits: tuple[Visit, ...], tmp_path: Path) -> None:
    answer = Answer("", SLM_ALONE, (7, 2**31 - 1, 5, 6, 1), ODD, visits, truncated=False)
    grade = Grade(correct=False, share=0.25, failure="KeyError: 1")
    path, written = tmp_path / "results.parquet", as_row(3, MATH, 11, answer, grade)
    write_table(path, pa.Table.from_pylist([written], RESULT), RESULT, {})
    [row] = read_table(path, RESULT).to_pylist()
    again = from_row(row, {MATH.problem_id: MATH})
    assert again == Result(
        problem=MATH,
        trace=Trace.of(11, 5, visits),
        scores=[] if visits else np.float32(ODD).tolist(),
        correct=False,
        truncated=False,
        counts=answer.counts,
        share=0.25,
        failure="KeyError: 1",
    )
    assert (row["policy"], again.counts.rejected) == (3, len(visits))


def test_every_plain_field_of_a_result_has_a_column() -> None:
    assert {*Result._fields} - {"problem"} == {*RESULT.names} - {"policy", "problem_id"}
