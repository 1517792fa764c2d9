"""One Prefect task per stage. DVC decides what is stale; Prefect starts and retries."""

import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from prefect import Task, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed
from prefect.tasks import exponential_backoff

from citer.errors import InputError, TemporaryError
from flows.repro import reproduce
from flows.tracking.retraining import log_seconds


def run_stages(plan: Mapping[str, bool], timeout: timedelta) -> Iterator[str]:
    """Run the stages of a `plan`; yield the name of each at its end. The first error ends them."""
    for name, fresh in plan.items():
        own: Task[..., None] = run_stage.with_options(name=name, task_run_name=name)
        own(name, timeout, fresh)
        yield name


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

    The state is `Cached` if the stage was unchanged or DVC restored its outputs.
    """
    start = time.monotonic()
    if fresh or not reproduce(name, timeout, get_run_logger().info):
        return Completed(name="Cached", message="unchanged, or restored from DVC's cache")
    log_seconds(name, time.monotonic() - start)
    return None
