"""The protocol of executors, and `InLine`, which runs units in this process.

A unit is a part of a stage's inputs. A job is a function of a unit's inputs. It writes a file or
returns a picklable result. Units and jobs can be pickled. An `Engine` or a `LanguageModel` is
pickled as its folder and settings.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from citer.errors import TemporaryError
from citer.progress import Advance
from citer.sections import Section

ATTEMPTS = 3  # a unit whose worker died so often is the likely cause

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")
I_contra = TypeVar("I_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Unit(NamedTuple, Generic[I]):
    """A part of a stage's inputs. Errors give its name."""

    name: str
    inputs: I


class Job(Protocol[I_contra, R_co]):
    """A function of a unit's inputs. Equal inputs give equal results."""

    def __call__(self, inputs: I_contra, /, *, advance: Advance) -> R_co: ...


class Executor(Protocol):
    """Runs units, in this process or in others."""

    @property
    def remote(self) -> bool:
        """Whether workers load models from their folders, so that this process needs no weights."""

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        """Yield the result of each unit once, in any order.

        If a worker dies, another one runs its unit, and `advance` takes the unit's progress back.
        A unit never runs twice at the same time. Raises the job's exception at once, with the
        unit's name as a note, and TemporaryError if the workers of a unit died `ATTEMPTS` times.
        """


class InLine:
    """Runs units one after another in this process."""

    remote = False

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        for unit in units:
            with noted(unit):
                result = job(unit.inputs, advance=advance)
            yield result


@contextmanager
def noted(unit: Unit[Any]) -> Iterator[None]:
    """Add the unit's name to an exception."""
    try:
        yield
    except Exception as error:
        error.add_note(f"while running {unit.name}")
        raise


def count_death(deaths: Counter[str], unit: Unit[Any], reason: str) -> None:
    """Count the death of a unit's worker. Raises TemporaryError if the unit may not run again."""
    deaths[unit.name] += 1
    if deaths[unit.name] == ATTEMPTS:
        raise TemporaryError(
            f"{unit.name}: {ATTEMPTS} workers died while they ran it, the last with {reason}"
        )


def when_closed(pipe: int, end: Callable[[], None]) -> None:
    """Start a thread that calls `end` when no process can write to the pipe any more.

    `pipe` is the descriptor of its reading end. Nothing may be written to it.
    """

    def watch() -> None:
        os.read(pipe, 1)
        end()

    threading.Thread(target=watch, daemon=True).start()


class WorkerParams(Section):
    """Who runs the parts of a stage. No stage of DVC names it: results depend on threads at most.

    executor: `local`, this machine; `ray`, a cluster (the extra `ray`)
    """

    executor: Literal["local", "ray"] = "local"
