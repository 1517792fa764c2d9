"""Routers of an MLflow server, each downloaded once. `mlflow-skinny` is enough for it."""

import fcntl
import os
import re
from pathlib import Path

from citer.errors import InputError, with_extra, without_password
from citer.models.weights import CACHE
from citer.storage.tables import digest, read_json, replacing

ADDRESS = re.compile(r"models:/([^/@]+)(?:@([^/@]+)|/(\d+))")
# MLflow's own defaults would try for minutes to reach a server that does not answer.
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}


def fetched(uri: str) -> tuple[str, Path]:
    """Return a router's NAME/VERSION and folder, downloaded with its SLM. Raises InputError."""
    address = ADDRESS.fullmatch(uri)
    if not address:
        raise InputError(f"{uri}: expected models:/NAME@ALIAS or models:/NAME/VERSION")
    if not (store := os.environ.get("MLFLOW_TRACKING_URI")):
        expected = "expected the MLflow server's address"
        raise InputError(f"{uri}: MLFLOW_TRACKING_URI is not set, {expected}")
    database = store.removeprefix("sqlite:///")
    if database != store and not Path(database).exists():  # MLflow would create it
        raise InputError(f"{uri}: MLflow at {without_password(store)}: no registry here")
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        return _fetched(*address.groups())
    except ImportError as error:
        raise InputError(f"{uri}: {error}; {with_extra('vllm')}") from None
    except Exception as error:  # MLflow's own, or its storage's
        first = without_password(str(error).strip().partition("\n")[0])
        raise InputError(f"{uri}: MLflow cannot fetch it: {first}") from error


def _fetched(name: str, alias: str | None, number: str) -> tuple[str, Path]:
    from mlflow import MlflowClient

    client = MlflowClient()
    find = client.get_model_version_by_alias if alias else client.get_model_version
    found = find(name, alias or number)
    folder = CACHE / digest(str(found.source))  # is unique, unlike the number
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("a") as lock:  # all replicas of a machine see a promotion at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _download(f"models:/{name}/{found.version}", folder)
    return f"{name}/{found.version}", folder / "bundle"


def _download(version: str, folder: Path) -> None:
    """Download a version's bundle, and the SLM that it names: MLflow stores each SLM once."""
    from mlflow.artifacts import download_artifacts

    with replacing(folder) as aside:
        (aside / "download").mkdir(parents=True)
        there = download_artifacts(f"{version}/artifacts/bundle", dst_path=f"{aside}/download")
        bundle = Path(there).rename(aside / "bundle")
        slm = read_json(bundle / "router.json")["slm"]["kept"]
        download_artifacts(slm, dst_path=str(bundle / "slm"))
