"""Runs in a real MLflow store: their content, and that each is written once."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.entities import Run

from citer.config.params import load_params
from citer.errors import InputError
from citer.rule import Rule
from citer.stages import paths
from citer.storage.tables import read_json, write_json, write_text
from flows.dvc_commands import file_md5
from flows.tracking import contents
from flows.tracking.contents import children, track
from flows.tracking.describe import facts
from flows.tracking.model import log_router
from flows.tracking.store import Store, make_store, open_store
from flows.worktree import git
from tests.flows.project import (
    CURVE,
    QUESTIONS,
    RULE,
    STAGES,
    commit,
    register,
    retrain,
)
from tests.flows.tracking.registered import versions

OPEN = "from flows.tracking.store import make_store; print(make_store('citer').experiment_id)"


def tracked() -> tuple[Store, Run, list[Run]]:
    store = make_store("citer")
    run = track(store, load_params(), STAGES)
    return store, run, children(store, run.info.run_id)


def history(run: Run, key: str) -> list[tuple[int, float]]:
    """Return the steps and the values of a metric."""
    found = open_store("citer").client.get_metric_history(run.info.run_id, key)
    return [(each.step, each.value) for each in found]


def test_params_are_flattened_and_the_routers_metrics_come_first(project: Path) -> None:
    """What could not be measured is left out."""
    retrain(1, correct=QUESTIONS // 2)
    _, run, (_, last) = tracked()
    assert run.data.params["train.learning_rate"] == "0.001"
    assert json.loads(run.data.params["evaluate.batches"]) == [1, 8, 32]
    assert last.data.params["label.rule"] == str(load_params().label.rule)
    assert last.data.metrics["all/accuracy"] == 0.5
    assert last.data.metrics["math/accuracy"] == 0.5
    assert last.data.metrics["all/at"] == RULE.at
    assert last.data.metrics["all/audit"] == RULE.audit
    assert last.data.metrics["rivals/llm_accuracy"] == 1
    assert run.data.metrics["accuracy"] == 0.5
    assert last.data.metrics["train/best_epoch"] == 7
    assert read_json(paths.report(2) / "metrics.json")["audited"]["cost_for_99_percent"] is None
    assert "all/cost_for_99_percent" not in last.data.metrics


@pytest.mark.parametrize(
    ("rule", "other", "text"),
    [
        (Rule("risk", 1 / 3, audit=0.1), "router", "risk 0.3333 audit 0.1"),
        (Rule("score", 0.5), "audited", "score 0.5"),
    ],
)
def test_a_run_has_the_metrics_and_the_rule_of_the_deployed_method(
    project: Path, rule: Rule, other: str, text: str
) -> None:
    retrain(1, correct=QUESTIONS // 2, rule=rule)
    _, _, (_, last) = tracked()
    assert last.data.tags["rule"] == text
    assert last.data.metrics["all/accuracy"] == 0.5
    assert last.data.metrics[f"rivals/{other}_accuracy"] == 0.9


@pytest.mark.parametrize(
    ("by", "scorer"),
    [
        ("", None),
        ("entropy", None),
        ("agree_logistic", "agreement, ten numbers"),
        ("stand", "preferences (rollout), the hidden state, a wide head"),
    ],
)
def test_a_version_says_what_the_head_of_its_rule_learnt_and_reads(
    project: Path, by: str, scorer: str | None
) -> None:
    labels = {"references": "given", "outcome": "rollout", "margin": None}
    retrain(1, rule=replace(RULE, by=by), labels=labels)
    _, _, (_, last) = tracked()
    assert facts(last).get("scorer") == scorer


def test_a_run_has_curves_and_headlines(project: Path) -> None:
    """Headlines have no prefix, and belong to the retraining."""
    retrain(1, correct=150)
    write_json(paths.SUMMARY / "headline.json", {"accuracy": 0.25, "cost_b1": 0.125})
    write_text(paths.SUMMARY / "table.md", "| all |\n\n## By task\n\n| math |\n")
    _, run, (first, last) = tracked()
    assert run.data.tags["mlflow.note.content"] == "| all |\n"
    assert history(run, "finetune/loss") == [(1, 3.0), (2, 2.0), (3, 1.5)]
    for child in (first, last):
        named = {key: history(child, key) for key in child.data.metrics}
        assert named["train/loss"] == [*enumerate(CURVE["train_loss"], start=1)]
        assert named["train/holdout_loss"] == [*enumerate(CURVE["holdout_loss"], start=1)]

    plain = [
        {key: value for key, value in each.data.metrics.items() if "/" not in key}
        for each in (run, first, last)
    ]
    assert plain == [{"accuracy": 0.25, "cost_b1": 0.125}, {}, {}]
    assert facts(last)["accuracy"].startswith("75.0%")


def test_a_run_keeps_the_files_that_it_was_made_from(project: Path) -> None:
    retrain(1)
    _, run, (first, _) = tracked()
    for owner, artifact, kept in [
        (run, "pipeline/dvc.lock", Path("dvc.lock")),
        (run, "pipeline/params.yaml", Path("params.yaml")),
        (run, "summary/table.md", paths.SUMMARY / "table.md"),
        (first, "report/frontier.png", paths.report(1) / "frontier.png"),
        (first, "report/outcomes.parquet", paths.report(1) / "outcomes.parquet"),
    ]:
        stored = mlflow.artifacts.download_artifacts(f"runs:/{owner.info.run_id}/{artifact}")
        assert Path(stored).read_bytes() == kept.read_bytes()


def test_inputs_are_logged_with_digests_and_without_machine_paths(project: Path) -> None:
    retrain(1)
    _, run, iterations = tracked()
    judged = [paths.referenced(split) for split in ("validation", "test")]
    for child, files in [
        (run, [paths.referenced("sft"), paths.referenced("preference"), *judged]),
        *((child, [paths.preferences(k), *judged]) for k, child in enumerate(iterations, start=1)),
    ]:
        used = {each.dataset.name: each.dataset for each in child.inputs.dataset_inputs}
        assert {name: d.digest for name, d in used.items()} == {
            str(file): file_md5(file) for file in files
        }
        for dataset in used.values():
            assert str(project) not in dataset.source
            assert json.loads(dataset.source)["url"].startswith("dvc://data/")


def test_the_same_retraining_is_tracked_once_even_after_later_commits(project: Path) -> None:
    retrain(1)
    store, run, _ = tracked()
    write_text(Path("README.md"), "A word more.\n")
    commit(project)
    _, again, _ = tracked()
    assert again.info.run_id == run.info.run_id
    assert len(store.runs("")) == 3


def test_an_iteration_that_is_no_stage_any_more_is_not_tracked(project: Path) -> None:
    retrain(1)
    shutil.copytree(paths.router(2), paths.router(3))
    shutil.copytree(paths.report(2), paths.report(3))
    _, _, iterations = tracked()
    assert [child.data.tags["iteration"] for child in iterations] == ["1", "2"]


def test_an_interrupted_log_of_a_retraining_is_replaced_and_no_metric_is_logged_twice(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill while the second router is logged, no run and no model of it remain."""
    retrain(1)

    def log_one(router: Path, *rest: Any) -> None:
        log_router(router, *rest)
        if router == paths.router(2):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(contents, "log_router", log_one)
        with pytest.raises(KeyboardInterrupt):
            tracked()
    store, run, _ = tracked()
    assert len(store.runs("")) == 3
    assert run.info.status == "FINISHED"
    models = store.client.search_logged_models([store.experiment_id])
    assert sorted(model.name for model in models) == ["router", "router", "slm"]
    _, _, (_, last) = tracked()
    assert len(history(run, "finetune/loss")) == 3
    assert len(history(last, "train/loss")) == 2
    assert register().startswith("citer-router version 2 promoted")


def test_a_run_that_a_repeated_call_made_twice_is_deleted(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's client repeats a call whose reply was lost."""
    start = contents._start_below
    monkeypatch.setattr(contents, "_start_below", lambda *args: (start(*args), start(*args))[1])
    retrain(1)
    store, _, iterations = tracked()
    assert [child.data.tags["iteration"] for child in iterations] == ["1", "2"]
    assert [run.info.status for run in store.runs("")] == ["FINISHED"] * 3


def test_a_model_has_the_code_of_the_current_folder(project: Path) -> None:
    """Which in a worktree is the commit's; a checkout may have another one by now."""
    retrain(1)
    Path("citer/own.py").write_text("")
    tracked()
    assert len([*Path("mlruns").rglob("code/citer/own.py")]) == 2  # a model for each router


def test_two_checkouts_with_equal_results_keep_each_others_runs(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one starts, and ends, while the first one logs its second router."""
    retrain(1)
    first: list[Run] = []

    def meanwhile(router: Path, *rest: Any) -> None:
        log_router(router, *rest)
        if router == paths.router(2) and not first:
            Path("mlruns/attempt").unlink()  # another checkout has none
            monkeypatch.setattr(contents, "log_router", log_router)
            first.append(tracked()[1])

    monkeypatch.setattr(contents, "log_router", meanwhile)
    store, second, _ = tracked()
    assert len(first) == 1
    assert first[0].info.run_id != second.info.run_id
    runs = store.runs("")
    assert [run.info.status for run in runs] == ["FINISHED"] * 6
    assert tracked()[1].info.run_id in {first[0].info.run_id, second.info.run_id}
    assert len(store.runs("")) == 6


@pytest.mark.parametrize(("deleted", "left"), [("retraining", 2), ("iteration", 1)])
def test_a_retraining_is_logged_again_if_runs_were_deleted_and_versions_keep_their_models(
    registered: Path, deleted: str, left: int
) -> None:
    store = open_store("citer")
    for run in store.runs(f"tags.kind = '{deleted}'"):
        store.client.delete_run(run.info.run_id)
    for _ in range(2):
        assert register().startswith("nothing new")
        assert (len(store.runs("")), versions()) == (left + 3, [1, 2])
    assert mlflow.pyfunc.load_model("models:/citer-router/2").predict(["1 + 1?"]).error[0] is None


def test_only_code_that_is_not_committed_makes_a_run_dirty(project: Path) -> None:
    retrain(1)
    Path("params.yaml").write_text(Path("params.yaml").read_text() + "# mine\n")
    _, clean, _ = tracked()
    assert clean.data.tags["git_sha"] == git("rev-parse", "HEAD")
    assert clean.data.tags["git_dirty"] == "false"
    assert clean.data.tags["dvc_lock"] == file_md5(Path("dvc.lock"))
    retrain(2)
    Path("dvc.yaml").write_text("stages: {}\n")
    _, dirty, _ = tracked()
    assert dirty.data.tags["git_dirty"] == "true"


def test_a_tracking_server_that_is_named_takes_the_place_of_the_embedded_store(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mlruns/mlflow.db").replace("elsewhere.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/elsewhere.db")
    make_store("citer")
    assert mlflow.get_tracking_uri().endswith("elsewhere.db")
    assert not Path("mlruns/mlflow.db").exists()


def test_a_moved_folder_is_reported_with_the_command_that_links_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_store("citer").experiment_id
    moved = project.rename(project.with_name("moved"))
    monkeypatch.chdir(moved)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")  # MLflow has set it
    with pytest.raises(InputError, match=f"ln -s {moved} {project}$"):
        open_store("citer")
    project.symlink_to(moved)
    assert open_store("citer").experiment_id == made


@pytest.mark.slow
def test_a_fresh_store_survives_several_first_clients(project: Path) -> None:
    Path("mlruns/mlflow.db").unlink()
    clients = [
        subprocess.Popen([sys.executable, "-c", OPEN], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert len({client.communicate()[0] for client in clients}) == 1
    assert [client.returncode for client in clients] == [0, 0, 0]
