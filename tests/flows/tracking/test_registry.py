"""What a registration adds to a real registry: versions, tags, aliases."""

import re
import tempfile
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from citer.config.params import ServeParams
from citer.errors import InputError
from citer.stages import paths
from citer.storage.tables import digest, read_json, write_json
from flows.dvc_commands import file_md5
from flows.tracking.compare import compare
from flows.tracking.describe import tags_of
from flows.tracking.registry import promote, run_of
from tests.flows.project import register, register_new, retrain
from tests.flows.tracking.registered import CHAMPION, NAME, fetch, holder, version, versions

ASKED = min(digest(f"test-{n}") for n in range(200))


def test_every_iteration_is_a_version_and_the_last_the_challenger(registered: Path) -> None:
    assert versions() == [1, 2]
    assert holder("challenger") == 2
    tags = version(1).tags
    data = file_md5(paths.preferences(1))[:7]
    assert re.fullmatch(f"data {data}, commit [0-9a-f]{{7}}", tags.pop("made_from"))
    assert tags == {
        "rule": "risk 0.75 audit 0.1",
        "accuracy": "1",
        "cost_b1": "0.5",
        "certified": "true",
        "llm_fraction": "0.25",
    }
    judged = {"decision", "judged_against", "reason", "history"}
    assert version(2).tags.keys() == tags.keys() | judged | {"made_from"}
    assert len(version(2).tags) == 10  # 11 if its rule has a head; MLflow's list shows them all


def test_the_cost_of_a_version_is_the_one_that_the_gate_compares(project: Path) -> None:
    retrain(1)
    file = paths.report(2) / "metrics.json"
    metrics = read_json(file)
    metrics["audited"] |= {"cost_b32_delayed": 0.375, "cost_b8_delayed": 0.625}
    write_json(file, metrics)
    register()
    router = run_of(version(2))
    for batch, cost in (
        (1, {"cost_b1": "0.5"}),
        (8, {"cost_b8": "0.5"}),
        (32, {"cost_b32_delayed": "0.375"}),
    ):
        tags = tags_of(router, ServeParams(batch=batch))
        assert {key: tags[key] for key in tags if key.startswith("cost_")} == cost


def test_a_versions_description_says_what_it_used_and_links_to_the_report_page(
    project: Path,
) -> None:
    register_new(1, correct=150)
    once = f"Validation questions {ASKED[:7]}: used once; all promises from them hold together"
    run = run_of(version(1)).info
    place = f"#/experiments/{run.experiment_id}/runs/{run.run_id}/artifacts/report.html"
    page = f"[Report page]({place}?workflowType=machine_learning)"
    assert version(1).description == f"{once} at confidence 0.95.\n\n{page}"
    kept = mlflow.artifacts.download_artifacts(f"runs:/{version(1).run_id}/{paths.PAGE.name}")
    assert Path(kept).read_bytes() == paths.PAGE.read_bytes()


def test_registering_twice_adds_nothing_and_moves_no_alias(project: Path) -> None:
    first = register_new(1)
    promote(1)
    again = register()
    assert versions() == [1, 2]
    assert holder("champion") == 1
    assert first.endswith("; the champion is version 2")
    assert again.startswith("nothing new: citer-router version 2, registered earlier, is the same")
    assert again.endswith("; now the champion is version 1")
    assert version(2).tags["reason"] in again


def test_equal_routers_from_different_files_are_one_version(registered: Path) -> None:
    for k in (1, 2):
        card = read_json(paths.router(k) / "router.json")
        write_json(paths.router(k) / "router.json", card | {"data": {"preferences": "other"}})
        write_json(paths.router(k) / paths.CURVE, {"train_loss": [9.0], "holdout_loss": [9.0]})
        (paths.router(k) / paths.HOLDOUT).unlink()
    assert register().startswith("nothing new: citer-router version 2, registered earlier, is the")
    card["heads"]["stand"]["calibration"]["slope"] += 1
    write_json(paths.router(2) / "router.json", card)
    assert register().startswith("citer-router version 3 ")


def test_of_two_versions_of_one_run_the_judged_one_counts(registered: Path) -> None:
    """MLflow's client makes two if it repeats a call whose reply was lost."""
    known = version(2)
    MlflowClient().create_model_version(NAME, known.source, run_id=known.run_id)
    assert register().startswith("nothing new: citer-router version 2, registered earlier, is the")


def test_a_registration_leaves_no_folder_behind(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "tmp"
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    for seed in (1, 2):
        register_new(seed)
    compare()
    fetch(CHAMPION)
    assert list(home.iterdir()) == []


def test_a_version_that_is_not_registered_is_refused(registered: Path) -> None:
    with pytest.raises(InputError, match="no version 7"):
        promote(7)
    with pytest.raises(InputError, match="not fetched: "):
        fetch(f"models:/{NAME}/7")
