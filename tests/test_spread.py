"""Work on one process and on several: the same results, the same errors, nobody left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import psutil
import pytest
import torch

from citer.errors import InputError
from citer.spread import spread

ORPHANED = """
import os, signal, sys, time
import torch
from citer.spread import spread

def work(items):
    yield os.getpid()
    time.sleep(60)

torch.set_num_threads(2)
results = spread(work, [1, 2], fork=True)
print(next(results), next(results), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


Children = Callable[[], set[psutil.Process]]
pytestmark = pytest.mark.usefixtures("two_threads")


def products(items: Sequence[int]) -> Iterator[tuple[int, float, int]]:
    """Parallel regions of matrix products and of elementwise work, had there been threads."""
    for item in items:
        matrix = torch.full((500, 500), float(item))
        yield item, ((matrix @ matrix).sigmoid() + matrix).sum().item(), os.getpid()


def refused(items: Sequence[int]) -> Iterator[int]:
    for item in items:
        if item == 5:
            raise InputError("item 5: bad, expected good")
        yield item


def killed(items: Sequence[int]) -> Iterator[int]:
    for item in items:
        if item == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        yield item


@pytest.fixture
def children() -> Children:
    """The processes started since; other tests may have left a server running."""
    before = set(psutil.Process().children())
    return lambda: set(psutil.Process().children()) - before


def test_the_results_are_those_of_one_process_each_item_once(children: Children) -> None:
    torch.set_num_threads(1)
    alone = {item: total for item, total, _ in spread(products, range(9), fork=True)}
    torch.set_num_threads(2)
    found = list(spread(products, range(9), fork=True))
    assert sorted(item for item, _, _ in found) == list(range(9))
    assert {item: total for item, total, _ in found} == alone
    workers = {pid: [item for item, _, own in found if own == pid] for _, _, pid in found}
    assert sorted(workers.values()) == [[0, 2, 4, 6, 8], [1, 3, 5, 7]]
    assert os.getpid() not in workers
    assert not children()


def test_one_thread_or_too_few_items_start_no_process() -> None:
    assert [pid for _, _, pid in spread(products, [1], fork=True)] == [os.getpid()]
    assert {pid for _, _, pid in spread(products, range(9), fork=False)} == {os.getpid()}
    torch.set_num_threads(1)
    assert {pid for _, _, pid in spread(products, range(3), fork=True)} == {os.getpid()}


def test_the_parents_threads_work_on() -> None:
    list(spread(products, range(4), fork=True))
    assert torch.get_num_threads() == 2
    assert (torch.ones(1000, 1000) @ torch.ones(1000, 1000)).sum() == 1e9


def test_what_a_process_raises_is_raised_here(children: Children) -> None:
    with pytest.raises(InputError, match="item 5: bad, expected good") as raised:
        list(spread(refused, range(9), fork=True))
    assert "in refused" in raised.value.__notes__[0], "where it was raised"
    assert not children()


def test_a_process_that_dies_is_an_error_and_not_an_end(children: Children) -> None:
    with pytest.raises(RuntimeError, match="exit status -9"):
        list(spread(killed, range(9), fork=True))
    assert not children()


def test_closing_early_leaves_no_process(children: Children) -> None:
    results = spread(products, range(1000), fork=True)
    next(results)
    assert len(children()) == 2
    results.close()
    assert not children()


def test_no_process_outlives_a_killed_parent() -> None:
    run = subprocess.run(
        [sys.executable, "-c", ORPHANED], stdout=subprocess.PIPE, timeout=30, check=False
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
