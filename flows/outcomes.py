"""Read a router's answers to the test questions, from its run's artifacts or from a report."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from citer.errors import InputError
from citer.evaluation.difference import Graded, GradedAnswers
from citer.evaluation.points import rule_of
from citer.rule import LLM, Rule
from citer.storage.schema import OUTCOME
from citer.storage.tables import read_table

PLACE = ["split", "method", "visit", "threshold", "audit", "by"]
COLUMNS = [*PLACE, "problem_id", "correct", "bytes"]


def routed(run_id: str) -> GradedAnswers:
    """Read the answers by the deployed rule. Without a certified rule they are the LLM's own."""
    deployed = threshold(run_id)
    rule = Rule(**deployed["rule"])
    if not rule.asks_slm:
        return llm_alone(run_id)
    return _read(run_id, "report", deployed_method(_report(run_id, "chosen"), deployed), rule)


def deployed_method(chosen: Mapping[str, Any], deployed: Any) -> str:
    """Name the method whose chosen rule is deployed."""
    return next(name for name, rule in chosen.items() if rule == deployed)


def llm_alone(run_id: str) -> GradedAnswers:
    """Read the LLM's own answers."""
    return _read(run_id, "rivals", "llm", LLM)


def threshold(run_id: str) -> dict[str, Any]:
    """Read the deployed rule with its certificate."""
    return _report(run_id, "threshold")


def questions(run_id: str, split: str) -> set[str]:
    """Return the ids of the questions of a split, all of which the LLM answered."""
    with _artifact(run_id, "rivals/outcomes.parquet") as file:
        table = _table(file, ["split", "problem_id"])
    return set(table.filter(pc.field("split") == split)["problem_id"].to_pylist())


def routed_bytes(run_id: str, batch: int) -> float | None:
    """Read the bytes per answer by the deployed rule at a batch size above 1.

    The LLM is delayed. Returns None if they were not counted.
    """
    deployed = threshold(run_id)
    rule = Rule(**deployed["rule"])
    if not rule.asks_slm:
        return llm_bytes(run_id, batch)
    return _bytes(
        run_id, "report", deployed_method(_report(run_id, "chosen"), deployed), rule, batch
    )


def llm_bytes(run_id: str, batch: int) -> float | None:
    """Read the bytes per answer of the LLM alone, as `routed_bytes`."""
    return _bytes(run_id, "rivals", "llm", LLM, batch)


def _bytes(run_id: str, kept: str, method: str, rule: Rule, batch: int) -> float | None:
    name = f"bytes_per_answer_b{batch}_delayed"
    with _artifact(run_id, f"{kept}/points.parquet") as file:
        own = (pc.field("task") == "all") & (pc.field("method") == method)
        rows = pq.read_table(file, filters=own).to_pylist()
    return next((row.get(name) for row in rows if rule_of(row) == rule), None)


def _report(run_id: str, name: str) -> dict[str, Any]:
    return mlflow.artifacts.load_dict(f"runs:/{run_id}/report/{name}.json")


def _read(run_id: str, kept: str, method: str, rule: Rule) -> GradedAnswers:
    with _artifact(run_id, f"{kept}/outcomes.parquet") as file:
        table = _table(file, COLUMNS)
    asked = _under(table, method, rule)
    return {row["problem_id"]: Graded(row["correct"], row["bytes"]) for row in asked}


@contextmanager
def _artifact(run_id: str, name: str) -> Iterator[Path]:
    """Yield a copy of a table. Raises InputError if it is damaged."""
    uri = f"runs:/{run_id}/{name}"
    with TemporaryDirectory() as folder:
        try:
            yield Path(mlflow.artifacts.download_artifacts(uri, dst_path=folder))
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{uri}: not a table: {error}") from None


def answers(
    report: Path, method: str, rule: Rule, columns: Iterable[str]
) -> Iterator[dict[str, Any]]:
    """Yield columns of a method's answers to the test questions, from a report's folder."""
    table = read_table(report / "outcomes.parquet", OUTCOME, [*PLACE, *columns])
    return _under(table, method, rule)


def _under(table: pa.Table, method: str, rule: Rule) -> Iterator[dict[str, Any]]:
    """Yield the rows of the test questions, as a method answered them under a rule."""
    own = (pc.field("split") == "test") & (pc.field("method") == method)
    return (row for row in table.filter(own).to_pylist() if rule_of(row) == rule)


def _table(file: Path, columns: list[str]) -> pa.Table:
    # The champion may be from an older citer, whose tables have no seal.
    return read_table(file, OUTCOME, columns, sealed=False)
