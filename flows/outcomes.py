"""The test questions as a router answered them, read from what its run keeps."""

from pathlib import Path

import mlflow

from citer.evaluation.gate import Graded, Outcomes
from citer.io import read_table
from citer.schema import OUTCOME


def routed(run_id: str) -> Outcomes:
    """The router at its τ; at τ = 1 that is the LLM alone."""
    tau = threshold(run_id)["tau"]
    return _read(run_id, "report", "router", tau) if tau < 1 else llm_alone(run_id)


def llm_alone(run_id: str) -> Outcomes:
    return _read(run_id, "rivals", "llm", 1.0)


def threshold(run_id: str) -> dict:
    return mlflow.artifacts.load_dict(f"runs:/{run_id}/report/threshold.json")


def _read(run_id: str, kept: str, method: str, at: float) -> Outcomes:
    file = mlflow.artifacts.download_artifacts(f"runs:/{run_id}/{kept}/outcomes.parquet")
    return {
        row["problem_id"]: Graded(row["correct"], row["bytes"])
        for row in read_table(Path(file), OUTCOME).to_pylist()
        if (row["split"], row["method"], row["threshold"]) == ("test", method, at)
    }
