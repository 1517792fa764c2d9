"""After a kill at any moment, one more `citer run` gives the results of an undisturbed run."""

import shutil
import time
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.drills.files import left_aside
from tests.drills.kills import (
    CLI,
    COMMAND,
    FORK_SERVER,
    INNER,
    PARTS,
    PATIENCE_SECONDS,
    STAGE,
    TRACKER,
    Kill,
    Outcome,
    Run,
    draw,
    outcome,
    torn,
)
from tests.drills.project import configure
from tests.drills.scale import SCALE, SEED, Record
from tests.flows.project import commit, make_clone

pytestmark = pytest.mark.slow

# A rule that keeps one of four answers keeps this promise, so there is a champion. Finetuning has a
# few steps.
SETTINGS: dict[str, dict[str, Any]] = {
    "finetune": {"epochs": 4, "batch_size": 4},
    "evaluate": {"epsilon": 0.995},
}
RETRIED = {INNER, STAGE, COMMAND}
KILLS = draw(4 * SCALE, SEED)


@dataclass(frozen=True)
class Undisturbed:
    """A project before its first run, with the outcome and the seconds of an undisturbed run."""

    project: Path
    home: Path
    outcome: Outcome
    seconds: float


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    project, home = folder / "project", folder / "home"
    make_clone(project)
    with chdir(project):
        configure(SETTINGS)
    commit(project)
    shutil.copytree(project, folder / "run")
    run = Run(folder / "run", home)
    assert run.cli.wait() == 0, run.log.read_text()
    took = run.seconds
    assert run.settle() == []
    shutil.rmtree(run.temporary)
    return Undisturbed(project, home, outcome(folder / "run"), took)


@pytest.mark.parametrize("number", range(len(KILLS)))
def test_one_run_after_a_kill_gives_the_outcome_of_an_undisturbed_run(
    undisturbed: Undisturbed,
    number: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    record_property: Record,
) -> None:
    kill = KILLS[number]
    run = start(undisturbed, kill, tmp_path)
    moment, victim = run.seconds, run.kill(kill.choice)
    left = run.settle()
    seen = f"exit {run.cli.returncode} after {run.seconds:.0f} s, to repair: {torn(run.folder)}"
    again = Run(run.folder, run.home)
    status = again.cli.wait()
    with capsys.disabled():
        print(f"\nkill {number}: {victim} at {moment:.1f} s ({kill.share:.0%}): {seen}", end="")
        print(f"; once more: exit {status} after {again.seconds:.0f} s ", end="", flush=True)
    assert left == []
    assert status == 0, again.log.read_text()
    assert again.settle() == []
    assert outcome(run.folder) == undisturbed.outcome
    assert left_aside(run.folder) == []
    assert [*again.temporary.iterdir()] == []
    shutil.rmtree(tmp_path)  # kept after a failure
    record_property(f"kills during citer run: {victim}", 1)


def start(undisturbed: Undisturbed, kill: Kill, folder: Path) -> Run:
    """Start a run, and return it at the moment of the kill."""
    seconds = undisturbed.seconds
    while True:
        shutil.copytree(undisturbed.project, folder / "project")
        shutil.copytree(undisturbed.home, folder / "home")
        run = Run(folder / "project", folder / "home")
        if not run.ends_within(kill.share * seconds):
            return run
        seconds = run.seconds  # the machine was busier when the first one was measured
        shutil.rmtree(folder)


@pytest.mark.parametrize("part", PARTS)
def test_after_one_process_is_killed_the_run_continues_or_leaves_no_process(
    part: str, tmp_path: Path, record_property: Record
) -> None:
    project = tmp_path / "project"
    make_clone(project)
    command = "sh -c 'echo try >> tries; exec sleep 6000'"
    YAML().dump({"stages": {"wait": {"cmd": command}}}, project / "dvc.yaml")
    run = Run(project, tmp_path / "home")
    wait_for_tries(run, 1)
    run.processes()[part].kill()
    if part in RETRIED:
        wait_for_tries(run, 2)
    if part in {FORK_SERVER, TRACKER}:
        time.sleep(2)  # a stage that ends with them has ended
        wait_for_tries(run, 1)
    if part in {*RETRIED, FORK_SERVER, TRACKER}:
        run.processes()[CLI].kill()
    assert run.settle() == []
    record_property(f"kills during citer run: {part}", 1)


def wait_for_tries(run: Run, count: int) -> None:
    """Wait until the stage's command has started for the `count`th time, and waits."""
    tries = run.folder / "tries"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (
        not tries.exists()
        or len(tries.read_text().splitlines()) < count
        or COMMAND not in run.processes()  # `sh` has not become `sleep` yet
    ):
        assert time.monotonic() < deadline, "the stage's command has not started"
        time.sleep(0.1)
