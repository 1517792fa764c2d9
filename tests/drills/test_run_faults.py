"""`citer run` beside a second run, without its Prefect server, or when the clock is set back.

The only stage of the clone waits for the test, so that the fault falls into the run.
"""

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from flows.tracking.store import open_store
from tests.drills.files import left_aside
from tests.drills.kills import PATIENCE_SECONDS, Run
from tests.drills.scale import SCALE, Record
from tests.flows.deployment import RETRAINS
from tests.flows.prefect_server import Server, running
from tests.flows.servers import answers, free_port, until
from tests.flows.tracking.registered import holder, version, versions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SCALE == 1, reason="takes a minute each: make drill"),
]

WAITS = "touch begun && until [ -e go ]; do sleep 0.1; done && rm begun"
CLOCK = Path(__file__).with_name("clock.c")


def set_stage(seed: int = 1) -> None:
    """Make a pipeline of one stage, which waits for the file `go`."""
    commands = [WAITS, RETRAINS.format(seed)]
    stage: dict[str, Any] = {"cmd": commands, "outs": ["data/preferences"]}
    pipeline = {"stages": {"evaluate": {"foreach": ["1"], "do": stage}}}
    YAML().dump(pipeline, Path("dvc.yaml"))


def begun(home: Path, **env: str) -> Run:
    """Start a run, and return it once its stage waits."""
    run = Run(Path.cwd(), home, env)
    until(lambda: Path("begun").exists() or run.cli.poll() is not None, PATIENCE_SECONDS)
    assert run.cli.poll() is None, run.log.read_text()
    return run


def finish(run: Run) -> int:
    """Let the stage go on. Return the exit status of the run."""
    Path("go").touch()
    status = run.cli.wait(PATIENCE_SECONDS)
    print(f"\nexit {status}:", *run.log.read_text().splitlines()[-3:], sep="\n    ")
    assert run.settle() == []
    return status


def check(champion: int = 1) -> None:
    """Assert that the last registered version is the champion, and that nothing is half-written."""
    open_store("citer")
    assert (versions(), holder("champion")) == ([*range(1, champion + 1)], champion)
    assert left_aside(Path()) == []


def test_a_lost_prefect_server(project: Path, tmp_path: Path, record_property: Record) -> None:
    set_stage()
    port = free_port()
    server = Server(f"http://127.0.0.1:{port}/api", tmp_path / "prefect")
    start = ("server", "start", "--port", str(port))
    with running(server.env, *start):
        until(lambda: answers(server.url), PATIENCE_SECONDS)
        run = begun(tmp_path / "home", PREFECT_API_URL=server.url)
    assert finish(run) == 1
    assert f"citer: Prefect at {server.url}" in run.log.read_text()
    with running(server.env, *start):
        until(lambda: answers(server.url), PATIENCE_SECONDS)
        again = Run(Path.cwd(), tmp_path / "home", {"PREFECT_API_URL": server.url})
        assert finish(again) == 0
    check()
    record_property("ends of Prefect's server", 1)


def test_two_runs_at_once(project: Path, tmp_path: Path, record_property: Record) -> None:
    set_stage()
    run = begun(tmp_path / "home")
    second = Run(project, tmp_path / "other")
    until(lambda: "waiting for" in second.log.read_text(), PATIENCE_SECONDS)
    assert [finish(run), finish(second)] == [0, 0]
    check()
    record_property("second runs beside the first", 1)


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
def test_a_clock_that_is_set_back_by_a_day(
    project: Path, tmp_path: Path, record_property: Record
) -> None:
    library, set_back = tmp_path / "clock.so", tmp_path / "set-back"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, CLOCK], check=True)
    env = {"LD_PRELOAD": str(library), "CLOCK_SET_BACK": str(set_back)}
    set_stage()
    run = begun(tmp_path / "home", **env)
    set_back.touch()
    assert finish(run) == 0
    check()
    assert version(1).creation_timestamp / 1000 < time.time() - 23 * 60 * 60
    Path("go").unlink()
    set_stage(2)
    assert finish(begun(tmp_path / "home", **env)) == 0
    check(champion=2)
    record_property("clocks set back by a day", 1)
