"""DVC's remote in an object store: a real S3 server on loopback."""

from collections.abc import Iterator
from pathlib import Path

import boto3
import httpx
import pytest
from moto.server import ThreadedMotoServer

from citer.errors import TemporaryError
from citer.stages import paths
from citer.storage.tables import remove
from flows.dvc_commands import dvc
from flows.erase import erase
from flows.tracking.restore import restore
from tests.flows.project import commit, register, retrain_for_a_run, run
from tests.flows.servers import free_port
from tests.flows.tracking.registered import holder, versions
from tests.flows.tracking.test_restore import MORE, QUESTIONS, own, write
from tests.served import served, write_served

pytestmark = pytest.mark.slow

ACCESS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedMotoServer]:
    """An S3 server with the bucket `citer`. It keeps its objects while it is stopped."""
    for name, value in ACCESS.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer("127.0.0.1", free_port())
    server.start()
    httpx.post(f"{address(server)}/moto-api/reset")  # all servers of a process share their objects
    boto3.client("s3", endpoint_url=address(server)).create_bucket(Bucket="citer")
    yield server
    server.stop()


def address(server: ThreadedMotoServer) -> str:
    return "http://{}:{}".format(*server.get_host_and_port())


def add_remote(server: ThreadedMotoServer) -> None:
    dvc("remote", "add", "--default", "store", "s3://citer/data")
    dvc("remote", "modify", "store", "endpointurl", address(server))


def test_another_clone_pulls_what_a_run_pushed_and_restores_its_questions(
    project: Path, store: ThreadedMotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    add_remote(store)
    write(QUESTIONS, "One")
    retrain_for_a_run(1)
    run(project, "citer", "run")
    first, trained = own(), paths.preferences(2).read_bytes()
    write(QUESTIONS, "Another")
    write(MORE, "More")
    retrain_for_a_run(2)
    register()
    second = own()
    assert holder("champion") == 4
    commit(project)
    registry = f"sqlite:///{project}/mlruns/mlflow.db"
    run(tmp_path, "git", "clone", "-q", str(project), "clone")
    monkeypatch.chdir(tmp_path / "clone")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry)
    assert not QUESTIONS.exists()
    dvc("pull")
    assert own() == second
    restore(2)
    assert own() == first
    assert paths.preferences(2).read_bytes() == trained


def test_a_store_that_is_lost_leaves_the_champion(project: Path, store: ThreadedMotoServer) -> None:
    add_remote(store)
    retrain_for_a_run(1)
    register()
    retrain_for_a_run(2)
    store.stop()
    with pytest.raises(TemporaryError, match="no new champion, since the data are not pushed: dvc"):
        register()
    assert (versions(), holder("champion")) == ([1, 2, 3, 4], 2)
    store.start()
    assert "version 4 promoted" in register()
    assert holder("champion") == 4


def test_erased_rows_leave_a_store_whose_objects_are_nowhere_else(
    project: Path, store: ThreadedMotoServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_remote(store)
    log = Path("data/own/log")
    log.mkdir(parents=True)
    rows = {"a": served("Who am I?", user="ann"), "b": served("Why?", user="bob")}
    for name, row in rows.items():
        write_served(f"{log}/{name}.parquet", [row])
    dvc("add", str(log))
    dvc("push")
    remove(Path(".dvc/cache"))
    erase("user", "ann", [log])
    assert "DVC's remote store: 2 of 3 objects erased\n" in capsys.readouterr().out
    found = boto3.client("s3", endpoint_url=address(store)).list_objects(Bucket="citer")
    [left] = found["Contents"]
    assert left["Size"] == (log / "b.parquet").stat().st_size
