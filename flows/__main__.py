"""One retraining on this terminal; `citer run` starts it, and sees that nothing outlives it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.server.api.server import SubprocessASGIServer
from rich.console import Console

from citer.errors import InputError
from citer.stages.paths import SUMMARY
from flows.leash import end_all, end_with_the_leash
from flows.pipeline import retrain

NEXT = """\
The frontier   data/summary/frontier.png
The versions   citer compare, or: mlflow ui --backend-store-uri sqlite:///mlruns/mlflow.db
The runs       prefect server start, then citer run with PREFECT_API_URL as it says
Once more      dvc repro (nothing to do until data, code or params.yaml change)"""


def main() -> None:
    """Retrain; end with the table and where to look next, or with what the user must mend."""
    try:
        with _ending_with_the_server():
            outcome = retrain()
    except InputError as error:
        Console(stderr=True, soft_wrap=True).print(f"citer: {error}", style="red", markup=False)
        raise SystemExit(2) from None
    table = (SUMMARY / "table.md").read_text()
    Console(soft_wrap=True, highlight=False).print(f"\n{table}\n{outcome}\n\n{NEXT}", markup=False)


@contextmanager
def _ending_with_the_server() -> Iterator[None]:
    """End all if Prefect's temporary server is killed: without it no run comes to an end."""
    done, server = threading.Event(), SubprocessASGIServer()  # the one that Prefect may start

    def watch() -> None:
        while not done.wait(1):
            if (process := server.server_process) and process.poll() is not None:
                Console(stderr=True).print("citer: Prefect's server died; `citer run` once more")
                end_all()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()


if __name__ == "__main__":
    end_with_the_leash()
    main()
