"""An unusable store is reported at once, in one line."""

import re
import socket
import sqlite3
from pathlib import Path

import pytest
from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

from citer.errors import InputError, TemporaryError, without_password
from flows.tracking import store as own
from flows.tracking.compare import compare
from flows.tracking.registry import promote
from flows.tracking.restore import restore
from flows.tracking.store import open_store
from tests.flows.project import register, retrain
from tests.flows.servers import refusing

DATABASE = Path("mlruns/mlflow.db")


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


@pytest.mark.usefixtures("registered")
def test_a_damaged_database_is_reported_in_one_line_by_every_command() -> None:
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
    """As a proxy does that is not set up for large files."""
    (tmp_path / "slm").touch()
    with refusing(413) as place:
        uri = f"http://me:secret@{place}"
        files = MlflowArtifactsRepository("mlflow-artifacts:/1", tracking_uri=uri)
        with pytest.raises(TemporaryError, match="413 Client Error") as caught, own.reported():
            files.log_artifact(str(tmp_path / "slm"))
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


@pytest.mark.parametrize("password", ["se#cret", "se?cret"])
def test_a_password_that_makes_the_address_wrong_is_not_shown(password: str) -> None:
    with pytest.raises(InputError, match=r"^MLflow at http://…@h:5000: expected a server's"):
        own.check_store(f"http://me:{password}@h:5000")


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("uri", "said"),
    [
        *((uri, "") for uri in ("nonsense", "sqlite:", "m:/")),
        *((uri, own.EXPECTED) for uri in ("foo://bar", "http://", "http://[x")),
        ("mlruns", own.EXPECTED),  # a folder
    ],
)
def test_an_invalid_uri_is_reported_in_one_line_and_not_retried(
    monkeypatch: pytest.MonkeyPatch, uri: str, said: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(InputError, match=rf"^{re.escape(f'MLflow at {uri}: {said}')}.*$") as caught:
        open_store("citer")
    assert not isinstance(caught.value, TemporaryError)
