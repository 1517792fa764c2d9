"""Run the units of a stage in the actors of a Ray cluster.

All machines need the same environment, and the project and its models under the same paths.

Ray's own retries are no substitute. A restarted actor may wait for ever for the GPU of a lost
machine, a task without an actor loads its models in each unit, and Ray repeats without an end a
task for which memory ran out.
"""

import os
import pickle
import re
import socket
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayError, RayTaskError

from citer.errors import InputError, TemporaryError
from citer.executors.base import I, Job, R, Unit, count_death, noted
from citer.progress import Advance

Resource = Literal["CPU", "GPU"]
NEEDS = {"CPU": {"num_cpus": 1}, "GPU": {"num_cpus": 0, "num_gpus": 1}}
SECONDS = 1.0  # between two looks for machines that have joined
CURRENT = Path("/tmp/ray/ray_current_cluster")  # `ray start` writes the cluster's address to it


class _Task(NamedTuple):
    """A unit, and the actor that runs it."""

    unit: Unit[Any]
    actor: ActorHandle


Tasks = dict[ObjectRef, _Task]


def connect(resource: Resource) -> "RayActors":
    """Connect this process to the Ray cluster of `$RAY_ADDRESS`, or of `ray start` on this machine.

    Raises InputError if no cluster answers.
    """
    named = os.environ.get("RAY_ADDRESS")
    address = named or (CURRENT.read_text() if CURRENT.exists() else "")
    if not _answers(address):
        lost = f"RAY_ADDRESS: {named!r}: does not answer" if named else "Ray: no cluster runs here"
        expected = "expected HOST:PORT of a Ray cluster, or `ray start --head` on this machine"
        raise InputError(f"{lost}, {expected}")
    try:
        ray.init(address, ignore_reinit_error=True, logging_level="error", log_to_driver=False)
    except (ConnectionError, RuntimeError) as error:
        expected = "expected a cluster that this machine has joined"
        token = "RAY_AUTH_MODE=token if it has a token"
        reason = f"{error}, {expected}, and {token}"
        raise InputError(f"Ray at {address!r}: {reason}") from None
    return RayActors(resource)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=10):
            return True
    except (OSError, OverflowError, ValueError):
        return False


class RayActors:
    """Runs units in Ray actors, each with a GPU or a CPU core of its own.

    An actor loads the models of a job once, and stays for the next `run`. Machines that join the
    cluster during a run get actors, too. No actor outlives this process. A unit's progress comes
    with its result.
    """

    remote = True

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._kind = ray.remote(**NEEDS[resource])(_Actor)
        # Only an actor that has started gets a unit. Another one may wait long for its resource.
        self._starting: dict[ObjectRef, ActorHandle] = {}
        self._idle: list[ActorHandle] = []
        self._job: object = None

    @property
    def workers(self) -> int:
        """The number of GPUs or cores in the cluster. Raises TemporaryError if all are lost."""
        if number := int(ray.cluster_resources().get(self._resource, 0)):
            return number
        raise TemporaryError(f"the Ray cluster has no {self._resource}")

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        if job is not self._job:
            self._job, self._pickled = job, ray.put(pickle.dumps(job))
        waiting, deaths, tasks = deque(units), Counter[str](), Tasks()
        try:
            while waiting or tasks:
                self._grow(min(self.workers - len(tasks), len(waiting)))
                while waiting and self._idle:
                    self._start(waiting.popleft(), tasks)
                if not (reference := self._ready(tasks)):
                    continue
                task = tasks.pop(reference)
                self._idle.append(task.actor)
                try:
                    result, done = ray.get(reference)
                except RayTaskError as error:
                    error.cause.add_note(str(error))  # with the traceback
                    raise error.cause from None
                except RayError as error:  # the actor, its machine or the result is lost
                    while self._idle:  # it is one of them, and its machine may have had others
                        ray.kill(self._idle.pop())
                    count_death(deaths, task.unit, _reason(error))
                    waiting.append(task.unit)
                else:
                    advance(done)
                    yield result
        finally:
            for actor in [*self._starting.values(), *(task.actor for task in tasks.values())]:
                ray.kill(actor)
            self._starting.clear()

    def _grow(self, free: int) -> None:
        """Start actors until there are `free` without a task."""
        for _ in range(free - len(self._starting) - len(self._idle)):
            actor = self._kind.remote(Path.cwd())
            self._starting[actor.ready.remote()] = actor

    def _start(self, unit: Unit[Any], tasks: Tasks) -> None:
        actor = self._idle.pop()
        # The pickled job is in a list, because Ray would fetch a bare reference.
        tasks[actor.run.remote([self._pickled], unit)] = _Task(unit, actor)

    def _ready(self, tasks: Tasks) -> ObjectRef | None:
        """Wait a second for a task that ends, and return it, or None.

        Raises TemporaryError if an actor cannot start.
        """
        ready, _ = ray.wait([*tasks, *self._starting], timeout=SECONDS)
        if ready and (actor := self._starting.pop(ready[0], None)):
            try:
                ray.get(ready[0])
            except RayError as error:
                raise TemporaryError(f"an actor of Ray did not start: {_reason(error)}") from None
            self._idle.append(actor)
        return next((reference for reference in ready if reference in tasks), None)


def _reason(error: Exception) -> str:
    """Return one sentence of Ray's long message."""
    lines = str(error).strip().splitlines()
    because = re.search(r"because ([^.]*)", str(error))
    return because[1] if isinstance(error, RayActorError) and because else lines[-1]


class _Actor:
    """Runs units, on the main thread.

    Only there can a slow comparison of two answers be ended (`citer.data.tasks.math_values`).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reference: ObjectRef | None = None
        self.job: Job[Any, Any] | None = None

    def ready(self) -> None:
        """Raises InputError if the project's folder is not on this machine."""
        if not self.folder.is_dir():
            expected = "expected the project's folder, under the same path on every machine"
            raise InputError(f"{self.folder}: not on {socket.gethostname()}: {expected}")
        os.chdir(self.folder)

    def run(self, job: list[ObjectRef], unit: Unit[Any]) -> tuple[Any, float]:
        """Return the result of a unit, and all of its progress."""
        done = 0.0

        def advance(count: float) -> None:
            nonlocal done
            done += count

        with noted(unit):
            result = self._loaded(job[0])(unit.inputs, advance=advance)
        return result, done

    def _loaded(self, reference: ObjectRef) -> Job[Any, Any]:
        """Return the job. Unpickling it loads its models."""
        if not self.job or reference != self.reference:
            import torch

            torch.set_num_threads(1)  # results depend on the number
            self.job, self.reference = pickle.loads(ray.get(reference)), reference
        return self.job
