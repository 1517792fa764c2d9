"""`citer`: a command a stage, and what is done with the routers that come out.

Everything heavy is imported by the command that needs it. Bad input ends a command with one line
and exit status 2.
"""

import ctypes
import errno
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from citer.config import Params, load_params
from citer.errors import InputError, one_line
from citer.rule import Rule

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Token-level routing between a small and a large language model.",
)
STAGES = "Stages (dvc.yaml runs them)"
ROUTERS = "Routers and the pair"

EMBEDDED = Path("data/pair")

Iteration = Annotated[int, typer.Argument(min=1, help="Which round of labels and router.")]
Version = Annotated[int, typer.Argument(min=1, help="Its number in the registry.")]
BadRow = StrEnum("BadRow", ["fail", "skip"])

BAD_INPUT, REFUSED = 2, 1  # exit statuses
USERS = {errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM}
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


def _run_stage(name: str, *args: Any, params: Params | None = None) -> None:
    params = params or load_params()  # before anything heavy is imported
    gc.disable()  # to look for garbage among modules, all of which stay, takes a fifth of a start
    stage = import_module(f"citer.stages.{name}")
    gc.freeze()
    gc.enable()
    stage.run(params, *args)


@app.command(rich_help_panel=STAGES)
def code() -> None:
    """Write a checksum of each stage's code, by which DVC knows which stages are stale."""
    _run_stage("code")


@app.command(rich_help_panel=STAGES)
def prepare(
    on_bad_row: Annotated[
        BadRow | None, typer.Option(help="In place of params.yaml's prepare.on_bad_row.")
    ] = None,
) -> None:
    """Check the rows and deal them to the four splits."""
    params = load_params()
    if on_bad_row:
        section = params.prepare.model_copy(update={"on_bad_row": on_bad_row.value})
        params = params.model_copy(update={"prepare": section})
    _run_stage("prepare", params=params)


@app.command(rich_help_panel=STAGES)
def finetune() -> None:
    """Finetune the SLM on the references of the sft split."""
    _run_stage("finetune")


@app.command("score_llm", rich_help_panel=STAGES)
def score_llm() -> None:
    """Ask the LLM for the next token at every position of each reference."""
    _run_stage("score_llm")


@app.command("score_slm", rich_help_panel=STAGES)
def score_slm() -> None:
    """Ask the SLM the same, and keep its hidden states."""
    _run_stage("score_slm")


@app.command(rich_help_panel=STAGES)
def router0() -> None:
    """Write router 0: the SLM's token always stands; learn where the LLM would agree."""
    _run_stage("router0")


@app.command(rich_help_panel=STAGES)
def rivals() -> None:
    """Answer validation and test without a router: the marks that a router must beat."""
    _run_stage("rivals")


@app.command(rich_help_panel=STAGES)
def label(iteration: Iteration) -> None:
    """Label every token; finish the answer from each contested one under the previous router."""
    _run_stage("label", iteration)


@app.command(rich_help_panel=STAGES)
def train(iteration: Iteration) -> None:
    """Train and calibrate this iteration's router."""
    _run_stage("train", iteration)


@app.command(rich_help_panel=STAGES)
def evaluate(iteration: Iteration) -> None:
    """Try every rule, choose one on validation, report it on test."""
    _run_stage("evaluate", iteration)


@app.command(rich_help_panel=STAGES)
def report() -> None:
    """Gather all iterations into one table and one picture."""
    _run_stage("report")


@app.command(rich_help_panel=ROUTERS)
def run() -> None:
    """Run the whole retraining: every stage, registration, promotion."""
    load_params()  # what is wrong with it is said before a server starts
    from flows.leash import held

    # Prefect's temporary server would outlive a killed run.
    raise SystemExit(held([sys.executable, "-m", "flows"]))


@app.command(rich_help_panel=ROUTERS)
def schedule(
    cron: Annotated[str, typer.Option(help='When, as cron says it: "0 3 * * 1".')],
) -> None:
    """Stay up and start a retraining at the given times (UTC); needs PREFECT_API_URL."""
    from flows.deploy import serve

    serve(cron)


@app.command(rich_help_panel=ROUTERS)
def generate(
    router: Annotated[
        str,
        typer.Option(help="models:/NAME@ALIAS, models:/NAME/VERSION, or a folder with --rule."),
    ],
    input: Annotated[Path, typer.Option(help="Questions, JSON or JSON Lines.")],
    output: Annotated[Path, typer.Option(help="Answers, one JSON line each.")],
    rule: Annotated[
        str | None,
        typer.Option(help='In place of the router\'s own, such as "risk 0.8 audit 0.1".'),
    ] = None,
    disagreements: Annotated[
        Path | None,
        typer.Option(help="Where audits found the models to differ: a table, Parquet."),
    ] = None,
) -> None:
    """Answer questions with a router; grade them where the answer is known."""
    params, parsed = load_params(), _rule(rule)
    with _bundle(router) as bundle:
        from citer.generate import generate

        generate(params, bundle, input, output, parsed, disagreements)


def _rule(text: str | None) -> Rule | None:
    try:
        return None if text is None else Rule.parse(text)
    except ValueError as error:
        raise InputError(f"--rule: {error}") from None


def _bundle(router: str) -> AbstractContextManager[Path]:
    if router.startswith("models:/"):
        from flows.registry import fetched_bundle

        return fetched_bundle(router)
    if not Path(router, "router.json").is_file():
        expected = "expected models:/NAME@ALIAS or a router's folder"
        raise InputError(f"--router: {router!r}: no router.json there, {expected}")
    return nullcontext(Path(router))


@app.command(rich_help_panel=ROUTERS)
def compare() -> None:
    """Show the champion beside the challenger."""
    from flows.compare import compare

    compare()


@app.command(rich_help_panel=ROUTERS)
def promote(version: Version) -> None:
    """Make a registered version the champion by hand; an older one to roll back."""
    from flows.registry import promote

    promote(version)


@app.command(rich_help_panel=ROUTERS)
def restore(version: Version) -> None:
    """Put params.yaml, dvc.lock and all outputs back to those of a version."""
    from flows.restore import restore

    restore(version)


@app.command(rich_help_panel=ROUTERS)
def pretrain() -> None:
    """Make the embedded pair (data/pair) again, from nothing but seeds."""
    load_params()  # refuses any folder but a project
    from citer.pretrain import make_pair

    make_pair(EMBEDDED, seed=17)  # replaces that folder: never the one that holds another pair


@app.command(rich_help_panel=ROUTERS)
def bench(
    rows: Annotated[
        list[str] | None, typer.Argument(help="Numbers or names of rows; all without any.")
    ] = None,
    pair: Annotated[
        list[str] | None, typer.Option(help="embedded, cpu-fp32, cpu-bf16, gpu; each row's own.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of torch.")] = None,
    out: Annotated[Path, typer.Option(help="The report, JSON.")] = Path(
        "benchmarks/results/bench.json"
    ),
) -> None:
    """Measure speed and memory against what is possible (benchmarks/README.md)."""
    load_params()
    from benchmarks.bench import run

    run(rows or [], pair or [], threads, out)


def _keep_freed_memory() -> None:
    """Keep a step's tensors for the next one: the kernel would take and zero them every time."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc
        libc.mallopt(M_MMAP_THRESHOLD, 2**25)  # older ones take no more
        libc.mallopt(M_TRIM_THRESHOLD, 2**30)


def call(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default the process's; returns its exit status.

    2 is for the user to mend. 1 is for what the machine refuses, such as a full disk: the flow
    tries that again.
    """
    try:
        app(arguments)
    except InputError as error:
        return _refused(str(error), BAD_INPUT)
    except OSError as error:
        if error.errno in (None, errno.ENOENT):  # a library's own, or a file of ours
            raise
        place = f"{error.filename}: " if error.filename else ""
        return _refused(
            f"{place}{os.strerror(error.errno)}", BAD_INPUT if error.errno in USERS else REFUSED
        )
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _refused(line: str, status: int) -> int:
    Console(stderr=True).print(
        f"citer: {one_line(line)}", style="red", markup=False, highlight=False, soft_wrap=True
    )
    return status


def main() -> None:
    """The `citer` command."""
    sys.path.insert(0, "")  # `flows` and `benchmarks` are the project's own, found in its folder
    # On cores that others use too, OpenMP's spinning threads would run several times slower; some
    # microseconds of it spare short waits their wake-up.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    _keep_freed_memory()
    if status := call():
        raise SystemExit(status)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # all is written; to take torch's modules apart would be a second's work
