"""Read the state of the registry in a test."""

import pytest
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion

from citer.config.params import DecodeParams, PairParams
from citer.models.folder import PairFolder
from citer.serving.deployment import Deployment, deploy
from citer.stages import paths
from flows.tracking.compare import compare
from flows.tracking.registry import aliased, fetched_bundle
from tests.flows.project import LLM, RULE, TINY

NAME = "citer-router"
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
CHAMPION = f"models:/{NAME}@champion"


def deployed() -> Deployment:
    """Return router 2 with its rule, served with the models in the current folder."""
    pair = PairParams(slm=str(paths.SLM), llm=str(LLM), device="cpu", dtype="float32")
    limits = DecodeParams(slots=2, max_new_tokens=TINY["answer"]["max_new_tokens"])
    return deploy(paths.router(2), PairFolder(paths.SLM, LLM), pair, RULE, limits)


def version(number: int) -> ModelVersion:
    return MlflowClient().get_model_version(NAME, str(number))


def versions() -> list[int]:
    return sorted(int(v.version) for v in MlflowClient().search_model_versions(f"name='{NAME}'"))


def holder(alias: str) -> int | None:
    holding = aliased(MlflowClient(), NAME, alias)
    return holding and int(holding.version)


def compared(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what `citer compare` prints, with single spaces."""
    capsys.readouterr()
    compare()
    return " ".join(capsys.readouterr().out.split())


def fetch(uri: str) -> None:
    with fetched_bundle(uri):
        pass
