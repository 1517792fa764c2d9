"""An unusable store is reported at once, in one line."""

import re
import socket
import sqlite3
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

from citer.errors import InputError, TemporaryError, without_password
from flows.tracking import store as own
from flows.tracking.compare import compare
from flows.tracking.registry import promote
from flows.tracking.restore import restore
from flows.tracking.store import open_store
from tests.flows.project import register, retrain

DATABASE = Path("mlruns/mlflow.db")


class Small(BaseHTTPRequestHandler):
    """Answers as a proxy that is not set up for large files."""

    def do_PUT(self) -> None:
        self.send_error(413)


def refused() -> str:
    """Return the error message of opening the store."""
    with pytest.raises(TemporaryError) as caught:
        open_store("citer")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.usefixtures("project")
def test_a_file_that_is_no_database_is_reported_in_one_line() -> None:
    DATABASE.write_bytes(b"torn" * 1000)
    assert refused().endswith("mlruns/mlflow.db: (sqlite3.DatabaseError) file is not a database")
    DATABASE.unlink()
    DATABASE.mkdir()
    assert refused().endswith("(sqlite3.OperationalError) unable to open database file")


@pytest.mark.usefixtures("project")
def test_a_damaged_database_is_reported_in_one_line_by_every_command() -> None:
    retrain(1)
    register()
    content = DATABASE.read_bytes()
    page = int.from_bytes(content[16:18], "big")
    DATABASE.write_bytes(content[: 4 * page] + b"\xa5" * (len(content) - 4 * page))
    retrain(2)
    for command in (register, compare, lambda: promote(1), lambda: restore(1)):
        with pytest.raises(TemporaryError, match=r"^MLflow at sqlite:///") as caught:
            command()
        assert "\n" not in str(caught.value)


@pytest.mark.slow  # SQLite itself waits five seconds
@pytest.mark.usefixtures("project")
def test_a_locked_database_is_reported_in_one_line() -> None:
    with sqlite3.connect(DATABASE) as connection:
        connection.execute("begin exclusive")
        assert refused().endswith("database is locked")


@pytest.mark.usefixtures("project")
def test_a_server_that_does_not_answer_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own, "ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret@127.0.0.1:{port}")
        message = refused()
    expected = "no answer (ReadTimeout), expected a running MLflow server"
    assert message == f"MLflow at http://…@127.0.0.1:{port}: {expected}"
    assert "no answer (ConnectionError), expected" in refused()


def test_a_file_that_a_server_refuses_is_reported_in_one_line(tmp_path: Path) -> None:
    """Previously, this ended in a traceback, after hours of training."""
    (tmp_path / "slm").touch()
    with HTTPServer(("127.0.0.1", 0), Small) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://me:secret@127.0.0.1:{server.server_port}"
        files = MlflowArtifactsRepository("mlflow-artifacts:/1", tracking_uri=uri)
        with pytest.raises(TemporaryError, match="413 Client Error") as caught, own.reported():
            files.log_artifact(str(tmp_path / "slm"))
        server.shutdown()
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.usefixtures("project")
def test_no_line_has_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is lost after it was checked: MLflow's own error names the address."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(own, "check_store", lambda _: True)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")
    assert refused().count("http://…@127.0.0.1:9") == 2
    uri = without_password("postgresql://h/db?user=me&password=secret&sslmode=require")
    assert uri == "postgresql://h/db?user=me&password=…&sslmode=require"


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("uri", ["nonsense", "foo://bar", "http://", "http://[x", "sqlite:", "m:/"])
def test_an_invalid_uri_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(InputError, match=rf"^MLflow at {re.escape(uri)}: .*$"):
        open_store("citer")


@pytest.mark.usefixtures("project")
def test_the_flow_does_not_retry_an_invalid_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense")
    with pytest.raises(InputError) as caught:
        open_store("citer")
    assert not isinstance(caught.value, TemporaryError)


@pytest.mark.usefixtures("project")
def test_a_folder_is_refused_as_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "mlruns")
    with pytest.raises(InputError, match=re.escape(f"MLflow at mlruns: {own.EXPECTED}")):
        open_store("citer")
