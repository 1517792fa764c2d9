"""Ray's actors run all units, and no death loses one or is hidden."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from citer.errors import InputError, TemporaryError
from citer.executors import actors as joining
from citer.executors.base import Unit
from tests.cluster import jobs
from tests.cluster.conftest import Cluster, end

pytestmark = pytest.mark.slow
UNITS = [Unit(f"unit {n}", n) for n in range(9)]

STAGE = """
import sys
from pathlib import Path
from citer.executors.base import Unit
from citer.executors.actors import connect
from tests.cluster.jobs import sleep

list(connect("CPU").run(sleep, [Unit("one", Path(sys.argv[1]))], print))
"""


def ignore(_: float) -> None:
    pass


def test_units_run_on_the_main_thread_in_the_folder_of_the_stage(cluster: Cluster) -> None:
    """An actor stays for the next run, and all progress arrives."""
    counts: list[float] = []
    places = [
        place for _ in range(2) for place in cluster.executor.run(jobs.place, UNITS, counts.append)
    ]
    assert sorted(place.item for place in places) == sorted([*range(9)] * 2)
    assert len({place.pid for place in places} - {os.getpid()}) == 1
    assert {place.folder for place in places} == {os.getcwd()}
    assert all(place.on_main_thread for place in places)
    assert sum(counts) == 18


def test_an_error_is_raised_at_once_with_its_unit_and_traceback(cluster: Cluster) -> None:
    with pytest.raises(InputError, match="item 5: bad, expected good") as raised:
        list(cluster.executor.run(jobs.refuse_5, UNITS, ignore))
    name, traceback = raised.value.__notes__
    assert name == "while running unit 5"
    assert "in refuse_5" in traceback


def test_a_unit_whose_actors_die_three_times_is_named(cluster: Cluster) -> None:
    done: list[int] = []
    message = "unit 5: 3 workers died while they ran it, the last with its worker process has died"
    with pytest.raises(TemporaryError, match=message):
        done.extend(cluster.executor.run(jobs.die_at_5, UNITS, ignore))
    assert sorted(done) == [0, 1, 2, 3, 4, 6, 7, 8]


def test_no_progress_counts_of_a_unit_whose_actor_died(cluster: Cluster, tmp_path: Path) -> None:
    counts: list[float] = []
    list(cluster.executor.run(jobs.die_once, [Unit("unit", tmp_path)], counts.append))
    assert counts == [5]


def test_a_machine_that_joins_during_a_run_helps_and_one_that_leaves_is_replaced(
    cluster: Cluster, tmp_path: Path
) -> None:
    machine = cluster.start_machine(cores=1)
    meeting = [Unit(str(n), tmp_path) for n in range(2)]
    try:
        pids = list(cluster.executor.run(jobs.meet, meeting, ignore))
    finally:
        end(machine)
    assert len(set(pids)) == 2
    assert len(list(cluster.executor.run(jobs.place, UNITS, ignore))) == 9


def test_a_machine_without_the_projects_folder_is_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citer.executors.actors.Path.cwd", lambda: Path("/not/shared"))
    with cluster.machine(cores=1):
        executor = joining.connect("CPU")
        with pytest.raises(TemporaryError, match=r"/not/shared: not on .+: expected the project's"):
            list(executor.run(jobs.place, UNITS, ignore))


def test_no_actor_of_a_killed_stage_is_left(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.machine(cores=1):
        stage = subprocess.Popen([sys.executable, "-c", STAGE, str(tmp_path)])
        while not list(tmp_path.iterdir()):
            assert stage.poll() is None
            time.sleep(0.1)
        (actor,) = (psutil.Process(int(file.name)) for file in tmp_path.iterdir())
        stage.kill()
        stage.wait()
        _, alive = psutil.wait_procs([actor], timeout=60)
    assert not alive
