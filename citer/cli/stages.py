"""One command per stage. DVC runs them (dvc.yaml). Each only reads and writes files."""

import gc
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any

import typer

from citer.cli.extra import need
from citer.config.params import Params, load_params
from citer.errors import InputError

Iteration = Annotated[str, typer.Argument(metavar="K", help="An iteration in params.yaml.")]
Minutes = Annotated[
    int | None,
    typer.Option(min=1, help="Fit the run into so many minutes by the pace that `probe` measures."),
]

# Stages of one iteration.
ITERATED = frozenset({"choose", "evaluate", "label", "train", "transcribe"})
# Stages that run without the extra `pipeline`.
LIGHT = frozenset({"code", "label", "references", "score_llm", "score_slm", "transcribe"})
# Stages that run no model, or announce themselves if they do.
QUIET = frozenset({"code", "prepare", "references", "choose", "report"})
# The help of each stage. Typer removes the indentation.
DESCRIPTIONS = {
    "code": "Write a digest of each stage's code, by which DVC finds the stages that are stale.",
    "prepare": "Check the rows and divide them into the four splits.",
    "probe": """
    Let each model answer a few questions, before the long stages. Run it after `prepare`.

    Prints the accuracy of LLM and base SLM, some answers with what the grader read in them, what
    the LLM's own text costs without training, a rough forecast of the later stages, and what would
    save most. Stops the run if the LLM is certainly below evaluate.llm_floor, and says what to
    change. With --minutes, also prints what `citer run --minutes` would reduce.
    """,
    "references": """
    Write the references to learn from: given ones, or the LLM's own answers.

    With evaluate.against, validation and test get the LLM's answers to compare with.
    """,
    "score_llm": "Compute the LLM's next token at each position of a reference.",
    "finetune": "Finetune the SLM on the references of the sft split.",
    "score_slm": "Compute the SLM's next token and hidden state at each position of a reference.",
    "router0": """
    Write router 0, which always accepts the SLM's token, and train the heads that need no
    preferences.
    """,
    "rivals": """
    Answer by each model alone, and by the candidates that are the same for each iteration.

    Stops the run if the LLM is right on too few validation questions (evaluate.llm_floor),
    unless answers are compared with the LLM's (evaluate.against).
    """,
    "label": "Label every token. A contested one is decided by rollouts or as label.method says.",
    "train": "Train and calibrate the heads `stand`, `narrow` and `logistic` of router K.",
    "evaluate": "Answer the held-out, validation and test questions by every rule of router K.",
    "choose": """
    Choose a rule on validation by evaluate.epsilon and evaluate.delta. Nothing is decoded.

    K = 0 chooses among the rules of `rivals`, which need no preferences.
    """,
    "transcribe": "Answer test questions by the chosen rule, token by token, for the report.",
    "report": "Write the table, the picture and the report page of all iterations.",
}


def module_of(stage: str) -> ModuleType:
    """Import a module of `citer.stages` by name: its packages may belong to an extra."""
    return import_module(f"citer.stages.{stage}")


def _run_stage(name: str, *args: Any, params: Params | None = None) -> None:
    if name not in LIGHT:
        need("pipeline", f"citer {name}")
    params = params or load_params()  # bad parameters end the command before the slow imports
    gc.disable()  # collection would take a fifth of the start, and modules are never freed
    stage = module_of(name)
    gc.freeze()
    gc.enable()
    from citer.models.device import announce
    from citer.stages.origin import rows_named

    if name not in QUIET:
        announce(" ".join(map(str, (name, *args))), params.pair)
    with rows_named(params.prepare):
        stage.run(params, *args)


def _command(name: str, description: str) -> Callable[..., None]:
    """Return the command of a stage."""

    def whole() -> None:
        _run_stage(name)

    def within(minutes: Minutes = None) -> None:
        _run_stage(name)
        if minutes:
            found = module_of("budget").plan_of(load_params(), minutes)
            typer.echo("\n".join(["a plan:", *found.lines()]))

    def one(iteration: Iteration) -> None:
        params = load_params()
        if iteration not in params.iterations and (name, iteration) != ("choose", "0"):
            listed = ", ".join(params.iterations)
            raise InputError(f"params.yaml lists iterations {listed}, not {iteration}")
        _run_stage(name, int(iteration), params=params)

    command = within if name == "probe" else one if name in ITERATED else whole
    command.__name__, command.__doc__ = name, description
    return command


COMMANDS = [_command(name, description) for name, description in DESCRIPTIONS.items()]
