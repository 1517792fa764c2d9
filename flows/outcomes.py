"""Read a router's answers to the test questions, from its run's artifacts or from a report."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import pyarrow as pa
import pyarrow.compute as pc

from citer.errors import InputError
from citer.evaluation.gate import Graded, GradedAnswers
from citer.evaluation.points import rule_of
from citer.io import read_table
from citer.rule import LLM, Rule
from citer.schema import OUTCOME

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


def _report(run_id: str, name: str) -> dict[str, Any]:
    return mlflow.artifacts.load_dict(f"runs:/{run_id}/report/{name}.json")


def _read(run_id: str, kept: str, method: str, rule: Rule) -> GradedAnswers:
    with TemporaryDirectory() as folder:
        uri = f"runs:/{run_id}/{kept}/outcomes.parquet"
        file = mlflow.artifacts.download_artifacts(uri, dst_path=folder)
        table = _table(Path(file), uri)
    asked = _under(table, method, rule)
    return {row["problem_id"]: Graded(row["correct"], row["bytes"]) for row in asked}


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


def _table(file: Path, uri: str) -> pa.Table:
    try:
        # The champion may be from an older citer, whose tables have no seal.
        return read_table(file, OUTCOME, COLUMNS, sealed=False)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{uri}: not a table: {error}") from None
