"""One command per stage. DVC runs them (dvc.yaml). Each only reads and writes files."""

import gc
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any

import typer

from citer.cli.extra import need_pipeline
from citer.config.params import Params, load_params
from citer.errors import InputError

Iteration = Annotated[
    str, typer.Argument(metavar="K", help="Number of an iteration in params.yaml.")
]
BadRow = StrEnum("BadRow", ["fail", "skip"])

# Stages that run without the extra `pipeline`.
LIGHT = frozenset({"code", "label", "references", "score_llm", "score_slm", "transcribe"})


def _run_stage(name: str, *args: Any, params: Params | None = None) -> None:
    if name not in LIGHT:
        need_pipeline(f"citer {name}")
    params = params or load_params()  # bad parameters end the command before the slow imports
    gc.disable()  # collection would take a fifth of the start, and modules are never freed
    stage = import_module(f"citer.stages.{name}")
    gc.freeze()
    gc.enable()
    from citer.stages.origin import rows_named

    with rows_named(params.prepare):
        stage.run(params, *args)


def _run_iteration(name: str, iteration: str) -> None:
    """Run a stage for one iteration. Raises InputError if params.yaml does not list it."""
    params = load_params()
    if iteration not in params.iterations:
        listed = ", ".join(params.iterations)
        raise InputError(f"params.yaml lists iterations {listed}, not {iteration}")
    _run_stage(name, int(iteration), params=params)


def code() -> None:
    """Write a digest of each stage's code. DVC compares it to find the stages that are stale."""
    _run_stage("code")


def prepare(
    on_bad_row: Annotated[
        BadRow | None, typer.Option(help="Overrides prepare.on_bad_row of params.yaml.")
    ] = None,
) -> None:
    """Check the rows and divide them into the four splits."""
    params = load_params()
    if on_bad_row:
        section = params.prepare.model_copy(update={"on_bad_row": on_bad_row.value})
        params = params.model_copy(update={"prepare": section})
    _run_stage("prepare", params=params)


def probe() -> None:
    """Let each model answer a few questions, before the long stages. Run it after `prepare`.

    Prints the accuracy of LLM and base SLM, some answers with what the grader read in them, a rough
    forecast of the later stages, and how labels will be decided. Stops the run if the LLM is
    certainly below evaluate.llm_floor, and says what to change.
    """
    _run_stage("probe")


def references() -> None:
    """Write the references to learn from: given ones, or the LLM's own answers.

    With evaluate.against, validation and test get the LLM's answers to compare with.
    """
    _run_stage("references")


def finetune() -> None:
    """Finetune the SLM on the references of the sft split."""
    _run_stage("finetune")


def score_llm() -> None:
    """Compute the LLM's next token at every position of each reference."""
    _run_stage("score_llm")


def score_slm() -> None:
    """Compute the SLM's next token and hidden state at every position of each reference."""
    _run_stage("score_slm")


def router0() -> None:
    """Write router 0, which always accepts the SLM's token, and train the head `agree`."""
    _run_stage("router0")


def rivals() -> None:
    """Answer validation and test by the methods that a router must beat (evaluate.rivals).

    Stops the run if the LLM is right on too few validation questions (evaluate.llm_floor),
    unless answers are compared with the LLM's (evaluate.against).
    """
    _run_stage("rivals")


def label(iteration: Iteration) -> None:
    """Label every token. A contested one is decided by rollouts or as label.method says."""
    _run_iteration("label", iteration)


def train(iteration: Iteration) -> None:
    """Train and calibrate the head `stand` of router K."""
    _run_iteration("train", iteration)


def evaluate(iteration: Iteration) -> None:
    """Answer the held-out, validation and test questions by every rule of router K."""
    _run_iteration("evaluate", iteration)


def choose(iteration: Iteration) -> None:
    """Choose a rule on validation by evaluate.epsilon and evaluate.delta. Nothing is decoded."""
    _run_iteration("choose", iteration)


def transcribe(iteration: Iteration) -> None:
    """Answer 100 test questions by the chosen rule, token by token, for the report page."""
    _run_iteration("transcribe", iteration)


def report() -> None:
    """Write the table, the picture and the report page of all iterations."""
    _run_stage("report")
