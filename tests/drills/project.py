"""A tiny project in which every stage has run, with a pair trained on its few questions."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ruamel.yaml import YAML

from citer.cli.main import call
from citer.data.problems import Problem
from tests.taught import make_taught_pair, problems

ROOT = Path(__file__).parents[2]
QUESTIONS = Path("questions.jsonl")
ANSWERS = Path("answers.jsonl")
ROUTER = ("--router", "data/routers/1", "--rule", "risk 0.8 audit 0.1")
FILES = ("--input", str(QUESTIONS), "--output", str(ANSWERS))
GENERATE = ("generate", *ROUTER, *FILES)
STAGES: tuple[tuple[str, ...], ...] = (
    *(("prepare",), ("probe",), ("references",), ("finetune",)),
    *(("score_llm",), ("score_slm",), ("router0",), ("rivals",)),
    *(("label", "1"), ("train", "1"), ("evaluate", "1")),
    *(("choose", "1"), ("transcribe", "1"), ("report",)),
)
Settings = Mapping[str, dict[str, Any]]  # by section of params.yaml
TINY: Settings = {
    "pair": {"device": "cpu"},
    "finetune": {"epochs": 0},
    "score": {"batch_tokens": 600},
    "decode": {"slots": 8, "max_new_tokens": 40},
    "train": {"batch_size": 16, "epochs": 2},
    "evaluate": {
        "llm_fractions": [0.0, 0.3, 1.0],
        "risks": [0.5],
        "audits": [0.1],
        "gammas": [4],
        "batches": [1, 8],
    },
    "answer": {"slots": 8, "max_new_tokens": 40},
}


def make_project(settings: Settings = MappingProxyType({})) -> None:
    """Make the project in the current folder, and run each command once with success."""
    params = configure(settings)
    shutil.copy(paths_of(params["prepare"]["test"])[0], QUESTIONS)
    for command in (*STAGES, GENERATE):
        assert call(command) == 0, command


def configure(settings: Settings) -> dict[str, Any]:
    """Write the pair, its questions and params.yaml into the current folder.

    `settings` override those of `TINY`. Returns all parameters.
    """
    taught = problems(24)
    make_taught_pair(Path("data/pair"), taught, steps=60)
    sources = {
        "train": _write_rows("train", taught[:16]),
        "validation": _write_rows("validation", taught[16:20]),
        "test": _write_rows("test", taught[20:]),
    }
    yaml = YAML()
    params: dict[str, Any] = yaml.load(ROOT / "params.yaml")
    shares = {"sft": 0.5, "preference": 0.5, "validation": 0.0, "test": 0.0}
    params["iterations"] = {"1": {"previous": "0"}}
    params["prepare"].update({"toy": None, "shares": shares, **sources})
    for section in TINY.keys() | settings.keys():
        params[section].update(TINY.get(section, {}) | settings.get(section, {}))
    yaml.dump(params, Path("params.yaml"))
    return params


def _write_rows(name: str, questions: Sequence[Problem]) -> list[dict[str, str]]:
    """Write math as JSON Lines and choices as a JSON array; return the entries for params.yaml."""
    home = Path("data/own")
    home.mkdir(parents=True, exist_ok=True)
    math = [json.dumps(_row(p)) for p in questions if not p.choices]
    (home / f"{name}.jsonl").write_text("\n".join(math))
    choices = [_row(p) for p in questions if p.choices]
    (home / f"{name}.json").write_text(json.dumps(choices, indent=1))
    return [
        {"path": f"data/own/{name}.jsonl", "task": "math"},
        {"path": f"data/own/{name}.json", "task": "mc"},
    ]


def paths_of(sources: Sequence[dict[str, str]]) -> list[Path]:
    return [Path(source["path"]) for source in sources]


def _row(problem: Problem) -> dict[str, Any]:
    if not problem.choices:
        return {"problem": problem.question, "solution": problem.reference}
    texts, labels = [c.text for c in problem.choices], [c.label for c in problem.choices]
    choices = {"text": texts, "label": labels}
    answer = {"answerKey": problem.answer, "cot": problem.reference}
    return {"question": problem.question, "choices": choices, **answer}


def pattern_of(path: Path) -> str | None:
    """Return the first pattern of `READERS` that matches, or None for files that are not read."""
    return next((pattern for pattern in READERS if path.match(pattern)), None)


SCORE, LABEL, TRAIN = (("score_llm",), ("score_slm",)), ("label", "1"), ("train", "1")
EVALUATE, CHOOSE = ("evaluate", "1"), ("choose", "1")
TRANSCRIBE, REPORT = ("transcribe", "1"), ("report",)
DECODING = (("rivals",), LABEL, EVALUATE, TRANSCRIBE, GENERATE)
READERS: dict[str, Sequence[tuple[str, ...]]] = {
    "params.yaml": (*STAGES, GENERATE),
    QUESTIONS.name: (GENERATE,),
    "data/own/*": (("prepare",),),
    "data/problems/*": (("probe",), ("references",)),
    "data/references/sft.*": (("finetune",),),
    "data/references/preference.*": (*SCORE, ("router0",), ("rivals",), LABEL, EVALUATE),
    "data/references/test.*": (("rivals",), EVALUATE, TRANSCRIBE),
    "data/references/*": (("rivals",), EVALUATE),
    "data/tokens/llm/*": (("score_llm",), ("router0",), LABEL, TRAIN),
    "data/tokens/slm/*": (("score_slm",), ("router0",), LABEL, TRAIN),
    "data/preferences/1/*": (TRAIN,),
    "data/routers/0/router.*": (LABEL,),
    "data/routers/common/router.*": (("rivals",), TRAIN, EVALUATE),
    "data/routers/1/router.*": (EVALUATE, TRANSCRIBE, GENERATE),
    "data/reports/rivals/*.parquet": (EVALUATE, CHOOSE, REPORT),
    "data/answers/1/*.parquet": (CHOOSE,),
    "data/reports/1/*.parquet": (REPORT,),
    "data/reports/1/chosen.json": (REPORT,),
    "data/reports/1/deployed.json": (TRANSCRIBE,),
    "data/routers/*/metrics.json": (REPORT,),
    "data/pair/slm/*": (("probe",), ("finetune",), ("score_llm",)),
    "data/pair/llm/*": (("probe",), *SCORE, *DECODING),
    "data/models/slm/*": (("score_slm",), ("router0",), *DECODING),
}
