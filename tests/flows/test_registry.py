"""Versions, aliases and decisions in a real registry; the registered model answers."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import mlflow
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion
from mlflow.pyfunc import scoring_server

from citer.config import PairParams
from citer.data.importing import parse_row
from citer.errors import InputError
from citer.evaluation.gate import least_difference
from citer.io import digest, read_json, write_json
from citer.rule import Rule
from citer.serving import deploy, stored_rule
from citer.stages import paths
from flows import registry
from flows.compare import compare
from flows.dvc_commands import dvc
from flows.registry import aliased, fetched_bundle, promote
from flows.restore import restore
from flows.store import open_store
from flows.tracking import file_md5
from tests.flows.project import LLM, RULE, TINY, register, retrain

NAME = "citer-router"
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
CHAMPION = f"models:/{NAME}@champion"
MATH = "Ann has 3 bags of 12 apples and eats 5. How many apples are left?"
MC = {
    "question": "Which one is a planet?",
    "choices": {"text": ["Mars", "the Sun"], "label": ["A", "B"]},
}


def version(number: int) -> ModelVersion:
    return MlflowClient().get_model_version(NAME, str(number))


def versions() -> list[int]:
    return sorted(int(v.version) for v in MlflowClient().search_model_versions(f"name='{NAME}'"))


def holder(alias: str) -> int | None:
    found = aliased(MlflowClient(), NAME, alias)
    return found and int(found.version)


def test_every_iteration_is_a_version_and_the_last_the_challenger(project: Path) -> None:
    retrain(1)
    register()
    assert versions() == [1, 2]
    assert holder("challenger") == 2
    assert version(1).tags | {"digest": "", "git_sha": ""} == {
        "digest": "",
        "git_sha": "",
        "git_dirty": "false",
        "iteration": "1",
        "certified": "true",
        "rule": "risk 0.75 audit 0.1",
        "visit": "risk",
        "at": "0.75",
        "audit": "0.1",
        "heads": "stand, agree",
        "accuracy": "1",
        "accuracy_low": "0.981155",
        "accuracy_high": "1",
        "questions": "200",
        "preferences": file_md5(paths.preferences(1)),
        "llm_fraction": "0.25",
        "tokens_per_answer": "50",
        "cost_b1": "0.5",
        "cost_b8": "0.5",
        "cost_b32": "0.5",
    }


def test_a_version_s_page_opens_with_what_was_decided_and_what_it_is_worth(project: Path) -> None:
    retrain(1, correct=150)
    register()
    listed = f"""\
- rule: risk 0.75 audit 0.1
- heads: stand, agree
- certified: yes
- accuracy: 75.0% [68.6, 80.5]
- test questions: 200
- LLM fraction: 0.25
- cost at batch 1: 0.5
- cost at batch 8: 0.5
- cost at batch 32: 0.5
- tokens per answer: 50
- iteration: 1
- preferences, md5: {file_md5(paths.preferences(1))[:7]}
- git: {version(1).tags["git_sha"][:7]}"""
    not_judged = "not judged, since it was not the last of its retraining"
    assert version(1).description == f"The gate at its registration: {not_judged}.\n\n{listed}"
    judged, since, _ = (version(2).description or "").split("\n\n")
    assert judged.startswith("The gate at its registration: promoted: no champion yet: ")
    assert re.fullmatch(rf"Since then: {DATE} made the champion by the gate\.", since)
    promote(1)
    _, since, rest = (version(1).description or "").split("\n\n")
    assert re.fullmatch(rf"Since then: {DATE} made the champion by hand\.", since)
    assert rest == listed


def test_a_first_router_that_keeps_its_promise_cheaply_is_promoted(project: Path) -> None:
    retrain(1)
    said = register()
    assert holder("champion") == 2
    assert version(2).tags["decision"] == "promoted"
    assert "it moves 0.500 of the LLM's bytes" in version(2).tags["reason"]
    assert version(2).tags["reason"] in said


@pytest.mark.parametrize(
    "flaw",
    [
        {"certified": False},
        {"cost": 1.5},
        {"correct": 0},
        {"correct": 0, "llm_correct": 200},
        {"correct": 180, "llm_correct": 200},
    ],
    ids=str,
)
def test_a_first_router_without_bound_or_gain_or_right_answers_is_not(
    project: Path, flaw: dict
) -> None:
    retrain(1, **flaw)
    assert "kept back" in register()
    assert holder("champion") is None
    assert holder("challenger") == 2
    assert version(2).tags["decision"] == "kept back"


@pytest.mark.parametrize(
    ("change", "champion", "reason"),
    [
        ({"correct": 150, "cost": 0.4}, 4, "not less accurate"),
        ({"correct": 148, "cost": 0.4}, 2, "may be less accurate"),
        ({"correct": 150, "cost": 0.6}, 2, "moves more bytes"),
    ],
)
def test_a_challenger_replaces_the_champion_only_if_as_good_and_no_dearer(
    project: Path, change: dict, champion: int, reason: str
) -> None:
    retrain(1, correct=150, cost=0.5)
    register()
    retrain(2, **change)
    register()
    assert holder("challenger") == 4
    assert holder("champion") == champion
    assert version(4).tags["reason"].startswith(reason)


def test_on_questions_of_its_own_a_challenger_is_promoted_by_hand_alone(project: Path) -> None:
    retrain(1, correct=150)
    register()
    retrain(2, asked="own", cost=0.1)
    said = register()
    assert "version 4 kept back: no test question in common with the champion's" in said
    assert "to promote it anyway, run `citer promote VERSION`; the champion is version 2" in said
    promote(4)
    assert holder("champion") == 4


@pytest.mark.parametrize("questions", ["test", "own"])
@pytest.mark.parametrize("llm_correct", [0, 200])
def test_a_router_that_is_right_on_nothing_displaces_no_champion(
    project: Path, questions: str, llm_correct: int
) -> None:
    retrain(1, correct=150)
    register()
    retrain(2, correct=0, llm_correct=llm_correct, asked=questions, cost=0.1)
    assert "version 4 kept back: " in register()
    assert holder("champion") == 2


def test_registering_twice_adds_nothing_and_moves_no_alias(project: Path) -> None:
    retrain(1)
    first = register()
    promote(1)
    again = register()
    assert versions() == [1, 2]
    assert holder("champion") == 1
    assert first.endswith("; the champion is version 2")
    assert again.startswith("nothing new: citer-router version 2, registered earlier, is the same")
    assert again.endswith("; now the champion is version 1")
    assert version(2).tags["reason"] in again


def test_the_same_router_of_other_files_is_the_same_version(project: Path) -> None:
    retrain(1)
    register()
    for k in (1, 2):
        card = read_json(paths.router(k) / "router.json")
        write_json(paths.router(k) / "router.json", card | {"data": {"preferences": "other"}})
    assert register().startswith("nothing new: citer-router version 2, registered earlier, is the")
    card["heads"]["stand"]["calibration"]["slope"] += 1
    write_json(paths.router(2) / "router.json", card)
    assert register().startswith("citer-router version 3 ")


def test_a_registration_leaves_no_folder_behind(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "tmp"
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    for seed in (1, 2):
        retrain(seed)
        register()
    compare()
    fetch(CHAMPION)
    assert list(home.iterdir()) == []


def test_where_nothing_is_promoted_it_says_that_there_is_no_champion(project: Path) -> None:
    retrain(1, certified=False)
    assert register().endswith("; there is no champion")


def test_what_was_registered_before_another_is_told_again_not_decided(project: Path) -> None:
    for seed in (1, 2):
        retrain(seed)
        register()
    retrain(1)
    again = register()
    assert again.startswith("nothing new: citer-router version 2, registered earlier, is the same")
    assert again.endswith("; now the champion is version 4")
    assert versions() == [1, 2, 3, 4]


def test_a_roll_back_outlives_the_runs_that_somebody_deletes(project: Path) -> None:
    for seed in (1, 2):
        retrain(seed)
        register()
    promote(2)
    store = open_store("citer")
    for run in store.runs(""):
        store.client.delete_run(run.info.run_id)
    again = register()
    assert again.startswith("nothing new: citer-router version 4, registered earlier, is the same")
    assert (versions(), holder("champion"), holder("challenger")) == ([1, 2, 3, 4], 2, 4)
    retrain(1)
    assert register().startswith("nothing new: citer-router version 2, registered earlier")
    assert holder("challenger") == 4


@pytest.mark.parametrize("deleted", ["retraining", "iteration"])
def test_a_retraining_some_of_whose_runs_are_deleted_is_logged_again(
    project: Path, deleted: str
) -> None:
    retrain(1)
    register()
    store = open_store("citer")
    for run in store.runs(f"tags.kind = '{deleted}'"):
        store.client.delete_run(run.info.run_id)
    assert register().startswith("nothing new")
    assert (len(store.runs("")), versions()) == (3, [1, 2])


def test_a_version_that_somebody_deleted_is_registered_again(project: Path) -> None:
    retrain(1)
    register()
    MlflowClient().delete_model_version(NAME, "2")
    assert register().startswith("citer-router version 3 promoted: no champion yet")
    assert (versions(), holder("champion")) == ([1, 3], 3)
    MlflowClient().delete_registered_model(NAME)
    assert register().startswith("citer-router version 2 promoted: no champion yet")


def test_a_deleted_experiment_takes_no_run_but_keeps_its_champion(project: Path) -> None:
    retrain(1)
    register()
    store = open_store("citer")
    store.client.delete_experiment(store.experiment_id)
    with pytest.raises(InputError, match="'citer' is deleted in MLflow; `mlflow experiments rest"):
        register()
    promote(1)
    assert holder("champion") == 1


def test_a_champion_whose_run_is_gone_for_good_is_told_of_and_can_be_replaced(
    project: Path,
) -> None:
    retrain(1)
    register()
    lost = version(2).run_id
    MlflowClient().delete_run(lost)
    runner = [sys.executable, "-m", "mlflow", "gc", "--run-ids", str(lost)]
    uri = mlflow.get_tracking_uri()
    subprocess.run([*runner, "--backend-store-uri", uri, "--tracking-uri", uri], check=True)
    retrain(2)
    for ask in (register, compare, lambda: restore(2)):
        with pytest.raises(InputError, match="version 2: its run, with its answers, is gone from"):
            ask()
    promote(4)
    register()
    assert holder("champion") == 4


def test_a_registration_cut_short_is_completed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrain(1)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(registry, "_tag", fail)
        with pytest.raises(KeyboardInterrupt):
            register()
    assert holder("champion") is None
    register()
    assert versions() == [1, 2]
    assert holder("champion") == 2


def test_a_promotion_by_hand_leaves_what_the_gate_said(project: Path) -> None:
    retrain(1, certified=False)
    register()
    for _ in range(2):
        promote(2)
    assert holder("champion") == 2
    assert version(2).tags["decision"] == "kept back"
    assert version(2).tags["reason"].startswith("no rule cheaper ")
    assert re.fullmatch(f"{DATE} made the champion by hand", version(2).tags["history"])


def test_a_champion_that_was_rolled_back_says_by_what_it_was_replaced(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        retrain(seed)
        register()
    promote(2)
    events = f"{DATE} made the champion by the gate; {DATE} replaced by version "
    assert re.fullmatch(events + "2", version(4).tags["history"])
    assert re.fullmatch(events + f"4; {DATE} made the champion by hand", version(2).tags["history"])
    assert f"Since then: {version(4).tags['history']}." in (version(4).description or "")
    capsys.readouterr()
    compare()
    shown = " ".join(capsys.readouterr().out.split())
    for number in (2, 4):
        assert f"Since then: {version(number).tags['history']}." in shown


def test_a_promotion_that_was_cut_short_is_noted_once(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrain(1)
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "set_registered_model_alias", cut_short("champion"))
        with pytest.raises(KeyboardInterrupt):
            register()
    assert holder("champion") is None
    register()
    assert holder("champion") == 2
    assert re.fullmatch(f"{DATE} made the champion by the gate", version(2).tags["history"])


def cut_short(alias: str) -> Callable[..., None]:
    """`set_registered_model_alias`, killed when it comes to `alias`."""
    real = MlflowClient.set_registered_model_alias

    def wrapper(client: MlflowClient, name: str, given: str, number: str) -> None:
        if given == alias:
            raise KeyboardInterrupt
        real(client, name, given, number)

    return wrapper


def fetch(uri: str) -> None:
    with fetched_bundle(uri):
        pass


def test_what_is_not_registered_is_refused(project: Path) -> None:
    with pytest.raises(InputError, match="nothing is registered"):
        compare()
    retrain(1)
    register()
    with pytest.raises(InputError, match="no version 7"):
        promote(7)
    with pytest.raises(InputError, match="no such registered router"):
        fetch(f"models:/{NAME}/7")
    for incomplete in ("models:/", f"models:/{NAME}", f"models:/{NAME}@", f"models:/{NAME}/2/x"):
        with pytest.raises(InputError, match=f"{incomplete}: expected models:/NAME@ALIAS or"):
            fetch(incomplete)


def test_a_champion_that_is_gone_is_told_of_and_can_be_replaced(project: Path) -> None:
    retrain(1)
    register()
    with sqlite3.connect("mlruns/mlflow.db") as database:
        database.execute("update registered_model_aliases set version = 9 where alias = 'champion'")
    for ask in (register, compare):
        with pytest.raises(InputError, match="version 9 is gone, which is the champion; `citer pr"):
            ask()
    with pytest.raises(InputError, match="no such registered router"):
        fetch(CHAMPION)
    promote(1)
    assert holder("champion") == 1


def test_a_champion_without_a_rule_is_told_of_and_can_be_replaced(project: Path) -> None:
    retrain(1)
    register()
    MlflowClient().delete_model_version_tag(NAME, "2", "rule")
    retrain(2)
    for ask in (register, compare, lambda: promote(2)):
        with pytest.raises(InputError, match="version 2 has no tag `rule`"):
            ask()
    promote(4)
    register()
    assert holder("champion") == 4


def test_champion_and_challenger_are_shown_side_by_side(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    retrain(1, correct=150)
    register()
    retrain(2, correct=190, cost=0.4, rule=Rule("score", 0.5))
    register()
    promote(2)
    capsys.readouterr()
    compare()
    shown = " ".join(capsys.readouterr().out.split())
    assert "│ version │ 2 │ 4 │" in shown
    assert "│ rule │ risk 0.75 audit 0.1 │ score 0.5 │" in shown
    assert "│ accuracy │ 75.0% [68.6, 80.5] │ 95.0% [91.0, 97.3] │" in shown
    low, high = least_difference(40, 0, 200, 0.05), -least_difference(0, 40, 200, 0.05)
    said = f"+0.2000 (at least {low:+.4f}, at most {high:+.4f}, each at confidence 0.95)"
    assert f"on 200 common questions: {said}" in shown
    assert "Version 2. The gate at its registration: promoted: no champion yet: " in shown
    assert f"(at least {low:+.4f} at confidence 0.95" in version(4).tags["reason"]


def test_versions_that_know_different_things_are_compared(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The batches may have changed; a version of an older citer has no interval."""
    retrain(1)
    register()
    for tag in ("cost_b32", "accuracy_low", "accuracy_high", "questions", "preferences"):
        MlflowClient().delete_model_version_tag(NAME, "2", tag)
    retrain(2, cost=0.6)
    register()
    compare()
    shown = " ".join(capsys.readouterr().out.split())
    assert "│ accuracy │ 100.0% │ 100.0% [98.1, 100.0] │" in shown
    assert "│ cost at batch 32 │ │ 0.6 │" in shown


def test_a_version_whose_tags_are_lost_or_no_numbers_is_shown_with_what_is_left(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    retrain(1)
    register()
    tags = version(2).tags
    for tag in tags.keys() - {"rule", "decision", "accuracy", "tokens_per_answer"}:
        MlflowClient().delete_model_version_tag(NAME, "2", tag)
    MlflowClient().set_model_version_tag(NAME, "2", "accuracy", "high")
    compare()
    shown = " ".join(capsys.readouterr().out.split())
    assert "│ accuracy │ high │ high │" in shown
    assert "│ tokens per answer │ 50 │ 50 │" in shown


def test_where_no_version_has_a_role_there_is_nothing_to_compare(project: Path) -> None:
    retrain(1)
    register()
    MlflowClient().delete_model_version(NAME, "2")
    with pytest.raises(InputError, match="no champion and no challenger; `citer promote`"):
        compare()


def test_a_bundle_carries_the_rule_and_the_finetuned_slm(project: Path) -> None:
    retrain(1)
    register()
    with fetched_bundle(CHAMPION) as bundle:
        assert stored_rule(bundle) == RULE
        assert digest(bundle / "slm") == digest(paths.SLM)
        weights = "router.safetensors"
        assert (bundle / weights).read_bytes() == (paths.router(2) / weights).read_bytes()


def test_nothing_registered_is_a_pickle(project: Path) -> None:
    retrain(1)
    register()
    kept = [file for file in Path("mlruns/artifacts").rglob("*") if file.is_file()]
    assert {"router.safetensors", "model.safetensors", "serving.py"} <= {f.name for f in kept}
    for file in kept:
        assert file.suffix not in {".pkl", ".pickle", ".pt", ".pth", ".bin", ".joblib"}
        assert not file.read_bytes().startswith((b"\x80", b"PK"))


def test_the_registered_model_answers_as_its_router_routes(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrain(1)
    register()
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    pair = PairParams(slm=str(paths.SLM), llm=str(LLM), device="cpu", dtype="float32")
    longest = TINY["evaluate"]["max_new_tokens"]
    routed = deploy(paths.router(2), paths.SLM, LLM, pair, RULE, slots=2, max_new_tokens=longest)
    problems = [parse_row({"problem": MATH}, "math", "question"), parse_row(MC, "mc", "question")]
    expected = {r.problem.task: r.told | {"error": None} for r in routed.replies(problems)}

    model = mlflow.pyfunc.load_model(CHAMPION)
    assert model.metadata.get_output_schema().input_names() == list(expected["math"])
    answers = model.predict([MATH, MC, {"problem": MATH}]).to_dict("records")
    assert answers == [expected["math"], expected["mc"], expected["math"]]
    framed = model.predict(pd.DataFrame([{"problem": MATH}, MC])).to_dict("records")
    assert framed == [expected["math"], expected["mc"]]


def test_the_registered_model_s_server_takes_questions_and_rows(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrain(1)
    register()
    monkeypatch.setenv("_MLFLOW_IS_IN_SERVING_ENVIRONMENT", "true")  # as the server leaves it
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
    answers = server.post("/invocations", json={"inputs": [{"question": "Which one?"}, MATH]})
    refused, answered = answers.json()["predictions"]
    assert refused.pop("error").startswith("choices: None; expected")
    assert set(refused.values()) == {None}
    assert answered == math


def test_the_registered_model_refuses_another_llm(project: Path) -> None:
    retrain(1)
    register()
    shutil.copytree(paths.SLM, "other")
    with pytest.raises(InputError, match="made for the LLM"):
        mlflow.pyfunc.load_model(CHAMPION, model_config={"llm": "other"})


@pytest.mark.slow
def test_the_registered_model_brings_its_own_code(project: Path) -> None:
    retrain(1)
    register()
    uri = f"sqlite:///{project}/mlruns/mlflow.db"
    program = (
        f"import mlflow; model = mlflow.pyfunc.load_model('{CHAMPION}')\n"
        "import citer; assert 'mlruns/artifacts' in citer.__file__, citer.__file__\n"
        f"assert model.predict(['{MATH}']).tokens[0] > 0"
    )
    off = {"MLFLOW_TRACKING_URI": uri, "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false"}
    subprocess.run([sys.executable, "-c", program], env=os.environ | off, check=True)


@pytest.mark.slow
def test_data_are_pushed_where_a_remote_is_set(project: Path, tmp_path: Path) -> None:
    retrain(1)
    Path("dvc.lock").unlink()
    dvc("commit", "--force")
    dvc("remote", "add", "--default", "backup", str(tmp_path / "remote"))
    register()
    pushed = {file.read_bytes() for file in (tmp_path / "remote").rglob("*") if file.is_file()}
    assert paths.preferences(1).read_bytes() in pushed
