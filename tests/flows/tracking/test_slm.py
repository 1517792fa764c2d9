"""The finetuned SLM of a version is stored once, and served after later finetunings."""

import json
import shutil
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from citer.config.params import DecodeParams, PairParams, load_params
from citer.data.importing import parse_row
from citer.models.folder import PairFolder
from citer.serving.deployment import deploy
from citer.serving.generate import generate
from citer.stages import paths
from flows.tracking import model
from flows.tracking.registry import fetched_bundle
from flows.tracking.store import open_store
from tests.flows.project import LLM, RULE, TINY, register, retrain
from tests.flows.servers import mlflow_server
from tests.tiny import make_tiny_pair

QUESTION = {"problem": "Ann has 3 bags of 12 apples and eats 5. How many apples are left?"}
WEIGHTS = "model.safetensors"


def finetune_anew() -> None:
    """Replace the SLM by another one, as the next retraining does."""
    shutil.rmtree(paths.SLM)
    shutil.copytree(make_tiny_pair(Path("another"), seed=7).slm, paths.SLM)


def answer() -> str:
    """Answer with router 2 and the models in the current folder."""
    pair = PairParams(slm=str(paths.SLM), llm=str(LLM), device="cpu", dtype="float32")
    limits = DecodeParams(slots=2, max_new_tokens=TINY["answer"]["max_new_tokens"])
    here = deploy(paths.router(2), PairFolder(paths.SLM, LLM), pair, RULE, limits)
    [reply] = here.replies([parse_row(QUESTION, "math", "question")])
    return reply.completion


def kept() -> list[Path]:
    return sorted(Path("mlruns").rglob(WEIGHTS))


def test_an_older_version_answers_with_its_own_slm(registered: Path) -> None:
    older = answer()
    finetune_anew()
    retrain(2)
    register()
    newer = answer()
    assert older != newer
    Path("q.jsonl").write_text(json.dumps(QUESTION))
    for version, expected in ((2, older), (4, newer)):
        uri = f"models:/citer-router/{version}"
        model = mlflow.pyfunc.load_model(uri)
        assert model.predict([QUESTION]).completion.tolist() == [expected]
        with fetched_bundle(uri) as bundle:
            generate(load_params(), bundle, Path("q.jsonl"), Path("out.jsonl"))
        assert json.loads(Path("out.jsonl").read_text())["completion"] == expected


def test_versions_with_the_same_slm_share_one_copy(project: Path) -> None:
    for seed in (1, 2):
        retrain(seed)
        register()
        [only] = kept()
        assert only.read_bytes() == (paths.SLM / WEIGHTS).read_bytes()
    finetune_anew()
    retrain(3)
    register()
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
        retrain(1)
        register()
        expected = answer()
        for folder in ("data/models", "data/routers", "data/reports"):
            shutil.rmtree(folder)
        uri = "models:/citer-router@champion"
        assert mlflow.pyfunc.load_model(uri).predict([QUESTION]).completion.tolist() == [expected]
        Path("q.jsonl").write_text(json.dumps(QUESTION))
        for _ in range(2):
            with fetched_bundle(uri) as bundle:
                generate(load_params(), bundle, Path("q.jsonl"), Path("out.jsonl"))
            assert json.loads(Path("out.jsonl").read_text())["completion"] == expected
            assert len(kept()) == 1
    assert len(list(tmp_path.joinpath("artifacts").rglob(WEIGHTS))) == 1
