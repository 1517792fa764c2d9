"""The stage `report`, from files to files."""

import json
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest
from pyarrow import csv

from citer.config.params import Iteration
from citer.errors import InputError
from citer.evaluation.measure import Conditions
from citer.evaluation.methods import label, numbered
from citer.evaluation.points import Findings, outcome_table
from citer.stages import choose, paths, report
from citer.storage.tables import digest, read_json, write_json
from tests.reported import NOTHING_CERTIFIED, chosen_rule
from tests.stages.conftest import run_all

OURS = ("router", "audited", "policy", "exact")
SHARED = ("speculative", "entropy", "bild", "co_llm", "random")
RULE = asdict(NOTHING_CERTIFIED)


@pytest.mark.slow
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
                    "deployed.json",
                    "frontier.png",
                    "metrics.json",
                    "outcomes.parquet",
                    "path.json",
                    "points.parquet",
                    "threshold.json",
                )
            ),
            "summary/frontier.png",
            "summary/frontier.svg",
            "summary/headline.json",
            "summary/metrics.json",
            "summary/points.csv",
            "summary/table.md",
            "summary/worth.json",
        )
    }
    assert files["data/summary/table.md"].decode() in capsys.readouterr().out


def test_the_summary_holds_every_method_of_every_iteration(reported):
    metrics = json.loads((paths.SUMMARY / "metrics.json").read_text())
    routers = {f"{name}_{k}" for name in OURS for k in (1, 2)}
    assert set(metrics) == {"slm", "llm", *routers, *SHARED, "train"}
    assert metrics["train"] == {name: {"rows": 7} for name in ("agree", "1", "2")}
    assert metrics["slm"]["llm_fraction"] == 0 < metrics["llm"]["llm_fraction"] == 1
    points = csv.read_csv(paths.SUMMARY / "points.csv").to_pylist()
    tried = Counter(p["method"] for p in points if (p["split"], p["task"]) == ("test", "all"))
    assert {p["split"] for p in points} == {"test"}
    # Two τ; two ρ, and audits of two kinds; two γ.
    assert {name: tried[name] for name in ("router_1", "router_2", "audited_1")} == {
        "router_1": 2,
        "router_2": 2,
        "audited_1": 4,
    }


def test_the_deployed_rule_stands_beside_every_method_and_its_parts(reported):
    """Without a certified rule the LLM answers alone, which has no parts."""
    content = read_json(paths.SUMMARY / "worth.json")
    names = {row["other"] for row in content["others"] if row["task"] == "all"}
    assert {row["task"] for row in content["others"]} == {"all", "math", "mc"}
    deployed = read_json(paths.report(2) / paths.DEPLOYED)["method"]
    listed = [*(f"{name}_2" for name in OURS), *SHARED]
    assert names == {label(name) for name in listed if name != numbered(deployed, "2")}


def test_the_deployed_rule_of_a_summary_is_the_last_routers():
    """Bounds stand beside it. Each report has one of its own."""
    nothing, other = Findings(outcome_table([]), []), chosen_rule("score 0.9")
    reports = [
        report._Report(nothing, {best: chosen_rule("score 0.8", deployed=True), "co_llm": other})
        for best in ("router_1", "exact_2")
    ]
    chosen = report._Found(Conditions(), nothing, reports).chosen
    assert [name for name, rule in chosen.items() if rule.deployed] == ["exact_2"]


def test_swapped_reports_are_refused(reported):
    for name in ("points", "outcomes"):
        router, rival = (home / f"{name}.parquet" for home in (paths.report(1), paths.RIVALS))
        router.rename("aside")
        rival.rename(router)
        Path("aside").rename(rival)
        for read in (lambda: choose.run(reported, 1), lambda: report.run(reported)):
            with pytest.raises(InputError, match="its methods is router, here it is rivals"):
                read()


def test_a_summary_covers_the_iterations_of_params_yaml(reported):
    report.run(reported.model_copy(update={"iterations": {"1": Iteration(previous="0")}}))
    metrics = read_json(paths.SUMMARY / "metrics.json")
    assert set(metrics) == {"slm", "llm", *(f"{name}_1" for name in OURS), *SHARED, "train"}


def test_a_summary_without_an_evaluation_is_refused(reported):
    (paths.report(1) / "outcomes.parquet").unlink()
    with pytest.raises(
        InputError, match=r"data/reports/1/outcomes\.parquet: no such file; `dvc repro`"
    ):
        report.run(reported)


@pytest.mark.parametrize("text", ['{"epochs": NaN}', '{"\\ud83d": 1}', '{"epochs": []}', "[]"])
def test_training_metrics_that_are_not_numbers_are_refused(reported, text):
    before = digest(paths.SUMMARY)
    (paths.router(1) / "metrics.json").write_text(text)
    with pytest.raises(InputError, match=r"^data/routers/1/metrics\.json: "):
        report.run(reported)
    assert digest(paths.SUMMARY) == before


@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [
        ({"router": {}}, "router.rule: missing"),
        ([], "top level: []: expected a valid dictionary"),
    ],
)
def test_an_invalid_file_of_chosen_rules_is_refused(reported, chosen, complaint):
    write_json(paths.report(1) / "chosen.json", chosen)
    with pytest.raises(InputError, match=rf"^data/reports/1/chosen\.json: {re.escape(complaint)}"):
        report.run(reported)
