"""Commands of the pipeline (`flows`): retrain, manage the registered routers, version questions."""

import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from citer.cli.extra import need
from citer.cli.stages import Minutes, module_of
from citer.config.pair import address
from citer.config.params import load_params
from citer.errors import InputError

data = typer.Typer(no_args_is_help=True, help="Version your questions in data/own.")
MINUTES = "CITER_MINUTES"  # the budget of a run, for the process of its flow
Version = Annotated[str, typer.Argument(metavar="VERSION", help="Number of a registered version.")]


def run(minutes: Minutes = None) -> None:
    """Retrain: run the stale stages, register the routers, perhaps promote the last one.

    Reads params.yaml, the two models and data/own. Writes data, dvc.lock and mlruns. A stage is
    stale if its data, code or parameters changed. If the last router passes the gate, it becomes
    the champion.

    With --minutes, settings of params.yaml are reduced first until 1.3 times the forecast of the
    last `probe` on this machine fits. They are printed, and written there for `dvc repro`. Each
    router so far is then registered and judged at once.
    """
    need("pipeline", "citer run")
    params = load_params()  # bad parameters end the command before a server starts
    from flows.checks import check_project
    from flows.process_tree import run_command

    if minutes:
        module_of("budget").plan_of(params, minutes)  # an impossible one ends the command here, too
        os.environ[MINUTES] = str(minutes)
    check_project(params.pair)
    # Prefect's temporary server would outlive a killed run.
    raise SystemExit(run_command(sys.executable, "-m", "flows"))


def schedule(
    cron: Annotated[str, typer.Option(help='Times as a cron string (UTC), such as "0 3 * * 1".')],
) -> None:
    """Stay running and start a retraining at the given times. Needs PREFECT_API_URL."""
    need("pipeline", "citer schedule")
    load_params()  # raises InputError if this folder is not a project
    from flows.pipeline import schedule

    schedule(cron)


def alerts(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="Address of a webhook, http://… or https://…, or TYPE/NAME of a notification"
            " block. Without it, nothing is notified.",
        ),
    ] = None,
) -> None:
    """Install or update the automations of Prefect's server. Needs PREFECT_API_URL.

    One marks retrainings without heartbeats as crashed. The others notify TARGET of retrainings
    that failed, crashed or are late, of routers that were kept back, and of promises that traffic
    revoked or that were restored.
    """
    need("pipeline", "citer alerts")
    from flows.checks import check_target

    if target:
        check_target(target)
    from flows.notify.alerts import install

    install(target)


def compare() -> None:
    """Show the champion and the challenger side by side.

    Also shows their difference on common test questions, and how often these questions decided. The
    costs are those without delay, where the LLM runs as soon as one sequence of the batch needs it.
    """
    need("pipeline", "citer compare")
    from flows.tracking.compare import compare

    compare()


def promote(version: Version) -> None:
    """Make a registered version the champion. To roll back, give an older version."""
    need("pipeline", "citer promote")
    number = _number(version)
    from flows.tracking.registry import promote

    promote(number)


def restore(version: Version) -> None:
    """Restore params.yaml, dvc.lock and all outputs to those of a version.

    Overwrites params.yaml and dvc.lock, committed or not. Copies of both are kept
    in mlruns/before-restore. If an output was changed by hand, nothing is restored.
    """
    need("pipeline", "citer restore")
    number = _number(version)
    from flows.tracking.restore import restore

    restore(number)


def certify(
    url: Annotated[str, typer.Option(help="Address of a vLLM server with the plugin.")],
    rule: Annotated[str, typer.Option(help='A rule that it serves, such as "audit 0.25".')],
) -> None:
    """Test on a running server whether a rule keeps the promise, with any speculator of vLLM.

    Asks the validation questions of data/references with the rule and with the LLM alone,
    serve.batch at once. evaluate.epsilon and evaluate.delta are the promise. Exit status 1: it is
    not kept.
    """
    need("pipeline", "citer certify")
    try:
        address(url)
    except ValueError as error:
        raise InputError(f"--url: {error}") from None
    if not module_of("certify").certify(load_params(), url, rule):
        raise typer.Exit(1)


def erase(
    request: Annotated[str, typer.Option(help="Id of a reply, such as chatcmpl-….")] = "",
    user: Annotated[
        str, typer.Option(help="Who asked: `user`, else `safety_identifier`, of the request.")
    ] = "",
    log: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of a log. May be repeated. Default: those of prepare.traffic."),
    ] = None,
) -> None:
    """Erase logged rows from a log, and their texts from DVC's cache and remotes.

    Stop the servers that log to the folder first. Prints what is erased, and what is left. It can
    be repeated.
    """
    need("pipeline", "citer erase")
    params = load_params()
    if bool(request) == bool(user):
        raise InputError("citer erase: expected either --request ID or --user KEY")
    folders = log or [Path(each.path) for each in params.prepare.traffic]
    if not folders:
        raise InputError("prepare.traffic: no folder; expected one, or --log FOLDER")
    from flows.erase import erase

    given = ("request", request) if request else ("user", user)
    erase(*given, [*dict.fromkeys(folders)])


def _number(version: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", version):
        raise InputError(f"VERSION: {version!r}: expected a whole number from 1")
    return int(version)


@data.callback()
def _group() -> None:
    """Keep `add` a command of its own: typer merges a single one into its group."""


@data.command()
def add(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="JSON, JSON Lines, Parquet, CSV; or traffic folders."),
    ],
) -> None:
    """Check files as `prepare` would, copy them into data/own, and version them with DVC.

    Prints what to commit. `dvc push`, `dvc pull` and `citer restore` then include the questions.
    """
    need("pipeline", "citer data add")
    params = load_params()
    from flows.own import add

    add(files, params)
