"""The finetuned SLM in MLflow: logged once, shared by all versions that route over it."""

from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.utils.file_utils import local_file_uri_to_path
from mlflow.utils.uri import is_local_uri

from citer.io import digest, replacing
from citer.stages.paths import SLM
from flows.store import HOME, Store, exclusively

NAME = "slm"
READY = LoggedModelStatus.READY


def keep_slm(store: Store) -> str:
    """Log `data/models/slm` unless the store has its like; returns the logged model's URI."""
    client, tags = store.client, {"digest": digest(SLM)}
    same = f"name = '{NAME}' AND tags.digest = '{tags['digest']}'"
    found = client.search_logged_models([store.experiment_id], same)
    # A killed call has left a model that is not ready: it is completed.
    kept = next((model for model in found if model.status == READY), next(iter(found), None))
    model = kept or client.create_logged_model(store.experiment_id, NAME, tags=tags)
    if model.status != READY:
        client.log_model_artifacts(model.model_id, str(SLM))
        client.finalize_logged_model(model.model_id, READY)
    return model.model_uri


def fetch_slm(uri: str) -> Path:
    """The folder of a kept SLM; one on a server is downloaded once, to `mlruns/slm/`."""
    model_id = uri.removeprefix("models:/")
    location = MlflowClient().get_logged_model(model_id).artifact_location
    if is_local_uri(location):
        return Path(local_file_uri_to_path(location))
    folder = HOME / NAME / model_id
    with exclusively():
        if not folder.exists():
            with replacing(folder) as aside:
                mlflow.artifacts.download_artifacts(uri, dst_path=str(aside))
    return folder.absolute()
