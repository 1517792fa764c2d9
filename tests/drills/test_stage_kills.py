"""A stage whose worker is killed goes on; a stage that is killed gives the same files once more."""

import shutil
from pathlib import Path
from signal import SIGKILL

import pytest

from citer.labelling import labeller
from tests.drills.files import contents, left_aside
from tests.drills.scale import SCALE, SEED, Record
from tests.drills.stages import StageKill, StageRun, Undisturbed, draw

pytestmark = pytest.mark.slow

KILLS = draw(10 * SCALE, SEED)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep unfinished work often. What is computed does not depend on it."""
    monkeypatch.setattr(labeller, "CHUNK", 2)


@pytest.mark.parametrize("number", range(len(KILLS)))
def test_a_stage_after_its_kill_gives_the_files_of_an_undisturbed_one(
    stages: Undisturbed,
    number: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    record_property: Record,
) -> None:
    kill = KILLS[number]
    finished = stages.finished(kill.command)
    run, moment = killed(stages, kill, tmp_path)
    assert run.orphans() == []
    status = run.status()
    kept = len([*run.project.glob("data/.partial/**/*.*")])
    again = StageRun(kill.command, run.project, run.log)
    with capsys.disabled():
        name = " ".join(kill.command)
        print(f"\nkill {number}: {kill.victim} of {name} at {moment:.2f} s", end="")
        print(f" of {finished.seconds:.2f}: exit {status}, kept {kept} files", end="", flush=True)
    assert status == (0 if kill.victim == "worker" else -SIGKILL), run.log.read_text()
    assert again.status() == 0, run.log.read_text()
    assert contents(run.project) == finished.files
    assert left_aside(run.project) == []
    assert again.orphans() == []
    shutil.rmtree(tmp_path)  # kept after a failure
    record_property(f"kills of a single stage: {kill.victim}", 1)


def killed(stages: Undisturbed, kill: StageKill, folder: Path) -> tuple[StageRun, float]:
    """Start a stage and kill its victim. Return the stage, and the seconds until the kill."""
    seconds = stages.finished(kill.command).seconds
    while True:
        run = StageRun(
            kill.command, stages.before(kill.command, folder / "project"), folder / "log"
        )
        if not run.ends_within(kill.share * seconds) and run.kill(kill.victim, kill.choice):
            moment = run.seconds
            if kill.victim == "worker" or run.status() != 0:
                return run, moment
        seconds = min(run.seconds, seconds) / 2  # it was faster than the stages one
        shutil.rmtree(folder)
