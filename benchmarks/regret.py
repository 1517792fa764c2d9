"""The regret of the deployed rule over many seeds: how a study is run.

Each seed runs the pipeline in a clone of its own, up to the choice of a rule, with other questions,
another finetuned SLM, other labels and heads. Its candidates then answer fresh questions.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from benchmarks.fresh import Answered, Seen, answered_fresh
from citer.config.params import load_params
from citer.evaluation.choice import Candidate
from citer.evaluation.methods import SCORERS, label
from citer.evaluation.metrics import share_interval
from citer.sections import Count, Listed, Section
from citer.storage.tables import read_as, write_json, write_text
from citer.storage.yaml_file import edited

FRESH = 1000  # is added to the seed of a run, for its fresh questions


class Study(Section):
    """The question of a study, and what answers it."""

    question: str
    seeds: Annotated[tuple[int, ...], Listed]  # of the runs
    questions: Count  # fresh ones of each task
    params: Mapping[str, Any] = {}  # for params.yaml, by keys such as `serve.batch`


def regrets(study: Study, work: Path) -> dict[str, list[dict[str, Any]]]:
    """Run all seeds, and return both tables. A killed study continues with its next seed."""
    found = {seed: _of_seed(study, work, seed) for seed in study.seeds}
    mean = fmean(seen.regret(seen.deployed) for seen in found.values())
    return {
        f"Mean regret: {mean:.2%}.": [{"seed": seed} | row(seen) for seed, seen in found.items()],
        "What one scorer or one method alone would cost.": alone([*found.values()]),
    }


def _of_seed(study: Study, work: Path, seed: int) -> Seen:
    clone = work / f"seed-{seed}"
    done = clone / "fresh.json"
    if not done.exists():
        make_clone(clone)
        # The bounds are no candidates.
        settings = {"evaluate.bounds": [], **study.params, "seed": seed}
        run_stages(clone, edited(Path("params.yaml"), settings))
        with chdir(clone):
            seen = answered_fresh(study.questions, FRESH + seed)
        write_json(done, asdict(seen))
    return read_as(done, Seen)


def row(seen: Seen) -> dict[str, Any]:
    """Return the deployed rule and the cheapest one with their costs and risks, and the regret."""
    both = {"deployed": seen.deployed.candidate, "cheapest": seen.keeping[0].candidate}
    cells = {f"{name} {key}": cell for name, c in both.items() for key, cell in _cells(c).items()}
    return cells | {"regret": seen.regret(seen.deployed)}


def _cells(seen: Candidate) -> dict[str, Any]:
    risk = seen.discordant / max(seen.n, 1), *share_interval(seen.discordant, seen.n)
    return {"rule": f"{seen.rule:.4g}", "cost": seen.cost, "risk": risk}


def alone(found: Sequence[Seen]) -> list[dict[str, Any]]:
    """Return, for each scorer and method, what its best candidate costs above the cheapest of all.

    Both keep the promise on the fresh questions of a seed. A scorer may have any audit.
    """
    above: dict[str, list[float]] = {}
    for seen in found:
        best: dict[str, float] = {}
        for each in reversed(seen.keeping):  # so that the cheapest comes last
            best |= dict.fromkeys(_names(each), seen.regret(each))
        for name, regret in best.items():
            above.setdefault(name, []).append(regret)
    ranked = sorted(above.items(), key=lambda item: fmean(item[1]))
    return [
        {"alone": name, "seeds": len(own), "mean above": fmean(own)}
        | {"least above": min(own), "most above": max(own)}
        for name, own in ranked
    ]


def _names(each: Answered) -> list[str]:
    by = each.candidate.rule.by
    scorer = ", ".join(SCORERS[by]) if by in SCORERS else by
    return [f"method: {label(each.method)}", *([f"scorer: {scorer}"] if by else [])]


def make_clone(clone: Path) -> None:
    """Clone this project, unless the clone exists."""
    if not clone.exists():
        subprocess.run(["git", "clone", "--quiet", str(Path.cwd()), str(clone)], check=True)


def run_stages(clone: Path, settings: str) -> None:
    """Run the stages of a clone up to the choice of its last router's rule, with these settings."""
    params = clone / "params.yaml"
    write_text(params, settings)
    last = max(load_params(params).iterations, key=int)
    scripts = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": "."}
    command = [f"{scripts}/dvc", "repro", f"choose@{last}"]
    subprocess.run(command, cwd=clone, env=environment, check=True)
