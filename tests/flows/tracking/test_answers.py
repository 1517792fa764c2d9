"""The answers of a version: the rows of its own rule, selected from those of all rules."""

from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests

from citer.config.params import ServeParams, load_params
from citer.errors import InputError, TemporaryError
from citer.evaluation.choice import ChosenRule, upper_bound
from citer.evaluation.gate import Graded
from citer.evaluation.points import rule_columns
from citer.rule import Rule
from citer.stages.paths import DEPLOYED
from citer.storage.schema import OUTCOME, point
from citer.storage.tables import read_json, read_table, write_json, write_table
from flows.tracking.answers import (
    ALONE,
    batched_bytes,
    deployed,
    elsewhere,
    graded,
    questions,
    risk_bound,
    routed,
)
from flows.tracking.contents import children, track
from flows.tracking.store import make_store, reported
from tests.flows.project import LLM_ALONE, LLM_BYTES, QUESTIONS, STAGES, retrain


def last_run(rule: Rule) -> str:
    """Track a retraining whose last router answers half of the questions right by `rule`."""
    retrain(1, correct=QUESTIONS // 2, cost=0.5, rule=rule, llm_correct=QUESTIONS)
    store = make_store("citer")
    retraining = track(store, load_params(), STAGES).info.run_id
    return children(store, retraining)[-1].info.run_id


@pytest.mark.parametrize("rule", [Rule("score", 0.5), Rule("risk", 0.8, 0.1)])
def test_a_routers_answers_are_those_under_its_deployed_rule(project: Path, rule: Rule) -> None:
    assert routed(last_run(rule)) == {
        f"test-{number}": Graded(number < QUESTIONS // 2, LLM_BYTES / 2)
        for number in range(QUESTIONS)
    }


@pytest.mark.parametrize(
    ("rule", "engine", "is_elsewhere"),
    [
        ("score 0.5", "citer", False),
        ("score 0.5", "vllm", True),
        ("risk 0.8 audit 1 cap 16", "citer", True),
        ("risk 0.8 audit 1 cap 16", "vllm", False),
        ("every 8 audit 1 cap 8", "citer", False),
        ("every 8 audit 1 cap 8", "vllm", True),
    ],
)
def test_a_rule_is_of_the_place_that_tries_it(rule: str, engine: str, is_elsewhere: bool) -> None:
    serve = ServeParams(engine=engine, batch=8, cap=16)
    assert bool(elsewhere(Rule.parse(rule), serve)) == is_elsewhere


def test_a_method_of_any_name_can_be_deployed(project: Path) -> None:
    rule = Rule("score", 0.5)
    run_id = last_run(rule)
    expected = routed(run_id)
    report = project / f"mlruns/artifacts/{run_id}/artifacts/report"
    table = read_table(report / "outcomes.parquet", OUTCOME).to_pandas()
    table["method"] = table["method"].replace("router", "cascade")
    renamed = pa.Table.from_pandas(table, OUTCOME, preserve_index=False)
    write_table(report / "outcomes.parquet", renamed, OUTCOME, {})
    write_json(report / DEPLOYED, read_json(report / DEPLOYED) | {"method": "cascade"})
    assert routed(run_id) == expected


def test_a_router_without_a_certified_rule_has_the_llms_answers(project: Path) -> None:
    run_id = last_run(LLM_ALONE)
    expected = {f"test-{number}": Graded(True, LLM_BYTES) for number in range(QUESTIONS)}
    assert routed(run_id) == graded(run_id, ALONE) == expected


@pytest.mark.parametrize("torn", [False, True])
def test_a_table_that_is_torn_or_has_no_seal_is_refused_in_one_line(
    project: Path, torn: bool
) -> None:
    run_id = last_run(Rule("risk", 0.5, 0.1))
    [stored] = project.glob(f"mlruns/artifacts/{run_id}/artifacts/report/outcomes.parquet")
    if torn:
        stored.write_bytes(stored.read_bytes()[:-100])
    else:
        pq.write_table(pq.read_table(stored).replace_schema_metadata(), stored)
    with pytest.raises(InputError, match=r"^runs:/.*outcomes\.parquet: not a table that .*: .*$"):
        routed(run_id)


def test_bytes_in_a_batch_are_of_the_deployed_rule_on_all_test_questions(project: Path) -> None:
    rule = Rule("risk", 0.8, 0.1)
    run_id = last_run(rule)
    schema = point(["b8", "b8_delayed", "b8_lockstep"])
    blank = {field.name: "" if field.type == pa.string() else 0 for field in schema}
    blank |= {"bytes_per_answer_b8": 9.0, "bytes_per_answer_b8_lockstep": 8.0}
    places = [
        ("validation", "audited", rule, "all", 5.0),
        ("test", "audited", rule, "math", 1.0),
        ("test", "audited", Rule("risk", 0.9, 0.1), "all", 2.0),
        ("test", "router", rule, "all", 3.0),
        ("test", "audited", rule, "all", 7.0),
    ]
    rows = [
        blank
        | rule_columns(each)
        | {"split": split, "method": method, "task": task, "bytes_per_answer_b8_delayed": moved}
        for split, method, each, task, moved in places
    ]
    report = project / f"mlruns/artifacts/{run_id}/artifacts/report"
    write_table(report / "points.parquet", pa.Table.from_pylist(rows, schema), schema, {})
    for serve, moved in (
        (ServeParams(batch=8), 7.0),
        (ServeParams(batch=8, engine="vllm"), 8.0),
        (ServeParams(batch=32), None),
    ):
        assert batched_bytes(run_id, deployed(run_id), serve) == moved


def test_the_questions_of_a_split_are_those_that_the_llm_answered(project: Path) -> None:
    run_id = last_run(Rule("score", 0.5))
    assert questions(run_id, "test") == {f"test-{number}" for number in range(QUESTIONS)}
    assert questions(run_id, "preference") == set()


@pytest.mark.parametrize(
    ("rule", "certified", "bound"),
    [
        (Rule("risk", 0.5, 0.1), True, upper_bound(3, 200, 0.01)),
        (Rule("risk", 0.5, 0.1), False, 1.0),
        (LLM_ALONE, False, 0.0),
        (Rule("risk", 0.5, 1.0), True, 0.0),  # exact
    ],
)
def test_a_stored_certificate_is_read_at_the_confidence_now_asked(
    rule: Rule, certified: bool, bound: float
) -> None:
    stored = asdict(ChosenRule(rule, 200, 3, 0.2, 0.4, 0.05, 0.05, 0.037, certified))
    assert risk_bound(stored, 0.01) == bound


def test_a_server_that_does_not_give_a_table_is_not_said_to_have_a_bad_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Previously, the flow did not retry it."""

    def busy(*_: object, **__: object) -> str:
        raise requests.HTTPError("503 Server Error: Service Unavailable for url: http://there")

    monkeypatch.setattr("mlflow.artifacts.download_artifacts", busy)
    with pytest.raises(TemporaryError, match=": 503 Server Error"), reported():
        questions("1", "test")
