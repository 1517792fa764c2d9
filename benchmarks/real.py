"""Studies on a pair of your own: a clone of this project with other settings, and times there.

The part `project` of a study names what it changes in params.yaml and how many rows of your files
it uses. It runs the stages up to one of them in a clone, which takes hours on a CPU; a killed study
continues there. The part `timed` then times the chosen rules and what they must beat at batch 1, in
turn, on a few test questions, and adds the tables and the picture of the run.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import yaml
from pyarrow import csv

from benchmarks.decode import decode
from benchmarks.naive import generate
from benchmarks.race import Method, Race, race
from benchmarks.report import machine
from citer.config.params import load_params
from citer.data.problems import read_problems
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy, always_slm, routed
from citer.errors import InputError, read_text
from citer.evaluation.points import rule_of
from citer.evaluation.sweep import request
from citer.models.bundle import read_bundle
from citer.models.pair import Pair, load_pair
from citer.rule import Rule
from citer.sections import Count, Listed, Section
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.tables import read_json, write_text

ITERATION = 1
COARSE = "Few rules were tried (the study's file). Numbers between them are no measurements."


class Rows(Section):
    """How many rows of a file go to each file below data/own, and a system message for each."""

    counts: Mapping[str, Count]
    system: str | None = None  # the settings have that of the other tasks


class Project(Section):
    """What a study changes in params.yaml, the rows that it needs, and the last stage that runs."""

    params: Mapping[str, Any]
    rows: Annotated[tuple[Rows, ...], Listed]
    stage: str


class Timed(Section):
    questions: Count


class Own(NamedTuple):
    """Folders of a pair, and files of rows."""

    slm: Path
    llm: Path
    rows: Sequence[Path]

    @classmethod
    def of(cls, slm: Path | None, llm: Path | None, rows: Sequence[Path]) -> "Own":
        if not (slm and llm and rows):
            raise InputError("this study needs --slm, --llm, --rows and --work")
        return cls(slm, llm, rows)


def with_changes(settings: Any, changes: Any) -> Any:
    """Return settings with other values, section by section."""
    if isinstance(settings, dict) and isinstance(changes, dict):
        changed = {key: with_changes(settings.get(key), each) for key, each in changes.items()}
        return settings | changed
    return changes


def settings_of(project: Project, own: Own) -> dict[str, Any]:
    """Return the settings of params.yaml with those of a study and the folders of a pair."""
    settings = yaml.safe_load(read_text(Path("params.yaml")))
    for name, section in project.params.items():
        settings[name] = section if name == "iterations" else settings[name] | section
    settings["pair"] |= {"slm": str(own.slm), "llm": str(own.llm)}
    return settings


def continued(project: Project, own: Own, work: Path) -> None:
    """Run the stages in the clone `work`, which is made if it is missing."""
    settings = settings_of(project, own)
    if not work.exists():
        subprocess.run(["git", "clone", "--quiet", str(Path.cwd()), str(work)], check=True)
    write_text(work / "params.yaml", yaml.safe_dump(settings, sort_keys=False))
    for source, rows in zip(own.rows, project.rows, strict=True):
        write_rows(source, work / "data/own", rows)
    scripts = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": "."}
    command = [f"{scripts}/dvc", "repro", project.stage]
    subprocess.run(command, cwd=work, env=environment, check=True)


def write_rows(source: Path, folder: Path, rows: Rows) -> None:
    """Write the first rows of a JSON Lines file to a file for each of the counts.

    Raises InputError if the file has too few rows.
    """
    lines, needed = read_text(source).splitlines(keepends=True), sum(rows.counts.values())
    if len(lines) < needed:
        raise InputError(f"{source}: {len(lines)} rows, expected {needed} or more")
    left = (with_system(line, rows.system) if rows.system else line for line in lines)
    for name, count in rows.counts.items():
        write_text(folder / f"{name}.jsonl", "".join(islice(left, count)))


def with_system(line: str, system: str) -> str:
    """Give a row of mathematics a system message of its own."""
    row = json.loads(line)
    turns = [("system", system), ("user", row.pop("problem"))]
    messages = [{"role": role, "content": content} for role, content in turns]
    return f"{json.dumps({'messages': messages, **row})}\n"


def retrained(timed: Timed, target: Path) -> dict[str, Any]:
    """Time the methods in a finished run. Return a column for each figure, and the run's own.

    The picture of the run is copied beside the results.
    """
    shutil.copyfile(paths.SUMMARY / "frontier.png", target.with_suffix(".png"))
    params = load_params()
    pair = load_pair(finetuned_pair(params), params.pair)
    figures = timings(pair, params.evaluate.max_new_tokens, timed.questions)
    settings = params.model_dump(mode="json")
    return {
        "models": {"slm": _described(pair.slm.card), "llm": _described(pair.llm.card)},
        "settings": settings | {"pair": _described(settings["pair"])},
        "metrics": (metrics := read_json(paths.SUMMARY / "metrics.json")),
        "tasks": {"batch 1": columns(figures, metrics)},
        "machine": machine(),
        "note": f"{COARSE}\n\n{read_text(paths.SUMMARY / 'table.md')}\n",
    }


def _described(named: Any) -> dict[str, Any]:
    """Leave the folders out, which differ between machines."""
    fields = named if isinstance(named, dict) else named._asdict()
    return {key: value for key, value in fields.items() if key not in ("path", "slm", "llm")}


@torch.inference_mode()
def timings(pair: Pair, new_tokens: int, questions: int) -> Race:
    """Time both models alone, speculative decoding and the chosen rules at batch 1, in turn."""
    asked = read_problems(paths.problems("test"))[:questions]
    requests, engine = [request(problem, pair) for problem in asked], Engine(pair, 1, new_tokens)

    def generated(**options: Any) -> int:
        for each in requests:
            generate(pair, pair.local_llm, [each], 1, new_tokens, **options)
        return len(requests)

    def decoded(policy: Policy) -> int:
        decode(engine, requests, policy)
        return len(requests)

    methods: dict[str, Method] = {
        "LLM, generate": generated,
        "LLM, assisted generation": partial(generated, assistant_model=pair.slm.network),
    }
    methods |= {name: partial(decoded, policy) for name, policy in _policies(pair)}
    return race("answers at batch 1", methods)


def _policies(pair: Pair) -> Iterator[tuple[str, Policy]]:
    """Yield both models alone, the cheapest speculative rule, and the chosen rules."""
    router, _ = read_bundle(paths.router(ITERATION))
    yield from {"LLM": LLM_ALONE, "SLM": SLM_ALONE}.items()
    points = csv.read_csv(paths.SUMMARY / "points.csv").to_pylist()
    own = [row for row in points if (row["method"], row["task"]) == ("speculative", "all")]
    best = min(own, key=lambda row: row["cost_b1"])
    yield "speculative", Policy(always_slm, rule_of(best))
    for name, chosen in read_json(paths.report(ITERATION) / "chosen.json").items():
        own_rule = Rule(**chosen["rule"])
        yield f"{name}_{ITERATION}", routed(router.to(pair.slm.device), own_rule)


def columns(timed: Race, metrics: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return seconds, speeds and, where the SLM drafts, visits and the ratio that pays."""
    drafting = {
        name: metrics[name]
        for name in timed.speeds
        if name in metrics and metrics[name]["slm_steps_per_token"]
    }
    return {
        "seconds an answer": {name: 1 / timed.speed(name) for name in timed.speeds},
        "speed, LLM alone = 1": {name: timed.ratio(name, "LLM") for name in timed.speeds},
        "visits a token": {name: own["visits_per_token"] for name, own in drafting.items()},
        "pays below": {name: break_even(own) for name, own in drafting.items()},
    }


def break_even(row: Mapping[str, float]) -> float:
    """Return the ratio of bytes, SLM to LLM, below which a method moves fewer than the LLM.

    A token takes `slm_steps_per_token` forwards of the SLM and `visits_per_token` of the LLM. The
    prompts are left out. Each model reads them in one forward.
    """
    return max(0.0, 1 - row["visits_per_token"]) / row["slm_steps_per_token"]
