"""After the kill of a stage, or of one of its workers, the stage gives the same files once more.

DRILL_STAGE_KILLS is the number of kills (100 or more in a full drill). DRILL_SEED seeds them.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from citer import checkpoint
from citer.labelling import chunks
from tests.drills.files import Files, contents, left_aside
from tests.drills.project import Settings, make_project
from tests.drills.stages import StageKill, StageRun, draw, remove_outputs

pytestmark = pytest.mark.slow

# The LLM writes references. Answers are computed in several parts, so that some are kept.
SETTINGS: Settings = {"references": {"source": "both"}, "evaluate": {"slots": 1}}
COUNT, SEED = (int(os.environ.get(f"DRILL_{n}", d)) for n, d in (("STAGE_KILLS", 12), ("SEED", 0)))
KILLS = draw(COUNT, SEED)


@dataclass(frozen=True)
class Finished:
    """What an undisturbed stage leaves, and its seconds."""

    files: Files
    seconds: float


class Undisturbed:
    """A project in which every stage has run. A stage runs once more at its first kill."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self._by_stage: dict[tuple[str, ...], Finished] = {}

    def before(self, command: tuple[str, ...], folder: Path) -> Path:
        """Copy the project without the stage's outputs to `folder`; return the copy."""
        project = folder / "project"
        shutil.copytree(self.project, project)
        remove_outputs(command, project)
        return project

    def finished(self, command: tuple[str, ...]) -> Finished:
        if command not in self._by_stage:
            folder = self.project.with_name("".join(command))
            run = StageRun(command, self.before(command, folder), folder / "log")
            assert run.status() == 0, run.log.read_text()
            seconds = run.seconds
            self._by_stage[command] = Finished(contents(folder / "project"), seconds)
            shutil.rmtree(folder)
        return self._by_stage[command]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    folder, threads = tmp_path_factory.mktemp("stages") / "project", torch.get_num_threads()
    folder.mkdir()
    torch.set_num_threads(1)
    with chdir(folder), pytest.MonkeyPatch.context() as patched:
        make_project(SETTINGS)
        patched.setattr(chunks, "CHUNK", 2)
        patched.setattr(checkpoint, "SAVE_SECONDS", 0)
        yield Undisturbed(folder)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("number", range(len(KILLS)))
def test_a_stage_after_its_kill_gives_the_files_of_an_undisturbed_one(
    undisturbed: Undisturbed, number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kill = KILLS[number]
    finished = undisturbed.finished(kill.command)
    run, moment = killed(undisturbed, kill, tmp_path)
    assert run.orphans() == []
    status = run.status()
    project = tmp_path / "project"
    kept = len([*project.glob("data/.partial/**/*.*")])
    again = StageRun(kill.command, project, run.log)
    with capsys.disabled():
        name = " ".join(kill.command)
        print(f"\nkill {number}: {kill.victim} of {name} at {moment:.2f} s", end="")
        print(f" of {finished.seconds:.2f}: exit {status}, kept {kept} files", end="", flush=True)
    assert again.status() == 0, run.log.read_text()
    assert contents(project) == finished.files
    assert left_aside(project) == []
    assert again.orphans() == []
    shutil.rmtree(tmp_path)  # kept after a failure


def killed(undisturbed: Undisturbed, kill: StageKill, folder: Path) -> tuple[StageRun, float]:
    """Start a stage and kill its victim. Return the stage, and the seconds until the kill."""
    seconds = undisturbed.finished(kill.command).seconds
    while True:
        run = StageRun(kill.command, undisturbed.before(kill.command, folder), folder / "log")
        if not run.ends_within(kill.share * seconds) and run.kill(kill.victim, kill.choice):
            return run, run.seconds
        seconds = min(run.seconds, seconds) / 2  # it was faster than the undisturbed one
        shutil.rmtree(folder)
