"""Peak memory of the stages as problems grow tenfold: each a process of its own, as DVC runs it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from ruamel.yaml import YAML

from benchmarks.report import Finding, Target
from citer.progress import progress
from citer.stages import paths

FEW = 130  # of each family: more than fill a shard, a chunk of labels and the slots
GROWTH = 10
CHAIN = (
    ("prepare",),
    ("score_llm",),
    ("score_slm",),
    ("router0",),
    ("label", "1"),
    ("train", "1"),
    ("rivals",),
    ("evaluate", "1"),
)
MEASURED = ("score_llm", "score_slm", "label", "evaluate")
PEAK = Path(__file__).with_name("peak.py")
COMMAND = (sys.executable, "-c", "from citer.cli import main; main()")


def growth() -> list[Finding]:
    """Row 9: peak resident memory at ten times the problems over that at once."""
    few, many = peaks(FEW), peaks(GROWTH * FEW)
    return [
        Finding(
            9,
            f"peak memory of {stage}, {GROWTH} x the problems / 1 x",
            "embedded",
            many[stage] / few[stage],
            Target("≤", 1.1),
            {
                f"MB at {2 * FEW} problems": few[stage] / 2**20,
                f"MB at {2 * GROWTH * FEW} problems": many[stage] / 2**20,
            },
        )
        for stage in MEASURED
    ]


def peaks(problems: int) -> dict[str, int]:
    """Bytes that each stage holds at most, with so many problems of each family in each split.

    The shipped SLM stands in for the finetuned one.
    """
    with TemporaryDirectory() as folder:
        project = Path(folder)
        _make_project(project, problems)
        found = {}
        with progress(f"stages on {problems} problems a family", len(CHAIN), "stages") as advance:
            for stage in CHAIN:
                found[stage[0]] = peak([*COMMAND, *stage], project)
                advance(1)
        return found


def _make_project(project: Path, problems: int) -> None:
    yaml = YAML()
    params = yaml.load(Path("params.yaml"))
    for name in ("slm", "llm"):
        params["pair"][name] = str(Path(params["pair"][name]).absolute())
    for split in ("sft", "preference", "validation", "test"):
        params["prepare"]["toy"][split] = problems if split != "sft" else 1
    yaml.dump(params, project / "params.yaml")
    shutil.copytree(params["pair"]["slm"], project / paths.SLM)


def peak(command: list[str], folder: Path) -> int:
    """Most bytes resident at once of a command, run in `folder`, that must succeed."""
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, PEAK, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return int(done.stdout)
