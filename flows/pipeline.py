"""The Prefect flow `retrain`: run every stage of dvc.yaml, then register the router."""

import logging
import os
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.schedules import CronSchedule
from prefect.states import Completed, Failed
from pydantic import ValidationError

from citer.config.pair import Device
from citer.config.params import load_params
from citer.errors import InputError
from citer.stages import paths
from flows.checks import check_writable
from flows.dvc_commands import PARAMS, Log, check_remote, file_md5
from flows.gpus import on_device, room
from flows.notify.events import kept_back
from flows.own import OWN, own_digest
from flows.repro import one_run, plan
from flows.server import require_server
from flows.side_by_side import run_stages
from flows.stages import STEP
from flows.tracking.describe import page, version_card
from flows.tracking.registry import register_run, run_of
from flows.tracking.retraining import failing_run, monitored_run, run_name
from flows.tracking.store import make_store, store_address
from flows.worktree import in_worktree

LOGGERS = ("prefect.flow_runs", "prefect.task_runs")


@flow(name="retrain", flow_run_name=run_name)
def retrain(
    stage_timeout_hours: float = 24, device: Device = "auto", worktree: bool = False
) -> Any:
    """Bring every stage up to date, then register the router.

    `device` overrides that of params.yaml, unless it is `auto`. With `worktree`, the stages run in
    a git worktree, and the results go to a branch.

    The final state's message says what was registered and where, and which version is the champion.
    On bad input the flow fails with one line that says what to correct.
    """
    log = get_run_logger().info
    here = partial(_retrain, timedelta(hours=stage_timeout_hours), log)
    for name in LOGGERS:
        logging.getLogger(name).addFilter(shorten)  # a second time, it does nothing
    try:
        check_writable()
        with on_device(device):
            outcome = in_worktree(here, log) if worktree else here()
    except InputError as error:
        return Failed(message=str(error), data=error)
    return Completed(message=outcome, data=outcome)


def shorten(record: logging.LogRecord) -> bool:
    """Put the line of an InputError in the place of its traceback. Keeps every record."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, InputError):
        record.msg, record.args = str(error), ()
        record.exc_info = record.exc_text = None
    return True


def _retrain(timeout: timedelta, log: Log) -> str:
    where = page(os.environ.get("MLFLOW_TRACKING_URI"))  # read now: MLflow changes it later
    reach_store()
    with one_run(log), failing_run():
        params_at_start = file_md5(PARAMS)
        planned, own_at_start = plan(log), own_digest()
        stale = any(not stage.fresh for stage in planned.values())
        with monitored_run() if stale else nullcontext():
            run_stages(planned, room(load_params()), timeout, log)
        if file_md5(PARAMS) != params_at_start:  # earlier stages used other parameters
            raise InputError(f"{PARAMS}: changed during the run; repeat `citer run`")
        if own_digest() != own_at_start:
            raise InputError(f"{OWN}: versions changed during the run; repeat `citer run`")
        create_markdown_artifact((paths.SUMMARY / "table.md").read_text(), key="retrain-results")
        outcome, card = register([*planned], where)
        create_markdown_artifact(card, key="retrain-version")
        return outcome


@task(task_run_name="reach store", **STEP)
def reach_store() -> None:
    """Check, before hours of training, that the stores work, and log the address of MLflow's."""
    check_remote()
    make_store(load_params().register_.experiment)
    get_run_logger().info("MLflow's store: %s", store_address())


@task(task_run_name="register", **STEP)
def register(stages: Sequence[str], where: str) -> tuple[str, str]:
    """Register the routers, and let the gate decide whether the last one becomes the champion.

    Returns what was registered, in a sentence and as Markdown with links to MLflow's page, which is
    `where`.
    """
    done = register_run(stages)
    version = done.version
    if done.kept_back:
        kept_back(f"{version.name}/{version.version}", version.tags["reason"])
    outcome = f"{done.sentence}; MLflow's store: {store_address()}"
    return outcome, version_card(outcome, version, run_of(version), where)


def schedule(cron: str) -> None:
    """Run `retrain` from this machine at the times of `cron`, one at a time, until interrupted.

    Raises InputError if Prefect does not accept `cron`, or if PREFECT_API_URL is not set.
    """
    try:
        CronSchedule(cron=cron)
    except ValidationError:
        raise InputError(f"--cron: {cron!r}: expected five fields such as '0 3 * * 1'") from None
    require_server()
    retrain.serve(name="laptop", cron=cron, limit=1, parameters={"worktree": True})
