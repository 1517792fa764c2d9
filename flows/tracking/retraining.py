"""The MLflow run of a retraining: it opens before the first stage, and ends FINISHED or FAILED.

`contents.track` logs what the retraining gave, and ends its run. One that was killed leaves its run
open; the next one in this checkout marks it as failed. A file in `mlruns` names the last attempt.
"""

import logging
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import uuid4

from mlflow.entities import Run
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
from prefect.runtime import deployment, flow_run
from prefect.utilities.urls import url_for

from citer.config.params import load_params
from citer.errors import InputError
from citer.storage.tables import write_text
from flows.dvc_commands import LOCK, PARAMS
from flows.tracking.store import Store, home, make_store, reported

ATTEMPT = "attempt"  # a tag, and the file with its value
NOTE = "mlflow.note.content"  # what MLflow's page shows at the top of a run
KILLED = "The retraining was killed, or MLflow's store was lost when it failed."

logging.getLogger("mlflow.system_metrics").setLevel(logging.WARNING)  # it says that it starts


@contextmanager
def failing_run() -> Iterator[None]:
    """Mark the open run as failed if the block raises, and before it one that a kill left open."""
    _fail(KILLED)
    try:
        yield
    except BaseException as error:
        _fail(str(error) or type(error).__name__)
        raise


@contextmanager
def monitored_run() -> Iterator[None]:
    """Open a run, and log the load of the whole machine there during the block."""
    with reported():
        run = start_run(make_store(load_params().register_.experiment))
    monitor = SystemMetricsMonitor(run.info.run_id)
    monitor.start()
    try:
        yield
    finally:
        monitor.finish()


def start_run(store: Store) -> Run:
    """Open the run of a retraining."""
    attempt = uuid4().hex
    write_text(home() / ATTEMPT, attempt)  # first, so that a kill leaves no run that none finds
    # A run that `mlflow.start_run` creates has a tag with a path on this machine.
    tags = {"kind": "retraining", ATTEMPT: attempt, **code_tags(), **run_tags()}
    name = f"retraining of {datetime.now(UTC):%Y-%m-%d %H:%M}"
    return store.client.create_run(store.experiment_id, run_name=name, tags=tags)


def open_run(store: Store) -> Run | None:
    """Return the run of the last attempt in this checkout if it has not ended."""
    if not (file := home() / ATTEMPT).exists():
        return None
    query = f"tags.{ATTEMPT} = '{file.read_text()}' and attributes.status = 'RUNNING'"
    return next(iter(store.runs(query)), None)


def log_seconds(stage: str, seconds: float) -> None:
    """Log with the open run how long a stage took. If the store is lost, the stage still counts."""
    name = f"seconds/{stage.replace('@', '_')}"
    _with_open_run(lambda store, run_id: store.client.log_metric(run_id, name, seconds))


def _fail(why: str) -> None:
    """End the open run. Of its routers those stay that are registered, or about to be."""

    def end(store: Store, run_id: str) -> None:
        store.client.set_tag(run_id, NOTE, why)
        try:
            discard(store, run_id)
        finally:  # the user may not delete runs of this store
            store.client.set_terminated(run_id, "FAILED")

    _with_open_run(end)


def discard(store: Store, parent: str, only: str = "") -> None:
    """Delete the runs of a retraining's routers that no version uses, with their logged models.

    One whose validation questions are counted stays, for the version that is still to come.
    """
    for run in store.runs(f"tags.`mlflow.parentRunId` = '{parent}'{only}"):
        run_id, counted = run.info.run_id, "validation_set" in run.data.params
        if not (counted or store.client.search_model_versions(f"run_id = '{run_id}'")):
            logged = f"source_run_id = '{run_id}'"
            for model in store.client.search_logged_models([store.experiment_id], logged):
                store.client.delete_logged_model(model.model_id)
            store.client.delete_run(run_id)


def _with_open_run(act: Callable[[Store, str], object]) -> None:
    """Call `act` with the id of the open run if there is one. Errors of the store are logged."""
    try:
        with reported():
            store = make_store(load_params().register_.experiment)
            if run := open_run(store):
                act(store, run.info.run_id)
    except InputError as error:
        logging.getLogger(__name__).warning("citer: %s", error)


def run_name() -> str:
    """Name a run, such as `2026-11-23 03:00 2ad6fe5 gpu`: start in UTC, commit, deployment.

    The commit is that of the current folder. A run without a deployment is one of `citer run`.
    """
    commit = _git("rev-parse", "--short", "HEAD") or "no commit"
    start = flow_run.scheduled_start_time
    return f"{start:%Y-%m-%d %H:%M} {commit} {deployment.name or 'citer run'}"


def code_tags() -> dict[str, str]:
    """Identify the code. Lock and parameters are artifacts of the run and never count as dirty."""
    sha = _git("rev-parse", "HEAD") or "none"
    changed = _git("status", "--porcelain", "--", ".", f":!{LOCK}", f":!{PARAMS}", ":!data")
    dirty = str(bool(changed)).lower()
    return {"git_sha": sha, "git_dirty": dirty, "mlflow.source.git.commit": sha}


def run_tags() -> dict[str, str]:
    """Identify Prefect's run, with its address if there is a server. Empty outside a run."""
    if not flow_run.id:
        return {}
    page = url_for("flow-run", flow_run.id)
    return {"prefect_run": flow_run.id} | ({"prefect_page": page} if page else {})


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()
