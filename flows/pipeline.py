"""The flow `retrain`: every stage that DVC names, the results to read, the router registered."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.states import Completed, Failed

from citer.config import load_params
from citer.errors import InputError
from citer.stages import paths
from flows import seconds
from flows.dvc_commands import PARAMS
from flows.registry import register_run
from flows.repro import plan
from flows.stages import STEP, stage_task
from flows.store import open_store
from flows.tracking import file_md5


@flow(name="retrain")
def retrain(stage_timeout_hours: float = 24) -> Any:
    """Bring every stage up to date, then register the router; says what became of it.

    The state in which it ends says so, too: no traceback where its user has something to mend.
    """
    try:
        said = _retrain(timedelta(hours=stage_timeout_hours))
    except InputError as error:
        return Failed(message=str(error), data=error)
    return Completed(message=said, data=said)


def _retrain(timeout: timedelta) -> str:
    reach_store()
    begun = file_md5(PARAMS)
    stages = {
        name: stage_task(name)(name, timeout, fresh, return_state=True).result()
        for name, fresh in plan(get_run_logger().info).items()
    }
    if file_md5(PARAMS) != begun:  # the stages before that have used other parameters
        raise InputError(f"{PARAMS}: changed while the run was under way; `citer run` once more")
    create_markdown_artifact((paths.SUMMARY / "table.md").read_text(), key="retrain-results")
    return register(stages)


@task(task_run_name="reach store", **STEP)
def reach_store() -> None:
    """A store that fails is better met now than after hours of work."""
    open_store(load_params().register_.experiment)


@task(task_run_name="register", **STEP)
def register(stages: Mapping[str, float | None]) -> str:
    said = register_run(seconds.complete(stages))
    seconds.clear()
    return said
