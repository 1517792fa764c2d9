"""The regret of the deployed rule over many seeds: the part `regret` of a study.

Each seed runs the whole pipeline in a clone of its own, with other questions, another finetuned
SLM, other labels and heads. Its candidates then answer fresh questions.
"""

import os
import subprocess
import sys
from contextlib import chdir
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import yaml

from benchmarks.fresh import Seen, answered_fresh
from citer.errors import read_text
from citer.evaluation.choice import Candidate
from citer.evaluation.metrics import share_interval
from citer.sections import Count, Listed, Section
from citer.storage.tables import read_json, write_json, write_text

FRESH = 1000  # is added to the seed of a run, for its fresh questions


class Regret(Section):
    """The seeds of the runs, and the number of fresh questions of each task."""

    seeds: Annotated[tuple[int, ...], Listed]
    questions: Count


def regrets(regret: Regret, work: Path) -> dict[str, Any]:
    """Run all seeds, and return a row for each. A killed study continues with its next seed."""
    found = {f"seed {seed}": _of_seed(regret.questions, work, seed) for seed in regret.seeds}
    mean = fmean(row["regret"] for row in found.values())
    names = next(iter(found.values()))
    columns = {name: {seed: row[name] for seed, row in found.items()} for name in names}
    return {"tasks": {"all": columns}, "note": f"mean regret: {mean:.2%}\n\n"}


def _of_seed(questions: int, work: Path, seed: int) -> dict[str, Any]:
    clone = work / f"seed-{seed}"
    done = clone / "fresh.json"  # the row, and all candidates
    if not done.exists():
        make_clone(clone)
        settings = yaml.safe_load(read_text(Path("params.yaml"))) | {"seed": seed}
        run_stages(clone, settings, "report")
        with chdir(clone):
            seen = answered_fresh(questions, FRESH + seed)
        candidates = [
            {"method": tried.method} | asdict(each) | {"rule": str(tried.rule)}
            for tried, each in seen.answered.items()
        ]
        write_json(done, {"row": row(seen), "candidates": candidates})
    return dict(read_json(done)["row"])


def row(seen: Seen) -> dict[str, Any]:
    """Return the deployed rule and the cheapest one with their costs and risks, and the regret."""
    both = {"deployed": seen.deployed, "cheapest": seen.cheapest}
    cells = {f"{name} {key}": cell for name, c in both.items() for key, cell in _cells(c).items()}
    return cells | {"regret": seen.regret}


def _cells(seen: Candidate) -> dict[str, Any]:
    risk = seen.discordant / max(seen.n, 1), *share_interval(seen.discordant, seen.n)
    return {"rule": f"{seen.rule:.4g}", "cost": seen.cost, "risk": risk}


def make_clone(clone: Path) -> None:
    """Clone this project, unless the clone exists."""
    if not clone.exists():
        subprocess.run(["git", "clone", "--quiet", str(Path.cwd()), str(clone)], check=True)


def run_stages(clone: Path, settings: dict[str, Any], stage: str) -> None:
    """Run the stages of a clone up to one, with these settings."""
    write_text(clone / "params.yaml", yaml.safe_dump(settings, sort_keys=False))
    scripts = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": "."}
    command = [f"{scripts}/dvc", "repro", stage]
    subprocess.run(command, cwd=clone, env=environment, check=True)
