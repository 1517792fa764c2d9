"""The content of a version, and the model that MLflow loads from it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mlflow
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from mlflow.pyfunc import scoring_server

from citer.config.params import SamplingParams
from citer.data.importing import parse_row
from citer.errors import InputError
from citer.models.sampling import Sampler
from citer.serving.deployment import stored_rule
from citer.stages import paths
from citer.storage.tables import digest
from flows.tracking.registry import fetched_bundle
from tests.flows.project import RULE, change_params, register_new
from tests.flows.tracking.registered import CHAMPION, deployed

MATH = "Ann has 3 bags of 12 apples and eats 5. How many apples are left?"
MC = {
    "question": "Which one is a planet?",
    "choices": {"text": ["Mars", "the Sun"], "label": ["A", "B"]},
}


def test_a_bundle_carries_the_rule_and_the_finetuned_slm(registered: Path) -> None:
    with fetched_bundle(CHAMPION) as bundle:
        assert stored_rule(bundle) == RULE
        assert digest(bundle / "slm") == digest(paths.SLM)
        weights = "router.safetensors"
        assert (bundle / weights).read_bytes() == (paths.router(2) / weights).read_bytes()
        unserved = {paths.CURVE, paths.HOLDOUT}
        assert unserved < {file.name for file in paths.router(2).iterdir()}
        assert not unserved & {file.name for file in bundle.iterdir()}


def test_a_fault_of_a_bundle_names_the_version(registered: Path) -> None:
    """Its folder is a temporary one."""
    with (
        pytest.raises(InputError, match=f"^{CHAMPION}: made for another LLM$"),
        fetched_bundle(CHAMPION) as bundle,
    ):
        raise InputError(f"{bundle}: made for another LLM")


def test_nothing_registered_is_a_pickle(registered: Path) -> None:
    kept = [file for file in Path("mlruns/artifacts").rglob("*") if file.is_file()]
    assert {"router.safetensors", "model.safetensors", "serving.py"} <= {f.name for f in kept}
    for file in kept:
        assert file.suffix not in {".pkl", ".pickle", ".pt", ".pth", ".bin", ".joblib"}
        assert not file.read_bytes().startswith((b"\x80", b"PK"))


def test_the_registered_model_answers_as_its_router_routes(
    registered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    problems = [parse_row({"problem": MATH}, "math", "question"), parse_row(MC, "mc", "question")]
    expected = {r.problem.task: r.fields | {"error": None} for r in deployed().replies(problems)}

    model = mlflow.pyfunc.load_model(CHAMPION)
    assert model.metadata.get_output_schema().input_names() == list(expected["math"])
    answers = model.predict([MATH, MC, {"problem": MATH}]).to_dict("records")
    assert answers == [expected["math"], expected["mc"], expected["math"]]
    framed = model.predict(pd.DataFrame([{"problem": MATH}, MC])).to_dict("records")
    assert framed == [expected["math"], expected["mc"]]


def test_the_registered_model_samples_as_the_evaluation_did(project: Path) -> None:
    change_params("evaluate", sampling={"temperature": 2.0, "top_k": 50})
    params = Path("params.yaml")
    params.write_text(re.sub("^seed: .*", "seed: 3", params.read_text(), flags=re.M))
    register_new(1)
    model = mlflow.pyfunc.load_model(CHAMPION)
    (answer,) = model.predict([MATH]).to_dict("records")
    deployment = model.unwrap_python_model().deployment
    problem = parse_row({"problem": MATH}, "math", "question")
    sampler = Sampler(SamplingParams(temperature=2.0, top_k=50), 3)
    (sampled,) = deployment.replies([problem], sampler=sampler)
    (greedy,) = deployment.replies([problem])
    assert answer["completion"] == sampled.completion != greedy.completion
    (other,) = mlflow.pyfunc.load_model(CHAMPION, model_config={"sampling": None}).predict([MATH])[
        "completion"
    ]
    assert other == greedy.completion


def test_the_registered_models_server_takes_questions_and_rows(
    registered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_MLFLOW_IS_IN_SERVING_ENVIRONMENT", "true")  # MLflow's server sets this
    model = mlflow.pyfunc.load_model(CHAMPION)
    math, mc = model.predict([MATH, MC]).to_dict("records")
    row = {"problem": MATH}
    server = TestClient(scoring_server.init(model))
    for body, expected in [
        ({"inputs": MATH}, [math]),
        ({"inputs": [MATH, MATH]}, [math, math]),
        ({"inputs": [row, MC]}, [math, mc]),
        ({"inputs": [MC, MATH]}, [mc, math]),
        ({"dataframe_records": [row, MC]}, [math, mc]),
        ({"dataframe_split": {"columns": list(MC), "data": [list(MC.values())]}}, [mc]),
    ]:
        assert server.post("/invocations", json=body).json() == {"predictions": expected}, body


def test_the_registered_model_refuses_another_llm(registered: Path) -> None:
    shutil.copytree(paths.SLM, "other")
    with pytest.raises(InputError, match="made for the LLM"):
        mlflow.pyfunc.load_model(CHAMPION, model_config={"llm": "other"})


@pytest.mark.slow
def test_the_registered_model_brings_its_own_code(registered: Path) -> None:
    uri = f"sqlite:///{registered}/mlruns/mlflow.db"
    program = (
        f"import mlflow; model = mlflow.pyfunc.load_model('{CHAMPION}')\n"
        "import citer; assert 'mlruns/artifacts' in citer.__file__, citer.__file__\n"
        f"assert model.predict(['{MATH}']).tokens[0] > 0"
    )
    off = {"MLFLOW_TRACKING_URI": uri, "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false"}
    subprocess.run([sys.executable, "-c", program], env=os.environ | off, check=True)
