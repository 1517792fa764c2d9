"""One retraining on this terminal; `citer run` starts it, and sees that nothing outlives it."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.server.api.server import SubprocessASGIServer
from rich.console import Console

from citer.errors import InputError
from citer.stages.paths import SUMMARY
from flows.deploy import START_SERVER
from flows.leash import end_all, end_with_the_leash
from flows.pipeline import retrain
from flows.reach import without_password

NEXT = """\
The frontier   data/summary/frontier.png
The versions   citer compare, or: {versions}
The runs       {prefect}
               then citer run with PREFECT_API_URL as it says
Once more      dvc repro (nothing to do until data, code or params.yaml change)"""


def main() -> None:
    """Retrain; end with the table and where to look next, or with what the user must mend."""
    versions = page(os.environ.get("MLFLOW_TRACKING_URI"))  # which MLflow sets, too
    try:
        with _ending_with_the_server():
            outcome = retrain()
    except InputError as error:
        Console(stderr=True, soft_wrap=True).print(f"citer: {error}", style="red", markup=False)
        raise SystemExit(2) from None
    table = (SUMMARY / "table.md").read_text()
    look = NEXT.format(versions=versions, prefect=START_SERVER)
    Console(soft_wrap=True, highlight=False).print(f"\n{table}\n{outcome}\n\n{look}", markup=False)


def page(uri: str | None) -> str:
    """Where MLflow's page is: of a server its address, of a database the command that shows it."""
    if uri and uri.startswith("http"):
        return without_password(uri)
    store = '"$MLFLOW_TRACKING_URI"' if uri else "sqlite:///mlruns/mlflow.db"
    return f"MLFLOW_DISABLE_TELEMETRY=true mlflow ui --backend-store-uri {store}"


@contextmanager
def _ending_with_the_server() -> Iterator[None]:
    """End all if Prefect's temporary server is killed: without it no run comes to an end."""
    done = threading.Event()
    server = SubprocessASGIServer()  # a singleton: Prefect starts this very object

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
