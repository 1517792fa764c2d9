"""The whole flow under a real Prefect server: its messages on the terminal and in Prefect."""

import errno
import os
import subprocess
import sys
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from uuid import uuid4

import httpx
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import FailedRun
from prefect.flow_engine import run_flow
from prefect.logging.loggers import flow_run_logger
from prefect.settings import PREFECT_API_URL, temporary_settings

from citer.errors import InputError
from flows.__main__ import main
from flows.pipeline import retrain
from flows.tracking.describe import page
from tests.flows.conftest import Pipeline

pytestmark = pytest.mark.usefixtures("prefect")


class Locked(BaseHTTPRequestHandler):
    """Answers as a server with PREFECT_SERVER_API_AUTH_STRING."""

    def do_POST(self) -> None:
        self.send_error(401)

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Keep stderr for what is tested."""


LINE = "params.yaml lists iterations 1, 2, not 9"


def test_bad_input_ends_a_run_with_only_its_line(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    pipeline({"prepare": {"cmd": "citer label 9"}})
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"citer: {LINE}"
    assert "Traceback" not in caplog.text
    with get_client(sync_client=True) as client:
        [last] = client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)
    assert last.state
    assert (last.state.name, last.state.message) == ("Failed", LINE)


def test_a_stage_that_crashes_ends_a_run_in_one_line(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own output has the traceback."""
    pipeline({"prepare": {"cmd": "sh -c 'exit 3'"}})
    monkeypatch.setattr("flows.pipeline.run_stage.retries", 0)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines()[-1] == "citer: prepare: exit status 3"


def test_a_run_within_minutes_is_planned_before_its_stages(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline({"prepare": {"cmd": "sh -c 'touch ran'"}})
    monkeypatch.setenv("CITER_MINUTES", "60")
    with pytest.raises(SystemExit):
        main()
    assert "--minutes: this machine's pace is not known" in capsys.readouterr().err
    assert not Path("ran").exists()


def test_bad_input_leaves_only_its_line_in_the_log_of_a_worker(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline({"prepare": {"cmd": "citer label 9"}})
    log = flow_run_logger(flow_run_id=uuid4())
    with pytest.raises(InputError):
        run_flow(retrain, error_logger=log)  # as a worker's process does
    assert (caplog.records[-1].name, caplog.messages[-1]) == ("prefect.flow_runs", LINE)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("file", "named"), [("params.yaml", "params.yaml"), ("data/own/questions.dvc", "data/own")]
)
def test_a_run_whose_inputs_changed_is_not_registered(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], file: str, named: str
) -> None:
    pipeline({"prepare": {"cmd": f"sh -c 'mkdir -p data/own; echo >> {file}'"}})
    with pytest.raises(SystemExit):
        main()
    assert f"{named}: changed during the run" in capsys.readouterr().err


def test_options_belong_to_citer_run() -> None:
    """Previously, `--help` ended in a traceback."""
    asked = subprocess.run(
        [sys.executable, "-m", "flows", "--help"], capture_output=True, text=True, check=False
    )
    assert asked.returncode == 2
    assert asked.stderr == "citer: python -m flows: it has no options: see `citer run`\n"


def test_a_lost_prefect_server_is_reported_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(**_: object) -> None:
        raise httpx.ConnectError("Connection refused")

    monkeypatch.setattr("flows.__main__.retrain", lost)
    elsewhere = temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"})
    with elsewhere, pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    line = "citer: Prefect at http://127.0.0.1:9/api: no answer (ConnectError); start it and"
    assert capsys.readouterr().err.startswith(line)


def test_a_prefect_server_that_wants_a_password_is_reported_in_one_line(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline({"prepare": {"cmd": "touch ran"}})
    with HTTPServer(("127.0.0.1", 0), Locked) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/api"
        with temporary_settings({PREFECT_API_URL: url}), pytest.raises(SystemExit) as ended:
            main()
        server.shutdown()
    assert ended.value.code == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"citer: Prefect at {url}: status 401 for /api/")
    assert line.endswith("; set PREFECT_API_AUTH_STRING")


def test_an_error_of_which_prefect_kept_only_the_message_ends_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Previously, a run on a slow Prefect server ended in a traceback of FailedRun."""

    def lost(**_: object) -> None:
        raise FailedRun("MLflow at http://127.0.0.1:9: no answer")

    monkeypatch.setattr("flows.__main__.retrain", lost)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "citer: MLflow at http://127.0.0.1:9: no answer\n"


def test_a_store_that_does_not_answer_is_reported_before_any_stage_runs(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline({"prepare": {"cmd": "touch ran"}})
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setattr("flows.pipeline.reach_store.retries", 0)
    with pytest.raises(SystemExit):
        main()
    assert "citer: MLflow at http://127.0.0.1:9: no answer" in capsys.readouterr().err
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        (None, "mlflow ui --backend-store-uri sqlite:///mlruns/mlflow.db"),
        ("", "mlflow ui --backend-store-uri sqlite:///mlruns/mlflow.db"),
        ("http://me:s@cret@there:5000", "http://…@there:5000"),
        ("postgresql://me:secret@there/db", 'mlflow ui --backend-store-uri "$MLFLOW_TRACKING_URI"'),
    ],
)
def test_the_address_of_the_store_in_use_is_printed(uri: str | None, shown: str) -> None:
    assert page(uri).removeprefix("MLFLOW_DISABLE_TELEMETRY=true ") == shown


def test_any_other_error_keeps_its_traceback(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline({"prepare": {"cmd": "true"}})
    monkeypatch.setattr("flows.pipeline.plan", partial({}.__getitem__, "none"))
    with pytest.raises(KeyError):
        main()
    assert "Traceback" in caplog.text


def test_a_full_disk_of_the_flow_itself_ends_in_one_line(
    pipeline: Pipeline,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "data/code.json")

    pipeline({"prepare": {"cmd": "true"}})
    monkeypatch.setattr("flows.pipeline.plan", full)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    line = "citer: [Errno 28] No space left on device: 'data/code.json'"
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert "Traceback" not in caplog.text


def test_the_flow_imports_neither_torch_nor_transformers() -> None:
    """Each takes seconds. The flow's process needs none of them: its stages do."""
    script = "import sys, flows.__main__; print({'torch', 'transformers'} & {*sys.modules})"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "set()\n"


def test_no_page_of_another_site_may_use_a_server_that_a_run_starts() -> None:
    """A browser asks first, and lets only the origins that the answer names."""
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = httpx.options(f"{PREFECT_API_URL.value()}/flow_runs/filter", headers=headers)
    assert "access-control-allow-origin" not in answer.headers
