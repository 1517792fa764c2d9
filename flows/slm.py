"""Store each finetuned SLM in MLflow once. All router versions that use it share it."""

from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.utils.file_utils import local_file_uri_to_path
from mlflow.utils.uri import is_local_uri

from citer.stages.paths import SLM
from citer.storage.tables import digest, replacing
from flows.store import Store, exclusively, home

NAME = "slm"
READY = LoggedModelStatus.READY


def keep_slm(store: Store) -> str:
    """Log `data/models/slm` unless the store has an equal one; return the logged model's URI."""
    client, tags = store.client, {"digest": digest(SLM)}
    same = f"name = '{NAME}' AND tags.digest = '{tags['digest']}'"
    equal = client.search_logged_models([store.experiment_id], same)
    # A killed call leaves a model that is not ready. Complete it rather than log another.
    kept = next((model for model in equal if model.status == READY), next(iter(equal), None))
    model = kept or client.create_logged_model(store.experiment_id, NAME, tags=tags)
    if model.status != READY:
        client.log_model_artifacts(model.model_id, str(SLM))
        client.finalize_logged_model(model.model_id, READY)
    return model.model_uri


def fetch_slm(uri: str) -> Path:
    """Return a stored SLM's folder. Download it once, to `mlruns/slm/`, if a server holds it."""
    model_id = uri.removeprefix("models:/")
    location = MlflowClient().get_logged_model(model_id).artifact_location
    if is_local_uri(location):
        return Path(local_file_uri_to_path(location))
    folder = home() / NAME / model_id
    with exclusively():
        if not folder.exists():
            with replacing(folder) as aside:
                mlflow.artifacts.download_artifacts(uri, dst_path=str(aside))
    return folder.absolute()
