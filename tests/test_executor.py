"""In line and forked: the same results, the same errors, and no process left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
import torch

from citer.errors import InputError
from citer.executors.base import InLine, Unit
from citer.executors.processes import Forked
from citer.executors.tables import write_tables
from citer.progress import Advance
from citer.storage.tables import read_table

ORPHANED = """
import os, signal, time
from citer.executors.base import Unit
from citer.executors.processes import Forked

def work(inputs, *, advance):
    advance(os.getpid())
    time.sleep(60)

pids = []
def collect(pid):
    pids.append(pid)
    if len(pids) == 2:
        print(*pids, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

list(Forked(2).run(work, [Unit("1", 1), Unit("2", 2)], collect))
"""

Children = Callable[[], set[psutil.Process]]
pytestmark = pytest.mark.usefixtures("two_threads")


def units(count: int) -> list[Unit[int]]:
    return [Unit(f"unit {n}", n) for n in range(count)]


def ignore(_: float) -> None:
    pass


def products(item: int, *, advance: Advance) -> tuple[int, float, int]:
    """Do matrix products and elementwise work; torch multithreads both."""
    advance(1)
    matrix = torch.full((500, 500), float(item))
    return item, ((matrix @ matrix).sigmoid() + matrix).sum().item(), os.getpid()


def refuse_5(item: int, *, advance: Advance) -> int:
    if item == 5:
        raise InputError("item 5: bad, expected good")
    return item


def interrupt(item: int, *, advance: Advance) -> int:
    os.kill(os.getpid(), signal.SIGINT)
    return item


@pytest.fixture
def children() -> Children:
    """Return the child processes started during the test. Other tests may have left a server."""
    before = set(psutil.Process().children())
    return lambda: set(psutil.Process().children()) - before


def test_forked_results_equal_results_in_line_and_come_once(children: Children) -> None:
    in_line = list(InLine().run(products, units(9), ignore))
    counts: list[float] = []
    forked = list(Forked(2).run(products, units(9), counts.append))
    assert sorted(result[:2] for result in forked) == [result[:2] for result in in_line]
    assert {pid for _, _, pid in in_line} == {os.getpid()}
    assert os.getpid() not in {pid for _, _, pid in forked}
    assert sum(counts) == 9
    assert not children()


def test_no_more_processes_run_than_there_are_workers(children: Children) -> None:
    running = [len(children()) for _ in Forked(3).run(products, units(9), ignore)]
    assert max(running) <= 3


def test_the_threads_of_the_parent_still_work_after_a_fork() -> None:
    list(Forked(2).run(products, units(4), ignore))
    assert torch.get_num_threads() == 2
    assert (torch.ones(1000, 1000) @ torch.ones(1000, 1000)).sum() == 1e9


@pytest.mark.parametrize("executor", [InLine(), Forked(2)])
def test_an_error_is_raised_with_its_unit(executor: InLine | Forked, children: Children) -> None:
    with pytest.raises(InputError, match="item 5: bad, expected good") as raised:
        list(executor.run(refuse_5, units(9), ignore))
    assert raised.value.__notes__[0] == "while running unit 5"
    assert not children()


def test_a_workers_error_carries_its_traceback() -> None:
    with pytest.raises(InputError) as raised:
        list(Forked(2).run(refuse_5, units(9), ignore))
    assert "in refuse_5" in raised.value.__notes__[1]


def test_workers_leave_an_interrupt_to_the_parent() -> None:
    assert sorted(Forked(2).run(interrupt, units(4), ignore)) == [0, 1, 2, 3]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Handle ^C, which a shell makes its background jobs ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_parent_leaves_no_process(children: Children) -> None:
    def interrupted(_: float) -> None:
        assert children()
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        list(Forked(2).run(products, units(9), interrupted))
    assert not children()


def test_closing_early_leaves_no_process(children: Children) -> None:
    results = Forked(2).run(products, units(1000), ignore)
    next(results)
    assert children()
    results.close()
    assert not children()


def test_no_process_outlives_a_killed_parent() -> None:
    run = subprocess.run(
        [sys.executable, "-c", ORPHANED], stdout=subprocess.PIPE, timeout=60, check=False
    )
    assert run.returncode == -signal.SIGKILL
    workers = [int(pid) for pid in run.stdout.split()]
    assert len(workers) == 2
    deadline = time.monotonic() + 10
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, workers))


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


COLUMN = pa.schema([pa.field("item", pa.int64(), nullable=False)])


def to_table(item: int, *, advance: Advance) -> pa.Table:
    return pa.table({"item": [refuse_5(item, advance=advance)]}, schema=COLUMN)


@pytest.mark.parametrize("executor", [InLine(), Forked(2)])
def test_finished_files_remain_after_a_failure(executor: InLine | Forked, tmp_path: Path) -> None:
    inputs = {tmp_path / f"{n}.parquet": n for n in (1, 2, 5)}
    with pytest.raises(InputError, match="item 5"):
        write_tables(executor, to_table, inputs, COLUMN, {}, ignore)
    assert not (tmp_path / "5.parquet").exists()
    assert read_table(tmp_path / "1.parquet", COLUMN)["item"].to_pylist() == [1]
