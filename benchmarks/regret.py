"""The regret of the deployed rule over many seeds: the part `regret` of a study.

Each seed runs the whole pipeline in a clone of its own, with other questions, another finetuned
SLM, other labels and heads. Its candidates then answer fresh questions.
"""

import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Annotated, Any

import yaml

from benchmarks.fresh import Fresh, answered_fresh
from citer.errors import read_text
from citer.sections import Listed, Section
from citer.storage.tables import read_json, write_json, write_text

FRESH = 1000  # is added to the seed of a run, for its fresh questions


class Regret(Section):
    seeds: Annotated[tuple[int, ...], Listed]
    fresh: Fresh


def regrets(regret: Regret, work: Path) -> dict[str, Any]:
    """Run all seeds, and return a row for each. A killed study continues with its next seed."""
    found = {
        f"seed {seed}": _of_seed(regret.fresh, work / f"seed-{seed}", seed) for seed in regret.seeds
    }
    shares = [row["regret"] for row in found.values()]
    names = next(iter(found.values()))
    columns = {name: {seed: row[name] for seed, row in found.items()} for name in names}
    return {
        "mean regret": sum(shares) / len(shares),
        "tasks": {"all": columns},
        "note": f"mean regret: {sum(shares) / len(shares):.2%}\n\n",
    }


def _of_seed(fresh: Fresh, clone: Path, seed: int) -> dict[str, Any]:
    done = clone / "fresh.json"  # all candidates
    if not done.exists():
        make_clone(clone)
        settings = yaml.safe_load(read_text(Path("params.yaml"))) | {"seed": seed}
        run_stages(clone, settings, "report")
        with chdir(clone):
            found = answered_fresh(fresh, FRESH + seed, "")
        write_json(done, found)
    return _row(read_json(done))


def _row(found: dict[str, Any]) -> dict[str, Any]:
    """Return the deployed rule and the cheapest one, each with its cost and the share it loses."""
    table = found["tasks"]["all"]
    rows = {
        f"{name} {column}": table[column][name]
        for name in ("deployed", "cheapest")
        for column in ("rule", "cost", "risk")
    }
    return rows | {"regret": found["regret"]}


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
