"""Run the units of a stage in Ray actors."""

import pickle
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Literal

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayError

from citer.errors import TemporaryError
from citer.executors.actor import SECONDS, Actor, Board, Ended
from citer.executors.base import I, Job, R, Unit
from citer.executors.deaths import Deaths
from citer.progress import Advance

Resource = Literal["CPU", "GPU"]
NEEDS = {"CPU": {"num_cpus": 1}, "GPU": {"num_cpus": 0, "num_gpus": 1}}


class RayActors:
    """Runs units in Ray actors, each with a GPU or a CPU core of its own.

    An actor loads the models of a job once, and stays for the next `run`. Machines that join the
    cluster during a run get actors, too. No actor outlives this process.
    """

    remote = True

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._crew = _Crew(resource)

    @property
    def workers(self) -> int:
        """The number of GPUs or cores in the cluster. Raises TemporaryError if all are lost."""
        if number := int(ray.cluster_resources().get(self._resource, 0)):
            return number
        raise TemporaryError(f"the Ray cluster has no {self._resource}")

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        waiting, deaths = deque(units), Deaths(advance)
        crew = self._crew
        crew.take(job)
        try:
            while waiting or crew.tasks:
                crew.grow(min(self.workers, len(waiting) + len(crew.tasks)))
                while waiting and crew.idle:
                    crew.start(waiting.popleft())
                if not (task := crew.ended(deaths)):
                    continue
                try:
                    result = task.result(deaths)
                except RayError as error:  # the actor, its machine or the result is lost
                    crew.end_idle()  # it is one of them, and its machine may have had others
                    deaths.died(task.unit, _reason(error))
                    waiting.append(task.unit)
                else:
                    yield result
        finally:
            crew.end_busy()

    def close(self) -> None:
        """End all actors."""
        self._crew.close()


class _Task:
    """An attempt at a unit, and the actor that makes it."""

    def __init__(self, unit: Unit[Any], actor: ActorHandle, reference: ray.ObjectRef) -> None:
        self.unit = unit
        self.actor = actor
        self.reference = reference
        self.done = 0.0

    def result(self, deaths: Deaths) -> Any:
        """Return the job's result, or raise its exception. Raises RayError if both are lost."""
        ended: Ended = ray.get(self.reference)
        self.report(ended.done, deaths)
        if ended.error:
            raise ended.error
        return ended.result

    def report(self, done: float, deaths: Deaths) -> None:
        deaths.advance(self.unit, done - self.done)
        self.done = done


class _Crew:
    """The actors: those that start, are idle, or have a task.

    Only an actor that has started gets a unit. Another one may wait long for its resource.
    """

    def __init__(self, resource: Resource) -> None:
        self.starting: dict[ray.ObjectRef, ActorHandle] = {}
        self.idle: list[ActorHandle] = []
        self.tasks: dict[int, _Task] = {}  # by attempt
        self._board = ray.remote(num_cpus=0)(Board).remote()
        self._kind = ray.remote(**NEEDS[resource])(Actor)
        self._attempts = count()
        self._job: object = None

    def take(self, job: Job[Any, Any]) -> None:
        """Set the job of the next tasks."""
        if job is not self._job:
            self._job, self._pickled = job, ray.put(pickle.dumps(job))

    def grow(self, size: int) -> None:
        """Start actors until there are `size`."""
        for _ in range(size - len(self.starting) - len(self.idle) - len(self.tasks)):
            actor = self._kind.remote(Path.cwd(), self._board)
            self.starting[actor.ready.remote()] = actor

    def start(self, unit: Unit[Any]) -> None:
        actor, attempt = self.idle.pop(), next(self._attempts)
        reference = actor.run.remote([self._pickled], unit, attempt)
        self.tasks[attempt] = _Task(unit, actor, reference)

    def ended(self, deaths: Deaths) -> _Task | None:
        """Wait a second for a task that ends, and return it. If there is none, report progress.

        Raises TemporaryError if an actor cannot start.
        """
        numbers = {task.reference: number for number, task in self.tasks.items()}
        [*ended], _ = ray.wait([*numbers, *self.starting], timeout=SECONDS)
        if not ended:
            self._report(deaths)
        for reference in ended:
            if reference in numbers:
                task = self.tasks.pop(numbers[reference])
                self.idle.append(task.actor)
                return task
            self._started(reference)
        return None

    def _started(self, reference: ray.ObjectRef) -> None:
        actor = self.starting.pop(reference)
        try:
            ray.get(reference)
        except RayError as error:
            raise TemporaryError(f"an actor of Ray did not start: {_reason(error)}") from None
        self.idle.append(actor)

    def _report(self, deaths: Deaths) -> None:
        with suppress(RayError):  # without the board, progress comes with results
            for attempt, done in ray.get(self._board.read.remote(), timeout=SECONDS).items():
                if task := self.tasks.get(attempt):
                    task.report(done, deaths)

    def end_busy(self) -> None:
        """End the actors that start or have a task."""
        for actor in [*self.starting.values(), *(task.actor for task in self.tasks.values())]:
            ray.kill(actor)
        self.starting.clear()
        self.tasks.clear()

    def end_idle(self) -> None:
        for actor in self.idle:
            ray.kill(actor)
        self.idle.clear()

    def close(self) -> None:
        self.end_busy()
        self.end_idle()
        ray.kill(self._board)


def _reason(error: Exception) -> str:
    """Return one sentence of Ray's long message."""
    lines = str(error).strip().splitlines()
    because = re.search(r"because ([^.]*)", str(error))
    return because[1] if isinstance(error, RayActorError) and because else lines[-1]
