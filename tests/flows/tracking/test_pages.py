"""What MLflow's page shows about a run, in a real store."""

from pathlib import Path
from typing import Any

import pytest

from citer.rule import Rule
from citer.stages import paths
from citer.storage.tables import write_json, write_text
from flows.tracking import contents
from flows.tracking.contents import QUESTIONS
from flows.tracking.describe import facts
from flows.tracking.iteration import Iteration
from flows.tracking.store import open_store
from tests.flows.project import CURVE, retrain
from tests.flows.tracking.test_contents import tracked


def history(run_id: str, key: str) -> list[tuple[int, float]]:
    return [
        (each.step, each.value)
        for each in open_store("citer").client.get_metric_history(run_id, key)
    ]


def test_a_run_has_curves_headlines_and_a_table_that_mlflow_reads(project: Path) -> None:
    """Headlines have no prefix, and belong to the retraining."""
    retrain(1, correct=150)
    write_json(paths.SUMMARY / "headline.json", {"accuracy": 0.25, "cost_b1": 0.125})
    write_text(paths.SUMMARY / "table.md", "| all |\n\n## By task\n\n| math |\n")
    store, run, (first, last) = tracked()
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
    table = store.client.load_table(store.experiment_id, QUESTIONS, [last.info.run_id])
    assert table.to_dict("split", index=False) == Iteration(2).questions()


@pytest.mark.parametrize("rule", [Rule("risk", 0.75, audit=0.1), Rule("score", 1)])
def test_the_table_of_questions_begins_with_those_that_routing_lost(
    project: Path, rule: Rule
) -> None:
    """Without a certified rule the answers are the LLM's."""
    retrain(1, correct=150, llm_correct=160, rule=rule)
    table = Iteration(2).questions()
    names = ["question", "task", "routed right", "LLM right", "bytes", "LLM tokens"]
    assert table["columns"] == names
    column = dict(zip(names, zip(*table["data"], strict=True), strict=True))
    routed, moved = (150, 500) if rule.asks_slm else (160, 1000)
    assert sum(column["routed right"]) == routed
    assert sum(column["LLM right"]) == 160
    lost = sorted(f"test-{number}" for number in range(routed, 160))
    assert list(column["question"][: len(lost)]) == lost
    assert set(column["bytes"]) == {moved}


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
