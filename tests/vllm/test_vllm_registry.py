"""Routers of an MLflow server, fetched into a cache; without vLLM."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.exceptions import MlflowException

from citer.errors import InputError
from citer.storage.tables import write_json
from citer.vllm import registry
from flows.tracking.store import make_tables


def log(client: MlflowClient, experiment: str, folder: Path, at: str | None, **files: Any) -> str:
    """Store a folder, with these files of JSON, as a model in MLflow. Return its URI."""
    for name, content in files.items():
        write_json(folder / f"{name}.json", content)
    model = client.create_logged_model(experiment, folder.name)
    client.log_model_artifacts(model.model_id, str(folder), at)
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    return str(model.model_uri)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two versions of the router `r`. The first one is its champion."""
    folder = tmp_path_factory.mktemp("store")
    make_tables(folder / "mlflow.db")
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    client = MlflowClient()
    experiment = client.create_experiment("routers", (folder / "artifacts").as_uri())
    slm = log(client, experiment, folder / "slm", None, config={})
    client.create_registered_model("r")
    for name in ("first", "second"):
        router = {"slm": {"kept": slm}}
        logged = log(client, experiment, folder / name, "artifacts/bundle", router=router)
        client.create_model_version("r", logged, model_id=logged.removeprefix("models:/"))
    client.set_registered_model_alias("r", "champion", "1")
    return folder


@pytest.fixture
def cache(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registry, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}/mlflow.db")
    return tmp_path / "cache"


def test_a_router_is_fetched_with_its_slm_and_only_once(cache: Path) -> None:
    name, bundle = registry.fetched("models:/r@champion")
    assert name == "r/1"
    assert (bundle / "router.json").is_file()
    assert (bundle / "slm" / "config.json").is_file()
    (bundle / "router.json").write_text("known")
    assert registry.fetched("models:/r/1") == (name, bundle)
    assert (bundle / "router.json").read_text() == "known"
    other, folder = registry.fetched("models:/r/2")
    assert other == "r/2"
    assert folder != bundle


def test_no_source_leads_out_of_the_cache(cache: Path, store: Path) -> None:
    client = MlflowClient()
    client.create_registered_model("elsewhere")
    source = (store / "artifacts").as_uri()
    client.create_model_version("elsewhere", source)
    with pytest.raises(InputError, match=r"^models:/elsewhere/1: MLflow cannot fetch it: "):
        registry.fetched("models:/elsewhere/1")
    assert [file.name for file in cache.iterdir()] == [".lock"]


def test_a_download_that_fails_leaves_nothing(cache: Path, store: Path) -> None:
    gone = store / "artifacts"
    gone.rename(store / "elsewhere")
    with pytest.raises(InputError, match=r"^models:/r/2: MLflow cannot fetch it: "):
        registry.fetched("models:/r/2")
    (store / "elsewhere").rename(gone)
    assert [file.name for file in cache.iterdir()] == [".lock"]


def test_replicas_that_see_a_promotion_at_once_download_it_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One would remove what another is downloading."""
    download, calls = registry._download, []

    def slowly(version: str, folder: Path) -> None:
        calls.append(version)
        time.sleep(0.5)
        download(version, folder)

    monkeypatch.setattr(registry, "_download", slowly)
    with ThreadPoolExecutor(3) as replicas:
        found = [*replicas.map(registry.fetched, ["models:/r/2"] * 3)]
    assert calls == ["models:/r/2"]
    assert len({bundle for _, bundle in found}) == 1


@pytest.mark.parametrize("uri", ["models:/r/3", "models:/r@challenger", "models:/s/1"])
def test_a_version_that_does_not_exist_is_refused(cache: Path, uri: str) -> None:
    with pytest.raises(InputError, match=f"^{uri}: "):
        registry.fetched(uri)


def test_an_address_or_a_server_that_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"^models:/r: expected models:/NAME@ALIAS"):
        registry.fetched("models:/r")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(InputError, match="MLFLOW_TRACKING_URI is not set"):
        registry.fetched("models:/r/1")


def test_no_line_has_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = "http://me:secret@127.0.0.1:9"
    lost = Mock(side_effect=MlflowException(f"API request to {uri}/api failed with exception"))
    monkeypatch.setattr(registry, "_fetched", lost)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(InputError, match="MLflow cannot fetch it") as caught:
        registry.fetched("models:/r/1")
    assert "127.0.0.1:9" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_database_that_is_missing_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    with pytest.raises(InputError, match=r"mlflow.db: no registry here$"):
        registry.fetched("models:/r/1")
    assert list(tmp_path.iterdir()) == []
