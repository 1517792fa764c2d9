"""Read the state of the registry in a test, and turn a version into one of an earlier citer."""

import sqlite3

from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion

from flows.tracking.registry import aliased, fetched_bundle, run_of
from flows.tracking.uses import record

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


def age(number: int) -> None:
    """Move the uses of questions from the run of a version to its tags, as an earlier citer did."""
    run = run_of(version(number))
    tags = record(run) | {"digest": run.data.tags["digest"]}
    for key in tags:
        MlflowClient().set_model_version_tag(NAME, str(number), key, tags[key])
    with sqlite3.connect("mlruns/mlflow.db") as database:
        for table in ("params", "metrics", "latest_metrics"):
            where = "run_uuid = ? and (key like '%_set' or key like '%_use')"
            database.execute(f"delete from {table} where {where}", (run.info.run_id,))
