"""The test questions as a router answered them, read from what its run keeps."""

from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow

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
        rows = read_table(Path(file), OUTCOME).to_pylist()
    return {
        row["problem_id"]: Graded(row["correct"], row["bytes"])
        for row in rows
        if (row["split"], row["method"]) == ("test", method)
        and Rule(row["visit"], row["threshold"], row["audit"]) == rule
    }
