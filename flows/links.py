"""Addresses on MLflow's page."""

from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion

from citer.stages.paths import PAGE
from flows.reach import without_password

# Without it MLflow 3 opens its pages for GenAI, whatever the experiment's tags say.
TRAINING = "?workflowType=machine_learning"
LOCAL = "http://127.0.0.1:5000"  # where `mlflow ui` listens


def page(uri: str | None) -> str:
    """Return where MLflow's page is: a server's address, or the command that starts a server."""
    if uri and uri.startswith("http"):
        return without_password(uri)
    store = '"$MLFLOW_TRACKING_URI"' if uri else "sqlite:///mlruns/mlflow.db"
    return f"MLFLOW_DISABLE_TELEMETRY=true mlflow ui --backend-store-uri {store}"


def run_link(run: Run) -> str:
    """Return the address of a run, relative to the server's."""
    return f"#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}{TRAINING}"


def report_link(run: Run) -> str:
    """Return the address of the report page among a run's artifacts, relative to the server's."""
    return run_link(run).replace(TRAINING, f"/artifacts/{PAGE.name}{TRAINING}")


def version_card(sentence: str, version: ModelVersion, run: Run, where: str) -> str:
    """Write Markdown for Prefect's page: what was registered, with links to MLflow's page.

    `where` is the text of `page`.
    """
    server = where.replace("…@", "").rstrip("/") if where.startswith("http") else LOCAL
    place = f"#/models/{version.name}/versions/{version.version}{TRAINING}"
    started = "" if where.startswith("http") else f"\n\nThe links need a server: `{where}`"
    return (
        f"{sentence}\n\n"
        f"- [Version {version.version} of {version.name}]({server}/{place})\n"
        f"- [Run {run.info.run_id}]({server}/{run_link(run)})\n"
        f"- [Report page]({server}/{report_link(run)}){started}"
    )
