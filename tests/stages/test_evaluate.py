"""The stages `rivals`, `evaluate` and `choose`, from files to files."""

import re
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from citer.data.problems import write_problems
from citer.errors import InputError
from citer.evaluation import study
from citer.evaluation.choice import ChosenRule
from citer.evaluation.points import read_findings, rule_of
from citer.stages import evaluate, paths, rivals
from citer.storage.tables import read_as, read_json, table_metadata
from tests.stages.conftest import run_router, with_taught_llm, write_router
from tests.tiny import MATH, MC


def test_rivals_prints_the_accuracy_of_each_model_alone(params, capsys):
    rivals.run(params)
    rows = pq.read_table(paths.RIVALS / "outcomes.parquet").to_pylist()
    cut = {
        method: [r["truncated"] for r in rows if (r["split"], r["method"]) == ("test", method)]
        for method in ("slm", "llm")
    }
    assert (sum(cut["slm"]), sum(cut["llm"]), len(cut["llm"])) == (6, 5, 6)
    expected = "SLM 0.0% right, 100.0% cut off; LLM 0.0% right, 83.3% cut off"
    assert f"rivals, on test: {expected}\n" in capsys.readouterr().out


def test_an_llm_below_the_floor_stops_rivals_before_the_test_questions(params, monkeypatch):
    swept = []
    sweep = study.sweep
    monkeypatch.setattr(study, "sweep", lambda *args: swept.append(args[2]) or sweep(*args))
    floored = params.evaluate.model_copy(update={"llm_floor": 0.7})
    message = (
        "rivals: LLM right on 0.0% of 3 math questions of validation, expected at least 70.0%; "
        "LLM right on 0.0% of 3 mc questions of validation, expected at least 70.0% "
        "(evaluate.llm_floor)"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        rivals.run(params.model_copy(update={"evaluate": floored}))
    assert [{problem.split for problem in each} for each in swept] == [{"validation"}]
    assert not paths.RIVALS.parent.exists()


def test_an_llm_above_the_floor_passes_with_a_warning_about_too_few_right_answers(params, capsys):
    taught = with_taught_llm(params, 6, {"llm_floor": 0.6})
    rivals.run(taught)
    printed = capsys.readouterr().out
    assert "validation: the LLM is right on 4 questions, too few to certify any rule" in printed
    assert "LLM 66.7% right" in printed
    higher = taught.evaluate.model_copy(update={"llm_floor": 1.0})
    with pytest.raises(InputError, match=r"LLM right on 66\.7% of 3 math questions"):
        rivals.run(taught.model_copy(update={"evaluate": higher}))
    assert (paths.RIVALS / "points.parquet").exists()


def test_no_rule_is_certified_for_an_llm_that_is_never_right(params):
    rivals.run(params)
    trusting = params.evaluate.model_copy(update={"epsilon": 0.99})
    run_router(params.model_copy(update={"evaluate": trusting}), 1)
    chosen = read_as(paths.report(1) / "chosen.json", dict[str, ChosenRule])
    assert not any(each.certified for each in chosen.values())


def test_a_report_holds_every_question_under_every_rule_and_the_chosen_rules(params):
    rivals.run(params)
    run_router(params, 1)
    folder = paths.report(1)
    findings = read_findings(folder, params.evaluate, table_metadata(folder / "points.parquet"))
    rows = findings.outcomes.to_pylist()
    keys = {(row["split"], row["method"], rule_of(row), row["problem_id"]) for row in rows}
    rules = {(row["method"], rule_of(row)) for row in findings.points}
    assert len(keys) == len(rows) == 2 * len(rules) * 6
    chosen = read_as(folder / "chosen.json", dict[str, ChosenRule])
    assert list(chosen) == ["router", "audited", "policy", "exact"]
    deployed = read_as(folder / "threshold.json", ChosenRule)
    assert deployed == min(chosen.values(), key=lambda each: each.cost)
    assert {each.delta for each in chosen.values()} == {params.evaluate.delta}
    metrics = read_json(folder / "metrics.json")
    for name, each in chosen.items():
        assert (metrics[name]["at"], metrics[name]["audit"]) == (each.rule.at, each.rule.audit)


def test_rivals_of_other_questions_are_refused_before_a_model_is_loaded(params, monkeypatch):
    rivals.run(params)
    monkeypatch.setattr("citer.stages.evaluate.open_pair", None)
    write_problems(paths.referenced("test"), [replace(MC, split="test")], {})
    with pytest.raises(InputError, match=r"rivals/outcomes\.parquet: its problems is"):
        evaluate.run(params, 1)


@pytest.mark.parametrize("stage", ["rivals", "evaluate"])
def test_a_question_without_room_for_its_answer_is_refused_before_a_model_is_loaded(
    params, monkeypatch, stage
):
    rows = [replace(MATH, problem_id="huge", question="Why? " * 400, split="test")]
    write_problems(paths.referenced("test"), rows, {})
    monkeypatch.setattr(f"citer.stages.{stage}.open_pair", None)
    message = r"^data/references/test\.parquet: problem huge: \d+ tokens and up to 12 more "
    expected = r"\(decode\.max_new_tokens\), expected at most"
    with pytest.raises(InputError, match=message + expected):
        rivals.run(params) if stage == "rivals" else evaluate.run(params, 1)


def test_a_router_of_another_pair_is_refused_before_a_model_is_loaded(params, monkeypatch):
    monkeypatch.setattr("citer.stages.evaluate.open_pair", None)
    other = params.pair.model_copy(update={"dtype": "float64"})
    with pytest.raises(InputError, match=r"routers/1: its dtype is float32, here it is float64"):
        evaluate.run(params.model_copy(update={"pair": other}), 1)


def test_a_router_without_thresholds_is_refused(params):
    write_router(params, 1, {})
    with pytest.raises(InputError, match=r"routers/1/router\.json: no `holdout_scores`"):
        evaluate.run(params, 1)
