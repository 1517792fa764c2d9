"""Make a small clone of the repository, and the files of a retraining in it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ruamel.yaml import YAML

from citer.config.params import PairParams
from citer.evaluation.choice import ChosenRule
from citer.evaluation.measure import Conditions, Measure
from citer.evaluation.points import rule_columns
from citer.models.bundle import write_bundle
from citer.models.folder import PairFolder
from citer.models.pair import load_pair
from citer.rule import LLM as LLM_ALONE
from citer.rule import Rule
from citer.stages import paths
from citer.storage.schema import HOLDOUT, OUTCOME, PREFERENCE, PROBLEM, SPLITS, point
from citer.storage.tables import write_json, write_table, write_text
from flows.dvc_commands import dvc
from flows.tracking.contents import Iteration
from flows.tracking.registry import register_run
from tests.heads import random_router
from tests.tiny import make_tiny_pair

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
LLM = Path("data/pair/llm")
QUESTIONS = 200  # with fewer the gate could not exclude a loss of 2 %
LLM_BYTES = 1000  # per question
AUDITED = 40  # tokens per question, at the LLM's cost
RULE = Rule("risk", 0.75, audit=0.1)
STAGES = ["label@1", "evaluate@1", "evaluate@2"]
CURVE = {"train_loss": [0.5, 0.25], "holdout_loss": [0.5, 0.3]}
TOY = dict.fromkeys(("sft", "preference"), 8) | dict.fromkeys(("validation", "test"), 40)
TINY: dict[str, dict[str, Any]] = {
    "prepare": {"toy": {"tasks": ["math", "mc"], **TOY}},
    "finetune": {"epochs": 2, "batch_size": 4},
    "decode": {"max_new_tokens": 8},
    "train": {"epochs": 2, "batch_size": 64},
    "answer": {"max_new_tokens": 8},
    "evaluate": {"llm_fractions": [0.0, 0.5, 1.0], "llm_floor": 0.0},
}
DVC_YAML = """
stages:
  label:
    foreach:
      "1": {}
      "2": {}
    do:
      cmd: "true"
      params: [train]
      outs:
        - data/preferences/${key}
"""


def make_clone(folder: Path) -> None:
    """Clone this repository into `folder`, with a tiny pair and a few short questions."""
    copy_repository(folder, TINY)
    shutil.rmtree(folder / LLM.parent)
    make_tiny_pair(folder / LLM.parent)
    commit(folder)


def copy_repository(folder: Path, settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Make a repository of what git tracks, without results, and change sections of params.yaml."""
    for name in _git(ROOT, "ls-files").splitlines():
        if not name.startswith(("data/summary/", "dvc.lock")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for section, values in settings.items():
        change_params(section, folder, **values)
    _git(folder, "init", "-q")


def change_params(section: str, folder: Path = Path(), **values: Any) -> None:
    """Change a section of params.yaml."""
    yaml = YAML()
    params = yaml.load(folder / "params.yaml")
    params[section].update(values)
    yaml.dump(params, folder / "params.yaml")


def enter(source: Path, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Copy a project to `folder`, and enter the copy. Its MLflow store is in it."""
    shutil.copytree(source, folder)
    patch.chdir(folder)
    patch.setenv("MLFLOW_TRACKING_URI", "")


def finetune(folder: Path) -> None:
    """Add a finetuned SLM to a clone, and reduce its pipeline to `label`."""
    shutil.copytree(folder / LLM.with_name("slm"), folder / paths.SLM)
    write_text(folder / "dvc.yaml", DVC_YAML)
    commit(folder)


def retrain_for_a_run(seed: int) -> None:
    """Write a retraining that `citer run` finds finished, in a clone from `finetune`.

    Each is cheaper than the one before. The stages `evaluate@k`, by which the flow counts the
    routers, do nothing.
    """
    retrain(seed, cost=0.5 - seed / 10)
    evaluate = DVC_YAML.partition("  label:")[2].partition("      params")[0]
    write_text(Path("dvc.yaml"), f"{DVC_YAML}  evaluate:{evaluate}")
    Path("dvc.lock").unlink()
    dvc("commit", "--force")


def commit(folder: Path) -> None:
    """Commit all files that git does not ignore, into one pack: each test copies a clone."""
    _git(folder, "add", ".")
    _git(folder, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "Go on")
    _git(folder, "repack", "-adq")


def run(folder: Path, *command: str) -> str:
    """Run a command of the environment in a folder; return what it printed."""
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def retrain(
    seed: int,
    correct: int = QUESTIONS,
    cost: float = 0.5,
    certified: bool = True,
    rule: Rule = RULE,
    questions: str = "test",
    llm_correct: int | None = None,
    conditions: Conditions | None = None,
    labels: dict[str, Any] | None = None,
    discordant: int = 0,
) -> None:
    """Write the files of a retraining to the current folder. Each `seed` gives another one.

    Under `rule` the routers answer `correct` of the questions right, for `cost` of the LLM's bytes;
    the choice that needs no preferences costs a tenth more. `questions` is the prefix of their ids.
    The LLM answers the same ones right, or the first `llm_correct`. On as many of validation, the
    rule lost `discordant`.
    """
    llm_correct = correct if llm_correct is None else llm_correct
    for split in SPLITS:
        write_table(paths.referenced(split), PROBLEM.empty_table(), PROBLEM, {"split": split})
    splits = ("test", "validation")
    alone = [_outcomes(each, "llm", LLM_ALONE, llm_correct, 1.0, questions) for each in splits]
    _write_outcomes(paths.RIVALS, *alone, stamp=(conditions or Conditions()).fields)
    write_json(paths.FINETUNE, {"step": [1, 2, 3], "loss": [3.0, 2.0, 1.5]})
    measure = (conditions or Conditions()).measure
    write_json(paths.SUMMARY / "headline.json", {measure.name: correct / QUESTIONS})
    write_text(paths.PAGE, "<h1>A report</h1>\n")
    write_text(paths.SUMMARY / "table.md", "| method | accuracy |\n")
    own = (certified, questions, conditions, discordant)
    _write_router(seed, 0, None)
    _write_report(0, replace(rule, by="entropy"), correct, cost + 0.1, *own)
    for k in (1, 2):
        _write_preferences(seed, k)
        _write_router(seed, k, labels)
        _write_report(k, rule, correct, cost, *own)
    write_text(Path("dvc.lock"), f"schema: '2.0'\nstages: {{}} # {seed}\n")


def register() -> str:
    """Register the files of `retrain`, as the flow does. Returns the sentence."""
    return register_run(STAGES)[0]


def register_new(seed: int, **settings: Any) -> str:
    """Write the files of a retraining, as `retrain` does, and register them."""
    retrain(seed, **settings)
    return register()


def _write_preferences(seed: int, k: int) -> None:
    row = dict.fromkeys(PREFERENCE.names) | {
        "problem_id": f"problem-{seed}",
        "position": 0,
        "case": "slm_right",
        "label": 1,
        "origin": "shortcut",
        "iteration": k,
    }
    table = pa.Table.from_pylist([row], schema=PREFERENCE)
    write_table(paths.preferences(k), table, PREFERENCE, {"seed": seed})


def _write_router(seed: int, k: int, labels: dict[str, Any] | None) -> None:
    where = PairParams(slm=str(paths.SLM), llm=str(LLM), device="cpu", dtype="float32")
    pair = load_pair(PairFolder(paths.SLM, LLM), where)
    router = random_router(pair.slm.hidden_size, seed * 10 + k)
    own = {} if labels is None else {"labels": labels}
    folder = Iteration(k).router
    write_bundle(folder, router, pair.identity | {"iteration": k} | own)
    write_json(folder / "metrics.json", {"best_epoch": 7})
    write_json(folder / paths.CURVE, CURVE)
    write_table(folder / paths.HOLDOUT, HOLDOUT.empty_table(), HOLDOUT, {})


def _write_report(
    k: int,
    rule: Rule,
    correct: int,
    cost: float,
    certified: bool,
    questions: str,
    conditions: Conditions | None,
    discordant: int,
) -> None:
    folder = paths.report(k)
    measure = (conditions or Conditions()).measure
    ours, other = ("audited", "router") if rule.audit else ("router", "audited")
    elsewhere = [
        ("validation", ours, rule),
        ("test", other, rule),
        ("test", ours, replace(rule, audit=(rule.audit + 0.5) / 2)),
    ]
    if rule.visit == "every":
        elsewhere.append(("test", ours, replace(rule, at=rule.at + 1)))
    else:
        visit = "risk" if rule.visit == "score" else "score"
        elsewhere.append(("test", ours, replace(rule, visit=visit)))
        elsewhere.append(("test", ours, replace(rule, at=(rule.at + 0.5) / 3)))
    outcomes = [_outcomes("test", ours, rule, correct, cost, questions)]
    outcomes += [_outcomes(*place, 0, 2.0, questions) for place in elsewhere]
    stamp = (conditions or Conditions()).fields
    _write_outcomes(folder, *outcomes, stamp=stamp)
    chosen = ChosenRule(rule, QUESTIONS, discordant, 0.25, cost, 0.05, 0.05, 0.04, certified)
    costlier = replace(chosen, rule=Rule("score", 0.9), cost=cost + 0.1)
    write_json(folder / "chosen.json", {other: asdict(costlier), ours: asdict(chosen)})
    write_json(folder / "threshold.json", asdict(chosen))
    write_json(folder / "path.json", _path(ours, rule, discordant, cost, certified))
    place = {"engine": "citer", "batch": 1, "delayed": True}
    write_json(folder / paths.DEPLOYED, {"method": ours, "rule": str(rule), "serve": place})
    numbers: dict[str, Any] = {measure.name: correct / QUESTIONS, "llm_fraction": 0.25}
    numbers |= {f"cost_b{batch}": cost for batch in (1, 8, 32)} | {"cost_for_99_percent": None}
    numbers |= {"at": rule.at, "audit": rule.audit, "tokens_per_answer": 50.0}
    numbers |= {"math": {measure.name: correct / QUESTIONS}}
    others = {"llm": {measure.name: 1.0}, other: {measure.name: 0.9}}
    write_json(folder / "metrics.json", others | {ours: numbers})
    (folder / "frontier.png").write_bytes(b"a picture")
    write_json(paths.transcript(k), {})
    _write_points(folder, measure, ours, stamp)


def _path(
    method: str, rule: Rule, discordant: int, cost: float, certified: bool
) -> list[dict[str, Any]]:
    """Return the steps of a sequence: an exact rule, one that loses half as many, `rule`."""
    other = 9 if rule.visit == "every" else 0.9375
    steps = (Rule("risk", 0.75, 1.0), 0), (replace(rule, at=other), discordant // 2)
    return [
        {
            "method": method,
            "rule": str(each),
            "held_out": {"n": QUESTIONS, "discordant": lost, "cost": dearer},
            "validation": {"n": QUESTIONS, "discordant": lost, "cost": dearer},
            "bound": 0.04,
            "passed": certified or each.exact,
        }
        for (each, lost), dearer in zip(
            (*steps, (rule, discordant)), (cost + 0.2, cost + 0.1, cost), strict=True
        )
    ]


def _write_points(folder: Path, measure: Measure, method: str, stamp: dict[str, str]) -> None:
    """Write the points of a method with three rules, on all tasks and on one."""
    declared = point(["b1"])
    schema = pa.schema([field.with_name(measure.key(field.name)) for field in declared])
    blank = {field.name: "" if field.type == pa.string() else 0 for field in declared} | {
        "method": method
    }
    rows = [
        blank | {"task": task, "cost_b1": cost, "accuracy": share}
        for task, shift in (("all", 0.0), ("math", 0.5))
        for cost, share in ((0.3 + shift, 0.9), (0.2 + shift, 0.8), (0.4 + shift, 1.0))
    ]
    table = pa.Table.from_pylist([*map(measure.keys, rows)], schema)
    write_table(folder / "points.parquet", table, schema, stamp)


def _outcomes(
    split: str, method: str, rule: Rule, correct: int, cost: float, questions: str
) -> Iterator[dict[str, Any]]:
    for number in range(QUESTIONS):
        yield dict.fromkeys(OUTCOME.names, 0) | {
            "split": split,
            "method": method,
            **rule_columns(rule),
            "problem_id": f"{questions}-{number}",
            "task": "math",
            "correct": number < correct,
            "share": None,
            "failure": None,
            "truncated": False,
            "bytes": round(LLM_BYTES * cost),
            "audited": round(AUDITED * cost),
            "disagreed": number % 2,
        }


def _write_outcomes(
    folder: Path, *outcomes: Iterator[dict[str, Any]], stamp: dict[str, str]
) -> None:
    rows = [row for each in outcomes for row in each]
    write_table(folder / "outcomes.parquet", pa.Table.from_pylist(rows, OUTCOME), OUTCOME, stamp)
