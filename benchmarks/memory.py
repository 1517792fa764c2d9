"""Compare the peak memory of stages on few and on ten times as many problems."""

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

FEW = 130  # per family: more than a shard, a chunk of labels or the slots hold
GROWTH = 10
CHAIN = [
    "prepare",
    "score_llm",
    "score_slm",
    "router0",
    "label 1",
    "train 1",
    "rivals",
    "evaluate 1",
]
MEASURED = ("score_llm", "score_slm", "label", "evaluate")
COMMAND = (sys.executable, "-c", "from citer.cli.main import main; main()")
# Runs a command with its output on stderr, and prints its peak resident memory. This needs a small
# process of its own: the kernel starts a child's peak at its parent's size.
PEAK = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=sys.stderr)
_, status, usage = os.wait4(child.pid, 0)
print(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
raise SystemExit(os.waitstatus_to_exitcode(status))
"""


def growth() -> list[Finding]:
    """Row 9: peak resident memory with ten times as many problems / with few problems."""
    few, many = peaks(FEW), peaks(GROWTH * FEW)
    found = []
    for stage in MEASURED:
        megabytes = {
            f"MB at {2 * count} problems": used[stage] / 2**20
            for count, used in ((FEW, few), (GROWTH * FEW, many))
        }
        what = f"peak memory of {stage}, {GROWTH} x the problems / 1 x"
        value = many[stage] / few[stage]
        found.append(Finding(9, what, "embedded", value, Target("≤", 1.1), megabytes))
    return found


def peaks(problems: int) -> dict[str, int]:
    """Return each stage's peak memory in bytes, with `problems` of each family in each split.

    The embedded SLM replaces the finetuned one. Each stage runs in its own process, as under DVC.
    """
    with TemporaryDirectory() as folder:
        project = Path(folder)
        _make_project(project, problems)
        results = {}
        with progress(f"stages on {problems} problems a family", len(CHAIN), "stages") as advance:
            for stage in CHAIN:
                name, *iteration = stage.split()
                results[name] = peak([*COMMAND, name, *iteration], project)
                advance(1)
        return results


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
    """Run a command in `folder` and return its peak resident bytes. The command must succeed."""
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    measured = [sys.executable, "-c", PEAK, *command]
    done = subprocess.run(
        measured, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    return int(done.stdout)
