"""The whole flow under a real Prefect server: its messages on the terminal and in Prefect."""

import errno
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
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
from tests.flows.servers import refusing

pytestmark = pytest.mark.usefixtures("prefect")


LINE = "params.yaml lists iterations 1, 2, not 9"


def ended(capsys: pytest.CaptureFixture[str]) -> tuple[object, list[str]]:
    """Run the flow, which fails. Return the exit status and the lines of stderr."""
    with pytest.raises(SystemExit) as error:
        main()
    return error.value.code, capsys.readouterr().err.splitlines()


def test_bad_input_ends_a_run_with_only_its_line_and_no_other_stage_starts(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    pipeline({"bad": {"cmd": "citer label 9"}, "later": {"cmd": "touch end", "outs": ["end"]}})
    status, said = ended(capsys)
    assert (status, said[-1]) == (2, f"citer: {LINE}")
    assert not Path("end").exists()
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
    status, said = ended(capsys)
    assert (status, said[-1]) == (1, "citer: prepare: exit status 3")


def test_a_run_within_minutes_is_planned_before_its_stages(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline({"prepare": {"cmd": "sh -c 'touch ran'"}})
    monkeypatch.setenv("CITER_MINUTES", "60")
    assert any("--minutes: this machine's pace is not known" in line for line in ended(capsys)[1])
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
    assert any(f"{named}: changed during the run" in line for line in ended(capsys)[1])


def test_options_belong_to_citer_run() -> None:
    """Previously, `--help` ended in a traceback."""
    asked = subprocess.run(
        [sys.executable, "-m", "flows", "--help"], capture_output=True, text=True, check=False
    )
    assert asked.returncode == 2
    assert asked.stderr == "citer: python -m flows: it has no options: see `citer run`\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            httpx.ConnectError("Connection refused"),
            "Prefect at http://127.0.0.1:9/api: no answer (ConnectError); start it and repeat the "
            "command",
        ),
        # A slow server made Prefect ask again, and it kept only the message.
        (FailedRun("MLflow at http://there: no answer"), "MLflow at http://there: no answer"),
    ],
    ids=["server", "message"],
)
def test_what_is_left_of_a_lost_prefect_server_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    def lost(**_: object) -> None:
        raise error

    monkeypatch.setattr("flows.__main__.retrain", lost)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert ended(capsys) == (1, [f"citer: {line}"])


def test_a_prefect_server_that_wants_a_password_is_reported_in_one_line(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline({"prepare": {"cmd": "touch ran"}})
    with refusing(401) as place, temporary_settings({PREFECT_API_URL: f"http://{place}/api"}):
        status, said = ended(capsys)
    assert status == 1
    assert said[-1].startswith(f"citer: Prefect at http://{place}/api: status 401 for /api/")
    assert said[-1].endswith("; set PREFECT_API_AUTH_STRING")


def test_a_store_that_does_not_answer_is_reported_before_any_stage_runs(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline({"prepare": {"cmd": "touch ran"}})
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setattr("flows.pipeline.reach_store.retries", 0)
    assert ended(capsys)[1][-1].startswith("citer: MLflow at http://127.0.0.1:9: no answer")
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
    status, said = ended(capsys)
    assert (status, said[-1]) == (1, "citer: [Errno 28] No space left on device: 'data/code.json'")
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
