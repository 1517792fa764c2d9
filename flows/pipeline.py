"""The Prefect flow `retrain`: run every stage of dvc.yaml, then register the router."""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.states import Completed, Failed

from citer.config import load_params
from citer.errors import InputError
from citer.stages import paths
from flows import seconds, system
from flows.dvc_commands import PARAMS
from flows.links import page, version_card
from flows.own import OWN, own_digest
from flows.registry import register_run, run_of
from flows.repro import plan
from flows.stages import STEP, stage_task
from flows.store import open_store
from flows.tracking import file_md5


@flow(name="retrain")
def retrain(stage_timeout_hours: float = 24) -> Any:
    """Bring every stage up to date, then register the router.

    The final state's message says what was registered and which version is the champion. On bad
    input the flow fails with one line that says what to correct.
    """
    try:
        outcome = _retrain(timedelta(hours=stage_timeout_hours))
    except InputError as error:
        return Failed(message=str(error), data=error)
    return Completed(message=outcome, data=outcome)


def _retrain(timeout: timedelta) -> str:
    where = page(os.environ.get("MLFLOW_TRACKING_URI"))  # read now: MLflow changes it later
    reach_store()
    params_at_start = file_md5(PARAMS)
    with system.sampled():
        planned, own_at_start = plan(get_run_logger().info), own_digest()
        stages = {
            name: stage_task(name)(name, timeout, fresh, return_state=True).result()
            for name, fresh in planned.items()
        }
    if file_md5(PARAMS) != params_at_start:  # earlier stages used other parameters
        raise InputError(f"{PARAMS}: changed during the run; repeat `citer run`")
    if own_digest() != own_at_start:
        raise InputError(f"{OWN}: versions changed during the run; repeat `citer run`")
    create_markdown_artifact((paths.SUMMARY / "table.md").read_text(), key="retrain-results")
    outcome, card = register(stages, where)
    create_markdown_artifact(card, key="retrain-version")
    return outcome


@task(task_run_name="reach store", **STEP)
def reach_store() -> None:
    """Check that the MLflow store works, before hours of training."""
    open_store(load_params().register_.experiment)


@task(task_run_name="register", **STEP)
def register(stages: Mapping[str, float | None], where: str) -> tuple[str, str]:
    """Register the routers, and let the gate decide whether the last one becomes the champion.

    Returns what was registered, in a sentence and as Markdown with links to MLflow's page, which is
    `where`.
    """
    outcome, version = register_run(seconds.complete(stages))
    seconds.clear()
    system.clear()
    return outcome, version_card(outcome, version, run_of(version), where)
