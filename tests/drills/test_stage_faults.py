"""A stage on a full or read-only disk says so in one line, and leaves nothing half-written.

Once the disk is in order, the stage gives the files of an undisturbed one.
"""

import os
import resource
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from citer.errors import LONGEST
from tests.drills.files import contents, left_aside
from tests.drills.scale import SCALE, Record
from tests.drills.stages import STAGES, StageRun, Undisturbed, outputs

pytestmark = pytest.mark.slow

Command = tuple[str, ...]
DRILLED = STAGES if SCALE > 1 else (("label", "1"), ("report",))
every_stage = pytest.mark.parametrize("command", DRILLED, ids="-".join)


def shell(*command: object) -> None:
    subprocess.run([*map(str, command)], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        shell("mount", "-t", "tmpfs", "tmpfs", folder)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root can mount a disk")
    yield folder
    shell("umount", "--lazy", folder)


@every_stage
def test_a_full_disk(
    stages: Undisturbed, command: Command, disk: Path, record_property: Record
) -> None:
    stages.before(command, disk)
    room = sum(stages.sizes(command)) // 2
    shell("mount", "-o", f"remount,size={used(disk) + room}", disk)
    refused(StageRun(command, disk, disk.with_name("log")), "No space left on device")
    shell("mount", "-o", "remount,size=1g", disk)
    succeeds(stages, command, disk)
    record_property("full disks below a stage", 1)


@every_stage
def test_a_limit_to_the_size_of_files(
    stages: Undisturbed, command: Command, tmp_path: Path, record_property: Record
) -> None:
    project = stages.before(command, tmp_path / "project")
    limit = max(stages.sizes(command)) // 2
    limited = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))
    refused(StageRun(command, project, tmp_path / "log", limited), "File too large")
    succeeds(stages, command, project)
    record_property("limits to the size of a stage's files", 1)


@every_stage
def test_a_read_only_disk(
    stages: Undisturbed, command: Command, disk: Path, record_property: Record
) -> None:
    stages.before(command, disk)
    before = contents(disk)
    shell("mount", "-o", "remount,ro", disk)
    refused(StageRun(command, disk, disk.with_name("log")), "Read-only file system")
    assert contents(disk) == before
    shell("mount", "-o", "remount,rw", disk)
    succeeds(stages, command, disk)
    record_property("read-only disks below a stage", 1)


def used(disk: Path) -> int:
    """Return how many bytes of a disk are used."""
    space = os.statvfs(disk)
    return (space.f_blocks - space.f_bfree) * space.f_frsize


def refused(run: StageRun, reason: str) -> None:
    """Assert that a stage ends with one line, which names a file and the reason."""
    status, said = run.status(), run.log.read_text()
    lines = [line for line in said.splitlines() if line.startswith("citer: ")]
    print(" ".join(run.command), status, lines)
    assert status == 1, said
    assert len(lines) == 1, said
    assert said.endswith(f"{lines[0]}\n")
    assert lines[0].endswith(reason)
    assert len(lines[0]) < LONGEST
    assert "Traceback" not in said
    assert run.orphans() == []
    assert left_aside(run.project) == []


def succeeds(stages: Undisturbed, command: Command, project: Path) -> None:
    """Assert that nothing half-written is left, and that the stage now gives the same files."""
    expected = stages.finished(command).files
    own = [path.as_posix() for path in outputs(command)]
    for name, digest in contents(project).items():
        assert not name.startswith(tuple(own)) or digest == expected[name], name
    again = StageRun(command, project, project.with_name("log"))
    assert again.status() == 0, again.log.read_text()
    assert contents(project) == expected
    assert left_aside(project) == []
