"""The test questions as a router answered them, read from what its run keeps."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import pyarrow as pa

from citer.errors import InputError
from citer.evaluation.gate import Graded, GradedAnswers
from citer.io import read_table
from citer.rule import LLM, Rule
from citer.schema import OUTCOME


def routed(run_id: str) -> GradedAnswers:
    """The router by its rule; where that asks the LLM alone, the LLM."""
    rule = Rule(**threshold(run_id)["rule"])
    if not rule.asks_slm:
        return llm_alone(run_id)
    return _read(run_id, "report", "audited" if rule.audit else "router", rule)


def llm_alone(run_id: str) -> GradedAnswers:
    return _read(run_id, "rivals", "llm", LLM)


def threshold(run_id: str) -> dict:
    return mlflow.artifacts.load_dict(f"runs:/{run_id}/report/threshold.json")


def _read(run_id: str, kept: str, method: str, rule: Rule) -> GradedAnswers:
    with TemporaryDirectory() as folder:
        uri = f"runs:/{run_id}/{kept}/outcomes.parquet"
        file = mlflow.artifacts.download_artifacts(uri, dst_path=folder)
        rows = _rows(Path(file), uri)
    return {
        row["problem_id"]: Graded(row["correct"], row["bytes"])
        for row in rows
        if (row["split"], row["method"]) == ("test", method)
        and Rule(row["visit"], row["threshold"], row["audit"]) == rule
    }


def _rows(file: Path, uri: str) -> list[dict[str, Any]]:
    try:
        # A champion stays one when citer is upgraded, and its table has no seal then.
        return read_table(file, OUTCOME, sealed=False).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{uri}: not a table: {error}") from None
