"""rivals, evaluate and report, from files to files."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from citer.config import Iteration, Params, load_params
from citer.data.problems import write_problems
from citer.errors import InputError
from citer.evaluation import study
from citer.evaluation.choice import ChosenRule
from citer.evaluation.points import read_findings
from citer.io import digest, read_as, read_json, table_metadata, write_json
from citer.models.bundle import identity, write_bundle
from citer.models.pair import load_pair
from citer.stages import evaluate, paths, report, rivals
from tests.heads import random_router
from tests.taught import make_taught_pair, problems
from tests.tiny import MATH, MC, make_tiny_pair

SHIPPED = load_params(Path(__file__).parents[2] / "params.yaml")
RIVALS = ("speculative", "random", "entropy")
GRID = {"0.0": 0.0, "0.1": 0.35, "0.4": 0.5, "1.0": 1.0}


@pytest.fixture
def params(tmp_path, monkeypatch) -> Params:
    """A project with a finetuned SLM, problems and two routers."""
    monkeypatch.chdir(tmp_path)
    slm, llm = make_tiny_pair(Path("models"))
    paths.SLM.parent.mkdir(parents=True)
    slm.rename(paths.SLM)
    pair = SHIPPED.pair.model_copy(update={"llm": llm.as_posix(), "device": "cpu"})
    limits = {
        "slots": 3,
        "max_new_tokens": 12,
        "llm_fractions": (0.0, 0.1, 0.4, 1.0),
        "risks": (0.2, 0.6),
        "audits": (0.1, 1.0),
        "gammas": (2, 4),
        "llm_floor": 0.0,  # the tiny LLM is right on nothing
    }
    section = SHIPPED.evaluate.model_copy(update=limits)
    for split in ("validation", "test"):
        asked = [
            replace(problem, problem_id=f"{split}-{problem.task}-{n}", split=split)
            for n in range(3)
            for problem in (MATH, MC)
        ]
        asked = [replace(p, question=f"{p.question} {n}") for n, p in enumerate(asked)]
        write_problems(paths.problems(split), asked, {})
    params = SHIPPED.model_copy(update={"pair": pair, "evaluate": section})
    for iteration in (1, 2):
        write_router(params, iteration, {"holdout_scores": GRID})
    return params


def write_router(params: Params, iteration: int, card: dict) -> None:
    pair = load_pair(paths.SLM, Path(params.pair.llm), params.pair)
    router = random_router(pair.slm.hidden_size, seed=iteration)
    write_bundle(paths.router(iteration), router, identity(pair) | card)
    for folder in (paths.router(iteration), paths.AGREE):
        write_json(folder / "metrics.json", {"rows": 7})


def run_all(params: Params) -> dict[str, bytes]:
    rivals.run(params)
    for iteration in (1, 2):
        evaluate.run(params, iteration)
    report.run(params)
    written = [*paths.RIVALS.parent.rglob("*"), *paths.SUMMARY.rglob("*")]
    return {path.as_posix(): path.read_bytes() for path in written if path.is_file()}


def test_rivals_say_at_once_what_the_models_are_worth(params, capsys):
    rivals.run(params)
    rows = pq.read_table(paths.RIVALS / "outcomes.parquet").to_pylist()
    cut = {
        method: [r["truncated"] for r in rows if (r["split"], r["method"]) == ("test", method)]
        for method in ("slm", "llm")
    }
    assert (sum(cut["slm"]), sum(cut["llm"]), len(cut["llm"])) == (6, 5, 6)
    expected = "SLM 0.0% right, 100.0% cut off; LLM 0.0% right, 83.3% cut off"
    assert f"rivals, on test: {expected}\n" in capsys.readouterr().out


def test_an_llm_that_is_right_on_nothing_stops_rivals_before_test_is_asked(
    params, capsys, monkeypatch
):
    """In one line, after three of its answers; nothing is written."""
    asked = []
    sweep = study.sweep
    monkeypatch.setattr(study, "sweep", lambda *args: asked.append(args[1]) or sweep(*args))
    floored = params.evaluate.model_copy(update={"llm_floor": 0.2})
    said = (
        "rivals: LLM right on 0.0% of 3 math questions of validation, expected at least 20.0%; "
        "LLM right on 0.0% of 3 mc questions of validation, expected at least 43.3% "
        "(evaluate.llm_floor)"
    )
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        rivals.run(params.model_copy(update={"evaluate": floored}))
    assert [{problem.split for problem in each} for each in asked] == [{"validation"}]
    assert not paths.RIVALS.parent.exists()
    shown = capsys.readouterr().out
    assert shown.count("question: ") == shown.count("expected: ") == 3
    assert f"question: {MATH.question} 0\n     LLM: " in shown
    assert "(cut off)\nexpected: 31\n" in shown


def test_an_llm_above_the_floor_passes_and_is_told_what_its_right_answers_can_certify(
    params, capsys
):
    asked = problems(6)
    pair = make_taught_pair(Path("taught"), asked)
    shutil.rmtree(paths.SLM)
    pair.slm.rename(paths.SLM)
    for split in ("validation", "test"):
        rows = [replace(p, problem_id=f"{split}-{p.problem_id}", split=split) for p in asked]
        write_problems(paths.problems(split), rows, {})
    limits = {"llm_floor": 0.6, "max_new_tokens": 40}
    taught = params.model_copy(
        update={
            "pair": params.pair.model_copy(update={"llm": pair.llm.as_posix()}),
            "evaluate": params.evaluate.model_copy(update=limits),
        }
    )
    rivals.run(taught)
    said = capsys.readouterr().out
    assert "validation: the LLM is right on 4 questions, which can certify no rule" in said
    assert "LLM 66.7% right" in said
    higher = taught.evaluate.model_copy(update={"llm_floor": 0.7})
    with pytest.raises(InputError, match=r"LLM right on 66\.7% of 3 math questions"):
        rivals.run(taught.model_copy(update={"evaluate": higher}))
    assert (paths.RIVALS / "points.parquet").exists()


def test_of_an_llm_that_is_right_on_nothing_no_rule_is_certified(params):
    rivals.run(params)
    trusting = params.evaluate.model_copy(update={"epsilon": 0.99})
    evaluate.run(params.model_copy(update={"evaluate": trusting}), 1)
    chosen = read_as(paths.report(1) / "chosen.json", dict[str, ChosenRule])
    assert not any(each.certified for each in chosen.values())


def test_two_runs_write_the_same_bytes_for_a_table_metrics_points_and_a_frontier(params, capsys):
    files = run_all(params)
    assert run_all(params) == files
    assert set(files) == {
        f"data/{name}"
        for name in (
            "reports/rivals/outcomes.parquet",
            "reports/rivals/points.parquet",
            *(
                f"reports/{iteration}/{file}"
                for iteration in (1, 2)
                for file in (
                    "chosen.json",
                    "frontier.png",
                    "metrics.json",
                    "outcomes.parquet",
                    "points.parquet",
                    "threshold.json",
                )
            ),
            "summary/frontier.png",
            "summary/metrics.json",
            "summary/points.csv",
            "summary/table.md",
        )
    }
    assert files["data/summary/table.md"].decode() in capsys.readouterr().out


def test_the_summary_holds_every_method_of_every_iteration(params):
    run_all(params)
    metrics = json.loads((paths.SUMMARY / "metrics.json").read_text())
    routers = {f"{name}_{k}" for name in ("router", "audited") for k in (1, 2)}
    assert set(metrics) == {"slm", "llm", *routers, *RIVALS, "train"}
    assert metrics["train"] == {name: {"rows": 7} for name in ("agree", "1", "2")}
    assert metrics["slm"]["llm_fraction"] == 0 < metrics["llm"]["llm_fraction"] == 1
    points = csv.read_csv(paths.SUMMARY / "points.csv").to_pylist()
    tried = {(p["method"], p["threshold"]) for p in points if p["method"].startswith("router")}
    assert tried == {(f"router_{k}", tau) for k in (1, 2) for tau in (0.35, 0.5)}
    audited = {
        (p["method"], p["visit"], p["threshold"], p["audit"])
        for p in points
        if p["method"].startswith("audited")
    }
    assert audited == {
        (f"audited_{k}", "risk", risk, audit)
        for k in (1, 2)
        for risk in (0.2, 0.6)
        for audit in (0.1, 1.0)
    }


def test_a_report_holds_each_question_by_each_rule_and_what_is_chosen(params):
    rivals.run(params)
    evaluate.run(params, 1)
    folder = paths.report(1)
    found = read_findings(folder, params.evaluate, table_metadata(folder / "points.parquet"))
    names = ("split", "visit", "threshold", "audit", "problem_id")
    asked = {tuple(row[name] for name in names) for row in found.outcomes.to_pylist()}
    assert len(asked) == len(found.outcomes) == 2 * (2 + 4) * 6
    chosen = read_as(folder / "chosen.json", dict[str, ChosenRule])
    assert list(chosen) == ["router", "audited"]
    deployed = read_as(folder / "threshold.json", ChosenRule)
    assert deployed == min(chosen.values(), key=lambda each: each.cost)
    assert {each.delta for each in chosen.values()} == {params.evaluate.delta_a_line}
    metrics = read_json(folder / "metrics.json")
    for name, each in chosen.items():
        assert (metrics[name]["at"], metrics[name]["audit"]) == (each.rule.at, each.rule.audit)


def test_rivals_of_other_questions_are_refused(params):
    rivals.run(params)
    write_problems(paths.problems("test"), [replace(MC, split="test")], {})
    with pytest.raises(InputError, match=r"rivals/outcomes\.parquet: its problems is"):
        evaluate.run(params, 1)


@pytest.mark.parametrize("stage", ["rivals", "evaluate"])
def test_a_question_without_room_for_its_answer_is_told_before_a_model_is_loaded(
    params, monkeypatch, stage
):
    rows = [replace(MATH, problem_id="huge", question="Why? " * 400, split="test")]
    write_problems(paths.problems("test"), rows, {})
    monkeypatch.setattr(f"citer.stages.{stage}.load_pair", None)
    told = r"^data/problems/test\.parquet: problem huge: \d+ tokens and up to 12 more "
    with pytest.raises(InputError, match=told + r"\(evaluate\.max_new_tokens\), expected at most"):
        rivals.run(params) if stage == "rivals" else evaluate.run(params, 1)


def test_a_router_without_thresholds_is_refused(params):
    write_router(params, 1, {})
    with pytest.raises(InputError, match=r"routers/1/router\.json: no `holdout_scores`"):
        evaluate.run(params, 1)


def test_reports_that_have_changed_places_are_refused(params):
    rivals.run(params)
    evaluate.run(params, 1)
    for name in ("points", "outcomes"):
        ours, theirs = (home / f"{name}.parquet" for home in (paths.report(1), paths.RIVALS))
        ours.rename("aside")
        theirs.rename(ours)
        Path("aside").rename(theirs)
        for read in (lambda: evaluate.run(params, 1), lambda: report.run(params)):
            with pytest.raises(InputError, match="its methods is router, here it is rivals"):
                read()


def test_a_summary_is_of_the_iterations_that_params_yaml_names(params):
    run_all(params)
    report.run(params.model_copy(update={"iterations": {"1": Iteration(previous="0")}}))
    metrics = read_json(paths.SUMMARY / "metrics.json")
    assert set(metrics) == {"slm", "llm", "router_1", "audited_1", *RIVALS, "train"}


def test_what_was_not_evaluated_is_not_reported(params):
    rivals.run(params)
    with pytest.raises(InputError, match=r"data/reports/1/outcomes\.parquet: no such file"):
        report.run(params)


@pytest.mark.parametrize("text", ['{"epochs": NaN}', '{"\\ud83d": 1}', '{"epochs": []}', "[]"])
def test_metrics_of_a_training_that_are_no_numbers_are_refused(params, text):
    run_all(params)
    before = digest(paths.SUMMARY)
    (paths.router(1) / "metrics.json").write_text(text)
    with pytest.raises(InputError, match=r"^data/routers/1/metrics\.json: "):
        report.run(params)
    assert digest(paths.SUMMARY) == before


def test_a_rule_that_was_not_tried_is_refused(params):
    rivals.run(params)
    evaluate.run(params, 1)
    chosen = read_json(paths.report(1) / "chosen.json")
    chosen["audited"]["rule"]["at"] = 0.123
    write_json(paths.report(1) / "chosen.json", chosen)
    with pytest.raises(InputError, match=r"chosen\.json: audited: no point by `.* 0\.123"):
        report.run(params)


@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [
        ({}, "no rule of `router`, expected one"),
        ({"router": {}}, "router.rule: missing"),
        ([], "top level: []: expected a valid dictionary"),
    ],
)
def test_a_report_of_what_is_no_choice_is_refused(params, chosen, complaint):
    rivals.run(params)
    evaluate.run(params, 1)
    write_json(paths.report(1) / "chosen.json", chosen)
    with pytest.raises(InputError, match=rf"^data/reports/1/chosen\.json: {re.escape(complaint)}"):
        report.run(params)
