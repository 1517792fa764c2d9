"""The finetuned SLM of a version is stored once, and served after later finetunings."""

import json
import shutil
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from citer.config.params import load_params
from citer.data.importing import parse_row
from citer.serving.generate import generate
from citer.stages import paths
from flows.tracking import model
from flows.tracking.registry import fetched_bundle
from flows.tracking.store import open_store
from tests.flows.project import register, register_new, retrain
from tests.flows.servers import mlflow_server
from tests.flows.tracking.registered import CHAMPION, deployed
from tests.tiny import make_tiny_pair

QUESTION = {"problem": "Ann has 3 bags of 12 apples and eats 5. How many apples are left?"}
WEIGHTS = "model.safetensors"


def finetune_anew() -> None:
    """Replace the SLM by another one, as the next retraining does."""
    shutil.rmtree(paths.SLM)
    shutil.copytree(make_tiny_pair(Path("another"), seed=7).slm, paths.SLM)


def answer() -> str:
    """Answer with router 2 and the models in the current folder."""
    [reply] = deployed().replies([parse_row(QUESTION, "math", "question")])
    return reply.completion


def answers_of(uri: str) -> set[str]:
    """Answer with a version: as MLflow's model, and as `citer generate` does."""
    [predicted] = mlflow.pyfunc.load_model(uri).predict([QUESTION]).completion
    Path("q.jsonl").write_text(json.dumps(QUESTION))
    with fetched_bundle(uri) as bundle:
        generate(load_params(), bundle, Path("q.jsonl"), Path("out.jsonl"))
    return {predicted, json.loads(Path("out.jsonl").read_text())["completion"]}


def kept() -> list[Path]:
    return sorted(Path("mlruns").rglob(WEIGHTS))


def test_an_older_version_answers_with_its_own_slm(registered: Path) -> None:
    older = answer()
    finetune_anew()
    register_new(2)
    newer = answer()
    assert older != newer
    assert answers_of("models:/citer-router/2") == {older}
    assert answers_of("models:/citer-router/4") == {newer}


def test_versions_with_the_same_slm_share_one_copy(project: Path) -> None:
    for seed in (1, 2):
        register_new(seed)
        [only] = kept()
        assert only.read_bytes() == (paths.SLM / WEIGHTS).read_bytes()
    finetune_anew()
    register_new(3)
    assert len(kept()) == 2


def test_an_slm_whose_logging_was_interrupted_is_completed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrain(1)

    def fail(*_: object) -> None:
        (kept_half,) = kept()
        kept_half.write_bytes(b"")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "finalize_logged_model", fail)
        with pytest.raises(KeyboardInterrupt):
            register()
    register()
    [only] = kept()
    assert only.read_bytes() == (paths.SLM / WEIGHTS).read_bytes()
    store = open_store("citer")
    [logged] = store.client.search_logged_models(
        [store.experiment_id], f"name = '{model.KEPT_SLM}'"
    )
    assert logged.status == model.READY


@pytest.mark.slow
def test_a_machine_with_only_the_registry_serves_a_version(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The artifacts are on the server. The machine has params.yaml and the LLM."""
    Path("mlruns/mlflow.db").rename(tmp_path / "mlflow.db")
    with mlflow_server(tmp_path) as url:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        register_new(1)
        expected = answer()
        for folder in ("data/models", "data/routers", "data/reports"):
            shutil.rmtree(folder)
        for _ in range(2):
            assert answers_of(CHAMPION) == {expected}
            assert len(kept()) == 1
    assert len(list(tmp_path.joinpath("artifacts").rglob(WEIGHTS))) == 1
