"""Read a router's answers to the test questions from the artifacts of its run."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import pyarrow as pa

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
        rows = _rows(Path(file), uri)
    asked = under(rows, method, rule)
    return {row["problem_id"]: Graded(row["correct"], row["bytes"]) for row in asked}


def under(rows: Iterable[dict[str, Any]], method: str, rule: Rule) -> Iterator[dict[str, Any]]:
    """Yield the rows of the test questions, as a method answered them under a rule."""
    for row in rows:
        if (row["split"], row["method"], rule_of(row)) == ("test", method, rule):
            yield row


def _rows(file: Path, uri: str) -> list[dict[str, Any]]:
    try:
        # The champion may be from an older citer, whose tables have no seal.
        return read_table(file, OUTCOME, COLUMNS, sealed=False).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{uri}: not a table: {error}") from None
