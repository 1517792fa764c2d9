"""Run one retraining in this terminal. `citer run` starts this module and ends its processes."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.exceptions import FailedRun
from prefect.server.api.server import SubprocessASGIServer

from citer.cli.main import BAD_INPUT, REFUSED, refuse
from citer.cli.pipeline import MINUTES
from citer.errors import InputError, TemporaryError
from citer.progress import say, warn
from citer.stages.paths import SUMMARY
from flows.pipeline import retrain
from flows.process_tree import end_all
from flows.server import answering, prefect_page
from flows.tracking.describe import page

NEXT = """\
Picture        data/summary/frontier.png
Versions       citer compare, or: {versions}
Prefect's page {prefect}
Repeat         dvc repro (runs a stage only if its data, code or parameters changed)"""


def main(keeper: int | None = None) -> None:
    """Retrain, then print the table and where to look next. End if the process `keeper` does.

    Exit with 2 on bad input, with 1 if the cause may pass, such as a full disk or a lost server.
    """
    versions = page(os.environ.get("MLFLOW_TRACKING_URI"))  # read now: MLflow changes it later
    try:
        with answering(), _ending_with_others(keeper):
            outcome = retrain(minutes=float(os.environ.get(MINUTES, 0)) or None)
    # FailedRun: a slow server made Prefect ask again and lose the error itself.
    except (TemporaryError, FailedRun) as error:
        raise SystemExit(refuse(str(error), REFUSED)) from None
    except InputError as error:
        raise SystemExit(refuse(str(error), BAD_INPUT)) from None
    table = (SUMMARY / "table.md").read_text()
    next_steps = NEXT.format(versions=versions, prefect=prefect_page())
    say(f"\n{table}\n{outcome}\n\n{next_steps}")


@contextmanager
def _ending_with_others(keeper: int | None) -> Iterator[None]:
    """End this process if its keeper dies, or Prefect's server, without which it would hang."""
    done = threading.Event()
    server = SubprocessASGIServer()  # a singleton: the object that Prefect itself starts

    def watch() -> None:
        while not done.wait(1):
            if keeper and os.getppid() != keeper:
                end_all()
            if (process := server.server_process) and process.poll() is not None:
                warn("citer: Prefect's server died; repeat `citer run`")
                end_all()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()


if __name__ == "__main__":
    if not all(argument.isdigit() for argument in sys.argv[1:]):
        raise SystemExit(refuse("python -m flows: it has no options: see `citer run`", BAD_INPUT))
    main(*map(int, sys.argv[1:]))
