"""The Prefect flow `retrain`: a task for each stage of dvc.yaml, then one registers the router.

DVC decides what is stale; Prefect starts and retries.
"""

import errno
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from prefect import Task, flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.client.schemas.schedules import CronSchedule
from prefect.states import Completed, Failed
from prefect.tasks import exponential_backoff

from citer.config.pair import DEVICE, Device
from citer.config.params import load_params
from citer.errors import InputError, TemporaryError
from citer.stages import paths
from citer.stages.budget import fit
from citer.storage.tables import digest
from flows.checks import check_project
from flows.deadline import Deadline
from flows.dvc_commands import PARAMS, Log, check_remote, file_md5
from flows.notify.events import kept_back
from flows.own import OWN, versioned
from flows.repro import one_run, plan, reproduce
from flows.server import answering, require_server
from flows.tracking.contents import Iteration, so_far
from flows.tracking.registry import register_run
from flows.tracking.retraining import failing_run, log_seconds, monitored_run, run_name
from flows.tracking.store import make_store, store_address
from flows.worktree import in_worktree


def _worth_retrying(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    return isinstance(state.data, TemporaryError) or not isinstance(state.data, InputError)


STEP: dict[str, Any] = {
    "cache_policy": NO_CACHE,  # DVC compares the files; Prefect's cache would not
    "persist_result": False,
    "retries": 2,
    "retry_delay_seconds": exponential_backoff(10),
    "retry_condition_fn": _worth_retrying,
}


@flow(name="retrain", flow_run_name=run_name)
def retrain(
    stage_timeout_hours: float = 24,
    device: Device = "auto",
    worktree: bool = False,
    minutes: float | None = None,
) -> Any:
    """Bring every stage up to date, then register the router.

    `device` overrides that of params.yaml, unless it is `auto`. With `worktree`, the stages run in
    a git worktree, and the results go to a branch. With `minutes`, settings of params.yaml are
    reduced first until the forecast of the last probe fits, and what is chosen is registered at
    once: if the run is stopped, the best router so far can serve.

    The final state's message says what was registered and where, and which version is the champion.
    On bad input the flow fails with one line that says what to correct.
    """
    log = get_run_logger().info
    here = partial(_retrain, timedelta(hours=stage_timeout_hours), log, minutes)
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(shorten)  # a second time, it does nothing
    try:
        check_project(load_params().pair)
        use_device(device)
        outcome = in_worktree(here, log) if worktree else here()
    except (InputError, OSError) as error:
        if not (said := _said(error)):
            raise
        return Failed(message=str(said), data=said)
    return Completed(message=outcome, data=outcome)


def use_device(device: Device) -> None:
    """Run the stages on `device`. `auto` leaves it to CITER_DEVICE and pair.device.

    Raises InputError if that is cuda and there is none, before any stage runs.
    """
    if device != "auto":
        os.environ[DEVICE] = device  # this process is that of one run
    if load_params().pair.device == "cuda":
        from citer.models.device import resolve_device  # takes seconds

        resolve_device("cuda")


def shorten(record: logging.LogRecord) -> bool:
    """Put the line of an error that has one in the place of its traceback. Keeps every record."""
    if said := _said(record.exc_info[1] if record.exc_info else None):
        record.msg, record.args = str(said), ()
        record.exc_info = record.exc_text = None
    return True


def _said(error: BaseException | None) -> InputError | None:
    """Return an error of which a line says enough; it stands for an OSError, as of a full disk."""
    if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):  # these may be bugs
        return TemporaryError(str(error))
    return error if isinstance(error, InputError) else None


def _retrain(timeout: timedelta, log: Log, minutes: float | None) -> str:
    reach_store()
    with one_run(log), failing_run():
        deadline = _fit(minutes, log) if minutes else None
        used, planned = _inputs(), plan()
        with nullcontext() if all(planned.values()) else monitored_run():
            for stage in run_stages(planned, timeout, deadline):
                if minutes and (router := so_far(planned).get(stage)):
                    _check_inputs(used)
                    _register_early(router, log)
        _check_inputs(used)
        outcome = register([*planned])
        table = (paths.SUMMARY / "table.md").read_text()
        create_markdown_artifact(f"{outcome}\n\n{table}", key="retrain-results")
        return outcome


def _fit(minutes: float, log: Log) -> Deadline:
    """Reduce settings of params.yaml until the forecast fits, and log each."""
    found = fit(load_params(), minutes)
    for line in found.lines():
        log(line)
    return Deadline(minutes, found.stages, len(load_params().iterations))


def run_stages(
    plan: Mapping[str, bool], timeout: timedelta, deadline: Deadline | None = None
) -> Iterator[str]:
    """Run the stages of a `plan`; yield the name of each at its end. The first error ends them."""
    stale = [name for name, fresh in plan.items() if not fresh]
    for name, fresh in plan.items():
        if deadline and not fresh:
            deadline.begin(name, stale[stale.index(name) + 1 :])
        own: Task[..., None] = run_stage.with_options(name=name, task_run_name=name)
        own(name, timeout, fresh)
        yield name


@task(**STEP)
def run_stage(name: str, timeout: timedelta, fresh: bool = False) -> Any:
    """Bring one stage up to date, unless `fresh` says that DVC has found it unchanged."""
    start = time.monotonic()
    if fresh or not reproduce(name, timeout, get_run_logger().info):
        return Completed(name="Cached", message="unchanged, or restored from DVC's cache")
    log_seconds(name, time.monotonic() - start)
    return None


def _check_inputs(used: Mapping[Path, str]) -> None:
    """Raise InputError if earlier stages used other inputs than those that are there now."""
    for name, content in _inputs().items():
        if content != used[name]:
            raise InputError(f"{name}: changed during the run; repeat `citer run`")


def _register_early(router: Iteration, log: Log) -> None:
    """Register a router before the last one. If it fails, the run goes on."""
    try:
        if done := register_run((), router):
            log(f"registered so far: {done.sentence}")
    except InputError as error:
        log(f"registered so far: not router {router.number}: {error}")


def _inputs() -> dict[Path, str]:
    """Return digests of the parameters, and of the versions of the user's questions."""
    return {PARAMS: file_md5(PARAMS), OWN: digest(*versioned())}


@task(task_run_name="reach store", **STEP)
def reach_store() -> None:
    """Check, before hours of training, that the stores work, and log the address of MLflow's."""
    check_remote()
    make_store(load_params().register_.experiment)
    get_run_logger().info("MLflow's store: %s", store_address())


@task(task_run_name="register", **STEP)
def register(stages: Sequence[str]) -> str:
    """Register the routers, let the gate judge the last one, and return a sentence about it."""
    done = register_run(stages)
    assert done  # it is no early one
    if done.kept_back:
        kept_back(done.kept_back)
    return f"{done.sentence}; MLflow's store: {store_address()}"


def schedule(cron: str) -> None:
    """Run `retrain` from this machine at the times of `cron`, one at a time, until interrupted.

    Raises InputError if Prefect does not accept `cron`, or if PREFECT_API_URL is not set;
    TemporaryError if its server does not answer.
    """
    try:
        if len(cron.split()) != 5:  # Prefect also accepts seconds, and words such as @daily
            raise ValueError
        CronSchedule(cron=cron)
    except ValueError:
        raise InputError(f"--cron: {cron!r}: expected five fields such as '0 3 * * 1'") from None
    require_server()
    with answering():
        retrain.serve(name="laptop", cron=cron, limit=1, parameters={"worktree": True})
