"""The stages `rivals`, `evaluate` and `choose`, from files to files."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from citer.config.params import Params
from citer.data.problems import write_problems
from citer.errors import InputError
from citer.evaluation import study
from citer.evaluation.candidates import STYLES
from citer.evaluation.choice import ChosenRule
from citer.evaluation.cost import counted
from citer.evaluation.points import Findings, read_findings, rule_of
from citer.stages import evaluate, paths, rivals
from citer.storage.tables import read_as, read_json, table_metadata
from tests.stages.conftest import run_router, with_taught_llm
from tests.stages.sections import with_section
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
    message = (
        "rivals: LLM right on 0.0% of 3 math questions of validation, expected at least 70.0%; "
        "LLM right on 0.0% of 3 mc questions of validation, expected at least 70.0% "
        "(evaluate.llm_floor)"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        rivals.run(with_section(params, "evaluate", llm_floor=0.7))
    assert [{problem.split for problem in each} for each in swept] == [{"validation"}] * 2
    assert not paths.RIVALS.parent.exists()


def test_an_llm_above_the_floor_passes_with_a_warning_about_too_few_right_answers(params, capsys):
    taught = with_taught_llm(params, 6, llm_floor=0.6)
    rivals.run(taught)
    printed = capsys.readouterr().out
    few = "the LLM is right on 4 questions, too few to certify a rule that may change an answer"
    assert f"validation: {few}" in printed
    assert "LLM 66.7% right" in printed
    with pytest.raises(InputError, match=r"LLM right on 66\.7% of 3 math questions"):
        rivals.run(with_section(taught, "evaluate", llm_floor=1.0))
    assert (paths.RIVALS / "points.parquet").exists()


def test_a_report_holds_every_question_under_every_rule_and_the_chosen_rules(reported):
    folder = paths.report(1)
    findings = found_in(folder, reported)
    rows = findings.outcomes.to_pylist()
    keys = {(row["split"], row["method"], rule_of(row), row["problem_id"]) for row in rows}
    rules = {(row["method"], rule_of(row)) for row in findings.points}
    assert len(keys) == len(rows) == 2 * len(rules) * 6
    chosen = read_as(folder / "chosen.json", dict[str, ChosenRule])
    methods = {method for method, _ in rules}
    assert methods == {*STYLES} - {"citer_s", "lookup"}
    assert chosen.keys() == methods | {"llm"}  # none passes the test of all
    deployed = read_as(folder / "threshold.json", ChosenRule)
    assert deployed == chosen["llm"]
    assert deployed.cost == min(each.cost for each in chosen.values())
    assert {each.delta for each in chosen.values()} == {reported.evaluate.delta}
    metrics = read_json(folder / "metrics.json")
    for name, each in chosen.items():
        assert (metrics[name]["at"], metrics[name]["audit"]) == (each.rule.at, each.rule.audit)


def found_in(folder: Path, params: Params) -> Findings:
    batches = counted(params.evaluate, params.serve)
    return read_findings(folder, batches, table_metadata(folder / "points.parquet"))


def test_a_candidate_is_answered_once_and_stands_in_the_report_of_every_router(reported):
    """Those of heads that all routers share, of entropy and of γ are in the rivals' answers."""
    fixed, own, reported = (
        found_in(folder, reported) for folder in (paths.RIVALS, paths.answers(1), paths.report(1))
    )
    scorers = [{rule_of(row).by for row in each.candidates.points} for each in (fixed, own)]
    assert scorers == [{"", "entropy", "probability", "agree", "co_llm"}, {"stand"}]
    both = fixed.candidates.joined(own).where(lambda row: row["split"] != "preference")
    assert reported.outcomes == both.outcomes
    assert reported.points == both.points


def test_a_router_without_heads_of_its_own_has_the_rivals_candidates_alone(params):
    rivals.run(params)
    shutil.copytree(paths.COMMON, paths.router(1), dirs_exist_ok=True)
    run_router(params, 1)
    assert not found_in(paths.answers(1), params).points
    chosen = read_json(paths.report(1) / "chosen.json")
    assert chosen.keys() == {*STYLES, "llm"} - {"citer_s", "lookup", "router", "audited"}


def test_rivals_of_other_questions_are_refused_before_a_model_is_loaded(reported, monkeypatch):
    monkeypatch.setattr("citer.stages.asked.open_pair", None)
    write_problems(paths.referenced("test"), [replace(MC, split="test")], {})
    with pytest.raises(InputError, match=r"rivals/outcomes\.parquet: its problems is"):
        evaluate.run(reported, 1)


@pytest.mark.parametrize("split", ["preference", "test"])
@pytest.mark.parametrize("stage", ["rivals", "evaluate"])
def test_a_question_without_room_for_its_answer_is_refused_before_a_model_is_loaded(
    params, monkeypatch, stage, split
):
    rows = [replace(MATH, problem_id="huge", question="Why? " * 400, split=split)]
    write_problems(paths.referenced(split), rows, {})
    monkeypatch.setattr("citer.stages.asked.open_pair", None)
    message = rf"^data/references/{split}\.parquet: problem huge: \d+ tokens and up to 12 more "
    expected = r"\(decode\.max_new_tokens\), expected at most"
    with pytest.raises(InputError, match=message + expected):
        rivals.run(params) if stage == "rivals" else evaluate.run(params, 1)


def test_a_router_of_another_pair_is_refused_before_a_model_is_loaded(params, monkeypatch):
    monkeypatch.setattr("citer.stages.asked.open_pair", None)
    with pytest.raises(InputError, match=r"routers/1: its dtype is float32, here it is float64"):
        evaluate.run(with_section(params, "pair", dtype="float64"), 1)
