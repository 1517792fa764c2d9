"""A project's folder with a retraining in it: small files in the true formats, made in a moment."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from citer.config import PairParams
from citer.io import write_json, write_table, write_text
from citer.models.bundle import identity, write_bundle
from citer.models.pair import load_pair
from citer.models.router import Router, RouterMLP
from citer.schema import OUTCOME, PREFERENCE, PROBLEM, SPLITS
from citer.stages import paths
from tests.tiny import make_tiny_pair

LLM = Path("data/pair/llm")
QUESTIONS = 40
LLM_BYTES = 1000  # a question
TAU = 0.75
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


def make_project(folder: Path) -> None:
    """Put into a git repository what a clone has, and a finetuned SLM."""
    pair = make_tiny_pair(folder / LLM.parent)
    shutil.copytree(pair.slm, folder / paths.SLM)
    shutil.copy(Path(__file__).parents[2] / "params.yaml", folder)
    write_text(folder / "dvc.yaml", DVC_YAML)
    write_text(folder / ".gitignore", "/mlruns/\n/data/\n")
    commit(folder)


def commit(folder: Path) -> None:
    """Commit all that git does not ignore."""
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *author, "commit", "-qm", "Go on"], cwd=folder, check=True)


def retrain(seed: int, correct: int = QUESTIONS, cost: float = 0.5, certified: bool = True) -> None:
    """Leave in the current folder what a retraining leaves; a `seed` makes one like no other.

    The routers at their τ answer `correct` of the questions right, for `cost` of the LLM's bytes.
    """
    for split in SPLITS:
        write_table(paths.problems(split), PROBLEM.empty_table(), PROBLEM, {"split": split})
    _write_outcomes(paths.RIVALS, "llm", 1.0, QUESTIONS, 1.0)
    write_text(paths.SUMMARY / "table.md", "| method | accuracy |\n")
    for k in (1, 2):
        _write_preferences(seed, k)
        _write_router(seed, k)
        _write_report(k, correct, cost, certified)
    write_text(Path("dvc.lock"), f"schema: '2.0'\nstages: {{}} # {seed}\n")


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


def _write_router(seed: int, k: int) -> None:
    where = PairParams(slm=str(paths.SLM), llm=str(LLM), device="cpu", dtype="float32")
    pair = load_pair(paths.SLM, LLM, where)
    with torch.random.fork_rng():
        torch.manual_seed(seed * 10 + k)
        router = Router(RouterMLP(pair.slm.hidden_size, dropout=0.1))
    write_bundle(paths.router(k), router, identity(pair) | {"iteration": k})
    write_json(paths.router(k) / "metrics.json", {"best_epoch": 7})


def _write_report(k: int, correct: int, cost: float, certified: bool) -> None:
    folder = paths.report(k)
    _write_outcomes(folder, "router", TAU, correct, cost)
    threshold = {"tau": TAU, "epsilon": 0.05, "delta": 0.05, "bound": 0.04, "certified": certified}
    write_json(folder / "threshold.json", threshold)
    numbers: dict[str, Any] = {"accuracy": correct / QUESTIONS, "llm_fraction": 0.25, "tau": TAU}
    costs = {f"cost_b{batch}": cost for batch in (1, 8, 32)}
    numbers |= costs | {"tokens_per_answer": 50.0, "math": {"accuracy": correct / QUESTIONS}}
    write_json(folder / "metrics.json", {"llm": {"accuracy": 1.0}, "router": numbers})
    (folder / "frontier.png").write_bytes(b"a picture")


def _write_outcomes(folder: Path, method: str, threshold: float, correct: int, cost: float) -> None:
    rows = [
        {
            "split": "test",
            "method": method,
            "threshold": threshold,
            "problem_id": f"test-{number}",
            "task": "math",
            "correct": number < correct,
            "truncated": False,
            "tokens": 50,
            "llm_tokens": 12,
            "bytes": round(LLM_BYTES * cost),
        }
        for number in range(QUESTIONS)
    ]
    write_table(folder / "outcomes.parquet", pa.Table.from_pylist(rows, OUTCOME), OUTCOME, {})
