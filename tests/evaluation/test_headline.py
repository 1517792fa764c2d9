"""The headline numbers, and the comparison with rivals as people read it."""

from dataclasses import replace

import pytest
from citer.report.against import Comparison

from citer.evaluation.choice import Chosen
from citer.evaluation.measure import ACCURACY, FIDELITY, Measure
from citer.report import against_table
from citer.report.headline import headline
from citer.report.standings import standings
from tests.reported import CHOSEN, chosen_rule, points

NAMES = ("cost_at_equal_accuracy", "accuracy_at_equal_cost", "area_difference")
SHOWN = {"router_2": chosen_rule("score 0.7")}


def against(rival: str, *cost: float | None, task: str = "all", ahead: float | None = 0.25) -> dict:
    """Make a row: the cost with its interval, and other numbers without width."""
    ends = ("", "_low", "_high")
    numbers = dict(zip((f"{NAMES[0]}{end}" for end in ends), cost, strict=True))
    others = {f"{name}{end}": ahead for name in NAMES[1:] for end in ends}
    place = {"task": task, "is_bound": False, "method": "router_2", "rival": rival}
    return place | numbers | others


def area(method: str, value: float | None, task: str = "all") -> dict:
    numbers = {f"area{end}": value for end in ("", "_low", "_high")}
    return {"task": task, "method": method} | numbers


FOUND = Comparison(
    [
        against("far", -0.5, -0.6, -0.4),
        against("near", 0.125, 0.1, 0.15, ahead=-0.0625),
        against("never", None, None, None),
        against("oracle", 0.9, 0.8, 1.0) | {"is_bound": True},
        against("never", 0.7, 0.7, 0.7, task="math"),
    ],
    [area("router_2", 0.875), area("near", 0.9), area("router_2", 0.1, "math")],
)


def numbers(
    found: Comparison = FOUND, chosen: Chosen = SHOWN, measure: Measure = ACCURACY
) -> dict[str, float]:
    rows = standings([*points(), *points(task="math")], CHOSEN)
    rows = [row | {"cost_b16_delayed": 0.5, "cost_b32_delayed": 0.6} for row in rows]
    return headline(rows, chosen, found, [8, 16, 32], measure)


def test_the_headline_has_the_deployed_rule_both_models_and_the_rival_that_is_hardest_to_beat():
    assert numbers() == {
        "accuracy": 0.86,
        "llm_accuracy": 0.9,
        "slm_accuracy": 0.4,
        "bound": 0.033,
        "llm_fraction": 0.3,
        "cost_b1": 0.4,
        "cost_b8_delayed": 0.8,
        "cost_b16_delayed": 0.5,
        "area": 0.875,
        "cost_against_best_rival": 0.125,
        "accuracy_against_best_rival": -0.0625,
    }


def test_a_headline_number_that_does_not_exist_is_left_out():
    nothing = Comparison([against("never", None, None, None)], [area("router_2", None)])
    assert numbers().keys() - numbers(nothing).keys() == {
        "area",
        "cost_against_best_rival",
        "accuracy_against_best_rival",
    }


def test_the_deployed_rule_is_the_cheapest():
    dearer = {"audited_1": replace(chosen_rule("risk 0.5 audit 0.1"), cost=0.41)}
    assert numbers(chosen=dearer | SHOWN) == numbers()


def test_under_fidelity_no_number_is_called_accuracy():
    names = numbers(measure=FIDELITY)
    assert {"fidelity", "llm_fidelity", "fidelity_against_best_rival"} <= names.keys()
    assert not [name for name in names if "accuracy" in name]
    content = FOUND.content(FIDELITY)
    assert content["against"][0]["cost_at_equal_fidelity"] == -0.5
    assert "accuracy" not in str(content)


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        ((-0.27, -0.3, -0.2), "router 2 is cheaper than Co-LLM: -27.0 [-30.0, -20.0] % of cost"),
        ((0.1, 0.05, 0.2), "router 2 is dearer than Co-LLM: +10.0 [+5.0, +20.0] % of cost"),
        ((-0.01, -0.1, 0.1), "router 2 is neither cheaper nor dearer, within the interval, than"),
        ((-0.5, None, -0.4), "router 2 is cheaper than Co-LLM: -50.0 [not reached, -40.0] %"),
        ((0.5, None, 0.6), "router 2 is neither cheaper nor dearer, within the interval, than"),
        ((None, None, None), "Co-LLM does not reach the accuracy of router 2; +25.0 [+25.0"),
    ],
)
def test_a_sentence_says_who_is_cheaper(cost, said):
    assert against_table.sentence(against("co_llm", *cost), ACCURACY).startswith(said)


def test_a_sentence_says_if_a_rival_is_never_as_cheap():
    row = against("co_llm", None, None, None, ahead=None)
    said = "Co-LLM does not reach the accuracy of router 2; Co-LLM is never as cheap."
    assert against_table.sentence(row, ACCURACY) == said


def test_the_table_has_each_method_of_its_tasks_with_signs():
    table = against_table.table(FOUND, {"all"}).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    assert cells[0] == ["task", "method", "area", "cost %, router 2", "points, router 2"]
    assert cells[2:] == [
        ["all", "router 2", "0.875 [0.875, 0.875]", "", ""],
        ["all", "near", "0.900 [0.900, 0.900]", "+12.5 [+10.0, +15.0]", "-6.2 [-6.2, -6.2]"],
    ]
    assert len(against_table.table(FOUND, {"math"}).splitlines()) == 3


def test_the_summary_has_a_sentence_about_each_rival():
    text = against_table.summary(FOUND, "router_2", ACCURACY)
    assert "router 2 is dearer than oracle (a bound): +90.0" in text
    assert [line[:16] for line in text.splitlines() if line.startswith("- ")] == [
        "- router 2 is ch",
        "- router 2 is de",
        "- never does not",
        "- router 2 is de",
    ]
