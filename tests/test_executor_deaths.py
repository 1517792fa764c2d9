"""A dead worker's unit is done by another worker. A unit that kills its workers is named."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from weakref import WeakSet

import pytest

from citer.errors import TemporaryError
from citer.executors.base import Executor, Job, Unit
from citer.executors.processes import CPU, Forked, Spawned
from citer.progress import Advance
from tests.killing import end_workers

UNITS = [Unit(f"unit {n}", n) for n in range(9)]


class DieAt5:
    """Counts to 3, and dies at item 5 in the middle, `times` times. Each death leaves a file."""

    def __init__(self, folder: Path, times: int) -> None:
        self.folder = folder
        self.times = times

    def __call__(self, item: int, /, *, advance: Advance) -> int:
        advance(2)
        died = len(list(self.folder.iterdir()))
        if item == 5 and died < self.times:
            Path(self.folder, str(died)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        advance(1)
        return item


class Engine:
    """Tells how many engines its process holds."""

    held: ClassVar = WeakSet["Engine"]()

    def __init__(self) -> None:
        self.layers = 2

    def __setstate__(self, state: dict[str, int]) -> None:
        vars(self).update(state)
        self.held.add(self)

    def __call__(self, item: int, /, *, advance: Advance) -> int:
        return len(self.held)


@pytest.fixture(scope="module")
def spawned() -> Iterator[Executor]:
    yield Spawned([CPU, CPU])
    end_workers()


@pytest.fixture(params=[1, 2, 4, pytest.param("devices", marks=pytest.mark.slow)])
def executor(request: pytest.FixtureRequest) -> Executor:
    if request.param == "devices":
        found: Executor = request.getfixturevalue("spawned")
        return found
    return Forked(request.param)


def test_another_worker_runs_the_unit_of_a_dead_one(executor: Executor, tmp_path: Path) -> None:
    counts: list[float] = []
    assert sorted(executor.run(DieAt5(tmp_path, 2), UNITS, counts.append)) == list(range(9))
    assert sum(counts) == 3 * 9
    assert counts.count(-2) == 2, "the progress of both deaths is taken back"


def test_a_unit_whose_workers_die_three_times_is_named(executor: Executor, tmp_path: Path) -> None:
    results = executor.run(DieAt5(tmp_path, 9), UNITS, lambda _: None)
    message = (
        r"unit 5: 3 workers died .* exit status -9 \(SIGKILL\), as Linux does if memory runs out"
    )
    done: list[int] = []
    with pytest.raises(TemporaryError, match=message):
        done.extend(results)
    assert sorted(done) == [0, 1, 2, 3, 4, 6, 7, 8], "all others are done"


@pytest.mark.slow
def test_no_unit_is_to_blame_for_a_process_that_died_between_two_runs(
    spawned: Executor, tmp_path: Path
) -> None:
    assert len([*spawned.run(DieAt5(tmp_path, 0), UNITS[:2], lambda _: None)]) == 2
    end_workers()
    assert [*spawned.run(DieAt5(tmp_path, 2), [UNITS[5]], lambda _: None)] == [5]


@pytest.mark.slow
def test_a_process_of_a_device_drops_an_engine_before_the_next_one_runs(spawned: Executor) -> None:
    """Its KV caches may fill a GPU."""
    for _ in range(2):
        assert set(spawned.run(Engine(), UNITS, lambda _: None)) == {1}


class TwoPartsError(Exception):
    """Pickle cannot rebuild it: it would lack the second argument."""

    def __init__(self, one: str, *, two: str) -> None:
        super().__init__(f"{one} and {two}")


def raise_two_parts(item: int, /, *, advance: Advance) -> int:
    raise TwoPartsError("item", two=str(item))


def raise_a_function(item: int, /, *, advance: Advance) -> int:
    raise ValueError(lambda: item)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (raise_two_parts, "TwoPartsError: item and "),
        (raise_a_function, "ValueError: <function raise_a_function"),
    ],
)
def test_an_exception_that_pickle_cannot_rebuild_is_told_and_not_repeated(
    job: Job[int, int], said: str
) -> None:
    with pytest.raises(RuntimeError, match=f"^{said}") as caught:
        [*Forked(2).run(job, UNITS[:2], lambda _: None)]
    assert any("_answer" in note for note in caught.value.__notes__)
