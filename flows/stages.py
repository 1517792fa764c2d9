"""One Prefect task per stage. DVC decides what is stale; Prefect starts and retries."""

import time
from datetime import timedelta
from typing import Any

from prefect import Task, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed
from prefect.tasks import exponential_backoff

from citer.errors import InputError, TemporaryError
from flows import seconds
from flows.repro import reproduce


def stage_task(name: str) -> Task[[str, timedelta, bool], float | None]:
    """Return the Prefect task that runs the stage `name`."""
    return run_stage.with_options(name=name, task_run_name=name)


def _worth_retrying(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    return isinstance(state.data, TemporaryError) or not isinstance(state.data, InputError)


STEP: dict[str, Any] = {
    "cache_policy": NO_CACHE,  # DVC compares the files; Prefect's cache would not
    "persist_result": False,
    "retries": 2,
    "retry_delay_seconds": exponential_backoff(10),
    "retry_condition_fn": _worth_retrying,
}


@task(**STEP)
def run_stage(name: str, timeout: timedelta, fresh: bool = False) -> Any:
    """Bring one stage up to date, unless `fresh` says that DVC has found it unchanged.

    Completes with the seconds that the stage took. The state is `Cached`, with None, if the stage
    was unchanged or DVC restored its outputs.
    """
    start = time.monotonic()
    if not fresh and reproduce(name, timeout, get_run_logger().info):
        taken = time.monotonic() - start
        seconds.note(name, taken)
        return Completed(data=taken)
    return Completed(name="Cached", message="unchanged, or restored from DVC's cache")
