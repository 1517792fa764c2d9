"""Retrain a router on a real pair of instruct models, and time its answers one by one.

    python -m benchmarks.real --slm FOLDER --llm FOLDER --rows FILE --work FOLDER

`--rows` has multiple-choice questions (docs/own-data.md), `ROWS` of which are used. `--work`
becomes a clone of this project with the settings of `benchmarks/real.yaml`. A killed study
continues there. It takes hours on a CPU. Writes `benchmarks/results/real.{json,md,png}`.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
import yaml
from pyarrow import csv

from benchmarks.alone import generate
from benchmarks.decode import decode
from benchmarks.race import Method, Race, race
from benchmarks.report import machine
from citer.config.params import load_params
from citer.data.problems import read_problems
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy, always_slm, routed
from citer.errors import InputError, read_text
from citer.evaluation.points import rule_of
from citer.evaluation.sweep import request
from citer.models.bundle import read_bundle
from citer.models.pair import Pair, load_pair
from citer.rule import Rule
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.tables import read_json, write_json, write_text

Existing = Annotated[Path, typer.Option(exists=True, resolve_path=True)]

SETTINGS = Path("benchmarks/real.yaml")
RESULTS = Path("benchmarks/results")
ROWS = {"test": 240, "validation": 160, "train": 210}  # rows of each file
ITERATION = 1
TIMED = 6  # questions
COARSE = "Few rules were tried (`benchmarks/real.yaml`). Numbers between them are no measurements."


def main(
    slm: Existing, llm: Existing, rows: Existing, work: Annotated[Path, typer.Option()]
) -> None:
    """Retrain in WORK, time the methods there, and write the results into this project."""
    settings = merged(slm, llm, [SETTINGS])
    clone(work, settings)
    write_rows(rows, work / "data/own", ROWS)
    results = RESULTS.absolute()
    with chdir(work):
        repro("report")
        params = load_params()
        pair = load_pair(finetuned_pair(params), params.pair)
        timed = timings(pair, params.evaluate.max_new_tokens)
        write_results(
            timed, {"models": _models(pair), "settings": _without_folders(settings)}, results
        )


def merged(slm: Path, llm: Path, files: Sequence[Path]) -> dict[str, Any]:
    """Merge the settings of a study into those of params.yaml."""
    settings = yaml.safe_load(read_text(Path("params.yaml")))
    for file in files:
        for section, changes in yaml.safe_load(read_text(file)).items():
            settings[section] = changes if section == "iterations" else settings[section] | changes
    settings["pair"] |= {"slm": str(slm), "llm": str(llm)}
    return settings


def clone(work: Path, settings: Mapping[str, Any]) -> None:
    """Make `work` a clone of this project with other settings, or continue there."""
    if not work.exists():
        subprocess.run(["git", "clone", "--quiet", str(Path.cwd()), str(work)], check=True)
    write_text(work / "params.yaml", yaml.safe_dump(settings, sort_keys=False))


def _without_folders(settings: Mapping[str, Any]) -> dict[str, Any]:
    pair = {key: value for key, value in settings["pair"].items() if key not in ("slm", "llm")}
    return {**settings, "pair": pair}


def write_rows(
    source: Path, folder: Path, counts: Mapping[str, int], change: Callable[[str], str] = str
) -> None:
    """Write the first rows of a JSON Lines file, changed, to a file for each of `counts`.

    Raises InputError if the file has too few rows.
    """
    lines = read_text(source).splitlines(keepends=True)
    if len(lines) < sum(counts.values()):
        raise InputError(f"{source}: {len(lines)} rows, expected {sum(counts.values())} or more")
    left = map(change, lines)
    for name, count in counts.items():
        write_text(folder / f"{name}.jsonl", "".join(islice(left, count)))


def repro(stage: str) -> None:
    """Run the stages that are not finished yet, up to `stage`."""
    scripts = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": "."}
    subprocess.run([f"{scripts}/dvc", "repro", stage], env=environment, check=True)


def _models(pair: Pair) -> dict[str, dict[str, Any]]:
    """Describe both models by their sizes and digests. Their folders differ between machines."""
    cards = {"slm": pair.slm.card, "llm": pair.llm.card}
    return {
        name: {key: value for key, value in card._asdict().items() if key != "path"}
        for name, card in cards.items()
    }


@torch.inference_mode()
def timings(pair: Pair, new_tokens: int) -> Race:
    """Time both models alone, speculative decoding and the chosen rules at batch 1, in turn."""
    requests = [request(problem, pair) for problem in read_problems(paths.problems("test"))[:TIMED]]
    return race("answers at batch 1", _methods(pair, requests, new_tokens))


def _methods(pair: Pair, requests: Sequence[Request], new_tokens: int) -> dict[str, Method]:
    engine = Engine(pair, 1, new_tokens)
    by_generate = partial(_one_by_one, pair, requests, new_tokens)
    methods: dict[str, Method] = {
        "LLM, generate": by_generate,
        "LLM, assisted generation": partial(by_generate, assistant_model=pair.slm.network),
    }
    for name, policy in _policies(pair).items():
        methods[name] = partial(_counted, decode, engine, requests, policy)
    return methods


def _one_by_one(pair: Pair, requests: Sequence[Request], new_tokens: int, **options: Any) -> int:
    for each in requests:
        generate(pair, pair.local_llm, [each], 1, new_tokens, **options)
    return len(requests)


def _counted(
    run: Callable[..., int], engine: Engine, requests: Sequence[Request], policy: Policy
) -> int:
    run(engine, requests, policy)
    return len(requests)


def _policies(pair: Pair) -> dict[str, Policy]:
    """Return both models alone, the cheapest speculative rule, and the chosen rules."""
    router, _ = read_bundle(paths.router(ITERATION))
    policies = {"LLM": LLM_ALONE, "SLM": SLM_ALONE, "speculative": _speculative()}
    for name, chosen in read_json(paths.report(ITERATION) / "chosen.json").items():
        policies[f"{name}_{ITERATION}"] = routed(router.to(pair.slm.device), Rule(**chosen["rule"]))
    return policies


def _speculative() -> Policy:
    points = csv.read_csv(paths.SUMMARY / "points.csv").to_pylist()
    own = [row for row in points if (row["method"], row["task"]) == ("speculative", "all")]
    best = min(own, key=lambda row: row["cost_b1"])
    return Policy(always_slm, rule_of(best))


def break_even(row: Mapping[str, float]) -> float:
    """Return the ratio of bytes, SLM to LLM, below which a method moves fewer than the LLM.

    A token takes `slm_steps_per_token` forwards of the SLM and `visits_per_token` of the LLM. The
    prompts are left out. Each model reads them in one forward.
    """
    return max(0.0, 1 - row["visits_per_token"]) / row["slm_steps_per_token"]


def write_results(timed: Race, study: Mapping[str, Any], folder: Path) -> None:
    """Write the figures, the tables and the picture of the study to `folder`."""
    metrics = read_json(paths.SUMMARY / "metrics.json")
    rows = [_row(name, metrics.get(name), timed) for name in timed.speeds]
    figures = {"metrics": metrics, "batch 1": rows, "machine": machine()}
    write_json(folder / "real.json", {**study, **figures})
    table = read_text(paths.SUMMARY / "table.md")
    write_text(folder / "real.md", f"{COARSE}\n\n{table}\n{_table(rows)}")
    shutil.copyfile(paths.SUMMARY / "frontier.png", folder / "real.png")


def _row(name: str, metrics: Mapping[str, float] | None, timed: Race) -> dict[str, Any]:
    row = {"method": name, "seconds": 1 / timed.speed(name), "faster": timed.ratio(name, "LLM")}
    if metrics and metrics["slm_steps_per_token"]:
        row |= {"visits": metrics["visits_per_token"], "break_even": break_even(metrics)}
    return row


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| batch 1 | seconds an answer | speed, LLM alone = 1 | visits a token | pays below |"]
    lines += ["|---|---|---|---|---|"]
    for row in rows:
        shown = [
            f"{row[key]:.2f}" if key in row else "" for key in ("faster", "visits", "break_even")
        ]
        lines.append(f"| {row['method']} | {row['seconds']:.2f} | {' | '.join(shown)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    typer.run(main)
