"""The paths that the stages read and write, relative to the project's folder."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from citer.data.problems import Problem

CODE = Path("data/code.json")  # digests of the code of every stage
PROBLEMS = Path("data/problems")  # {sft,preference,validation,test}.parquet
REFERENCES = Path("data/references")  # the same files, with the references to learn from
PROBED = Path("data/probe/answers.parquet")
AGREEMENT = Path("data/probe/agreement.json")  # what `citer profile` needs for other sizes
PASSED = Path("data/probe/passed.json")  # always the same content: no stage is stale after a probe
SLM = Path("data/models/slm")  # the finetuned SLM, a Hugging Face folder
FINETUNE = Path("data/models/finetune.json")  # its loss, by step
LLM_TOKENS = Path("data/tokens/llm")  # shards *.parquet
SLM_TOKENS = Path("data/tokens/slm")
COMMON = Path("data/routers/common")  # a bundle of the heads that all routers have in common
PAGE = Path("data/page/report.html")
RIVALS = Path("data/reports/rivals")
SUMMARY = Path("data/summary")
EVIDENCE = Path("mlruns/evidence.db")  # what servers saw of their versions' promises
DEPLOYED = "deployed.json"  # in a report: the deployed method and its rule, without a certificate
CURVE = "curve.json"  # in a router's folder: its losses, by epoch
HOLDOUT = "holdout.parquet"  # in a router's folder: the labels that did not train it


def named(asked: Iterable[Problem], place: Callable[[str], Path]) -> Iterator[tuple[str, Problem]]:
    """Yield each problem with its name in messages: its table, the `place` of its split, and id."""
    return ((f"{place(p.split)}: problem {p.problem_id}", p) for p in asked)


def problems(split: str) -> Path:
    return PROBLEMS / f"{split}.parquet"


def referenced(split: str) -> Path:
    return REFERENCES / f"{split}.parquet"


def preferences(iteration: int) -> Path:
    return Path(f"data/preferences/{iteration}/preferences.parquet")


def router(iteration: int) -> Path:
    return Path(f"data/routers/{iteration}")


def answers(iteration: int) -> Path:
    """The answers by every rule of router k."""
    return Path(f"data/answers/{iteration}")


def transcript(iteration: int) -> Path:
    return Path(f"data/transcripts/{iteration}/tokens.json")


def report(iteration: int) -> Path:
    return Path(f"data/reports/{iteration}")
