"""What MLflow's page shows about a run, in a real store."""

from pathlib import Path
from typing import Any

import pytest

from citer.stages import paths
from citer.storage.tables import write_json, write_text
from flows.tracking import contents
from flows.tracking.describe import facts
from flows.tracking.store import open_store
from tests.flows.project import CURVE, retrain
from tests.flows.tracking.test_contents import tracked


def history(run_id: str, key: str) -> list[tuple[int, float]]:
    return [
        (each.step, each.value)
        for each in open_store("citer").client.get_metric_history(run_id, key)
    ]


def test_a_run_has_curves_and_headlines(project: Path) -> None:
    """Headlines have no prefix, and belong to the retraining."""
    retrain(1, correct=150)
    write_json(paths.SUMMARY / "headline.json", {"accuracy": 0.25, "cost_b1": 0.125})
    write_text(paths.SUMMARY / "table.md", "| all |\n\n## By task\n\n| math |\n")
    _, run, (first, last) = tracked()
    assert run.data.tags["mlflow.note.content"] == "| all |\n"
    assert history(run.info.run_id, "finetune/loss") == [(1, 3.0), (2, 2.0), (3, 1.5)]
    for child in (first, last):
        named = {key: history(child.info.run_id, key) for key in child.data.metrics}
        assert named["train/loss"] == [*enumerate(CURVE["train_loss"], start=1)]
        assert named["train/holdout_loss"] == [*enumerate(CURVE["holdout_loss"], start=1)]

    plain = [
        {key: value for key, value in each.data.metrics.items() if "/" not in key}
        for each in (run, first, last)
    ]
    assert plain == [{"accuracy": 0.25, "cost_b1": 0.125}, {}, {}]
    assert facts(last)["accuracy"].startswith("75.0%")


def test_a_second_registration_logs_no_metric_twice_and_an_interrupted_one_is_replaced(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrain(1)

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(contents, "log_router", fail)  # all of the page's files are logged by then
        with pytest.raises(KeyboardInterrupt):
            tracked()
    for _ in range(2):
        store, run, children = tracked()
        assert len(store.runs("")) == 3
        assert len(history(run.info.run_id, "finetune/loss")) == 3
        assert len(history(children[1].info.run_id, "train/loss")) == 2
