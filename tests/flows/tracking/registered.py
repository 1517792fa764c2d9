"""Read the state of the registry in a test."""

from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion

from flows.tracking.registry import aliased, fetched_bundle

NAME = "citer-router"
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
CHAMPION = f"models:/{NAME}@champion"


def version(number: int) -> ModelVersion:
    return MlflowClient().get_model_version(NAME, str(number))


def versions() -> list[int]:
    return sorted(int(v.version) for v in MlflowClient().search_model_versions(f"name='{NAME}'"))


def holder(alias: str) -> int | None:
    holding = aliased(MlflowClient(), NAME, alias)
    return holding and int(holding.version)


def fetch(uri: str) -> None:
    with fetched_bundle(uri):
        pass
