"""What MLflow's and Prefect's pages show about a version, in a real store."""

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest

from citer.config.params import load_params
from citer.rule import Rule
from citer.stages import paths
from citer.storage.tables import write_json, write_text
from flows.pipeline import register as register_task
from flows.tracking import contents
from flows.tracking.contents import QUESTIONS, report_page
from flows.tracking.describe import facts
from flows.tracking.iteration import Iteration
from flows.tracking.store import open_store
from tests.flows.project import CURVE, STAGES, register, retrain
from tests.flows.tracking.registered import version
from tests.flows.tracking.test_contents import tracked

TOKENS = {"method": "router", "rule": "score 0.5", "questions": 0, "spoken": [], "answers": []}


def history(run_id: str, key: str) -> list[tuple[int, float]]:
    return [
        (each.step, each.value)
        for each in open_store("citer").client.get_metric_history(run_id, key)
    ]


def test_a_run_has_curves_headlines_and_a_table_that_mlflow_reads(project: Path) -> None:
    """The frontier is in order of cost. Headlines have no prefix; only the last router has them."""
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
        assert named["frontier/audited/cost_b1"] == [(1, 0.2), (2, 0.3), (3, 0.4)]
        assert named["frontier/audited/accuracy"] == [(1, 0.8), (2, 0.9), (3, 1.0)]

    plain = [
        {key: value for key, value in each.data.metrics.items() if "/" not in key}
        for each in (run, first, last)
    ]
    assert plain == [{"accuracy": 0.25, "cost_b1": 0.125}, {}, {"accuracy": 0.25, "cost_b1": 0.125}]
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


def test_versions_and_prefects_page_link_to_the_report_page_of_the_run(project: Path) -> None:
    retrain(1)
    outcome, card = register_task.fn(STAGES, "https://…@there/")  # `page` has left out a password
    for number in (1, 2):
        own = version(number)
        kept = mlflow.artifacts.download_artifacts(f"runs:/{own.run_id}/{paths.PAGE.name}")
        assert Path(kept).read_bytes() == paths.PAGE.read_bytes()
        place = f"#/experiments/1/runs/{own.run_id}"
        report = f"{place}/artifacts/report.html?workflowType=machine_learning"
        assert f"[Report page]({report})" in (own.description or "")
    assert card.startswith(outcome)
    address = "#/models/citer-router/versions/2?workflowType=machine_learning"
    for link in (address, f"{place}?workflowType=machine_learning", report):
        assert f"](https://there/{link})" in card
    _, again = register_task.fn(STAGES, "mlflow ui")
    assert f"](http://127.0.0.1:5000/{address})" in again
    assert again.endswith("The links need a server: `mlflow ui`")


def test_the_page_shows_the_champions_tokens_beside_the_new_ones(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []

    def write(params: object, path: Path, champion: contents.Champion) -> None:
        shown.append((champion.name, json.loads(champion.tokens.read_text())))
        path.write_text("beside")

    monkeypatch.setattr(contents, "write_report_page", write)
    retrain(1)
    register()
    client, params = open_store("citer").client, load_params()
    with report_page(client, params) as page:
        assert page == paths.PAGE
    for content in ({}, TOKENS):  # an earlier citer's, which is not read, and one of today
        client.log_dict(version(2).run_id, content, "report/tokens.json")
        with report_page(client, params) as page:
            assert page.read_text() == ("beside" if content else "<h1>A report</h1>\n")
    assert shown == [("version 2", TOKENS)]


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
