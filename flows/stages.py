"""One Prefect task per stage. DVC decides what is stale; Prefect starts and retries."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event
from typing import Any

from prefect import Task, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed
from prefect.tasks import exponential_backoff

from citer.errors import InputError, TemporaryError
from flows.progress_artifact import progress_shown
from flows.repro import reproduce
from flows.server import has_server
from flows.tracking.retraining import log_seconds

TAG = "citer-stage"  # for Prefect's concurrency limits


class StoppedError(RuntimeError):
    """The flow ended while the stage ran."""


@dataclass(frozen=True)
class Setting:
    """How a flow runs its stages."""

    timeout: timedelta  # of each stage
    variables: Mapping[str, str] = field(default_factory=dict)  # of the stage's environment
    beside: bool = False  # others may run at the same time
    stop: Event = field(default_factory=Event)  # set when the flow ends

    def check(self) -> None:
        """Raise StoppedError if the flow ends."""
        if self.stop.is_set():
            raise StoppedError("the flow was interrupted")


def stage_task(name: str) -> Task[[str, Setting, bool], float | None]:
    """Return the Prefect task that runs the stage `name`. A server can limit how many run."""
    # A temporary server has no limits. It would often answer "busy" when asked for them, and
    # Prefect asks again after two seconds.
    tags = [TAG] if has_server() else []
    return run_stage.with_options(name=name, task_run_name=name, tags=tags)


def _worth_retrying(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    if isinstance(state.data, TemporaryError):
        return True
    return not isinstance(state.data, InputError | StoppedError)


STEP: dict[str, Any] = {
    "cache_policy": NO_CACHE,  # DVC compares the files; Prefect's cache would not
    "persist_result": False,
    "retries": 2,
    "retry_delay_seconds": exponential_backoff(10),
    "retry_condition_fn": _worth_retrying,
}


@task(**STEP)
def run_stage(name: str, setting: Setting, fresh: bool = False) -> Any:
    """Bring one stage up to date, unless `fresh` says that DVC has found it unchanged.

    Completes with the seconds that the stage took. The state is `Cached`, with None, if the stage
    was unchanged or DVC restored its outputs.
    """
    cached: State[Any] = Completed(name="Cached", message="unchanged, or restored from DVC's cache")
    if fresh:
        return cached
    start, log = time.monotonic(), get_run_logger().info
    with progress_shown(name) as progress:
        variables = {**setting.variables, **progress}
        ran = reproduce(name, setting.timeout, log, variables, setting.beside, setting.check)
    if not ran:
        return cached
    taken = time.monotonic() - start
    log_seconds(name, taken)
    return Completed(data=taken)
