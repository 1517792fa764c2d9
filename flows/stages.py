"""One Prefect task a stage: DVC decides what is stale, Prefect when and again."""

import time
from datetime import timedelta
from typing import Any

from prefect import Task, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed
from prefect.tasks import exponential_backoff

from citer.errors import InputError
from flows import seconds
from flows.reach import StoreError
from flows.repro import reproduce


def stage_task(name: str) -> Task[[str, timedelta, bool], float | None]:
    """The task of the stage `name`, under that name."""
    return run_stage.with_options(name=name, task_run_name=name)


def _worth_retrying(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    return isinstance(state.data, StoreError) or not isinstance(state.data, InputError)


STEP: dict[str, Any] = {
    "cache_policy": NO_CACHE,  # Prefect's cache would not look at the files; DVC does
    "persist_result": False,
    "retries": 2,
    "retry_delay_seconds": exponential_backoff(10),
    "retry_condition_fn": _worth_retrying,
}


@task(**STEP)
def run_stage(name: str, timeout: timedelta, fresh: bool = False) -> Any:
    """Bring one stage up to date, unless DVC has called it `fresh` already.

    Returns the seconds that it ran; in state `Cached` None: DVC found it unchanged or restored it.
    """
    start = time.monotonic()
    if not fresh and reproduce(name, timeout, get_run_logger().info):
        taken = time.monotonic() - start
        seconds.note(name, taken)
        return Completed(data=taken)
    return Completed(name="Cached", message="unchanged, or restored by DVC")
