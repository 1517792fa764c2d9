"""The headline numbers, and what the deployed rule is worth as people read it."""

from dataclasses import replace

from citer.evaluation.choice import Chosen
from citer.evaluation.measure import ACCURACY, FIDELITY, Measure
from citer.report.standings import standings
from citer.report.worth import PART, headline, worth_summary, worth_table
from tests.reported import CHOSEN, chosen_rule, points

COST, AHEAD = "cost_at_equal_accuracy", "accuracy_at_equal_cost"
SHOWN = {"router_2": chosen_rule("score 0.7", deployed=True)}


def beside(
    other: str, kind: str, *cost: float | None, task: str = "all", ahead: float | None = 0.25
) -> dict:
    """Make a row: the cost with its interval, and an accuracy without width."""
    ends = ("", "_low", "_high")
    numbers = dict(zip((f"{COST}{end}" for end in ends), cost, strict=True))
    others = {f"{AHEAD}{end}": ahead for end in ends}
    return {"task": task, "other": other, "kind": kind} | numbers | others


FOUND = [
    beside("certainty alone", PART, 0.8, 0.7, 0.9),
    beside("far", "rival", -0.5, -0.6, -0.4),
    beside("near", "exact", 0.125, 0.1, 0.15, ahead=-0.0625),
    beside("never", "rival", None, None, None),
    beside("router", "router", 0.6, 0.5, 0.7),
    beside("oracle", "bound", 0.9, 0.8, 1.0),
    beside("never", "rival", 0.7, None, 0.7, task="math", ahead=None),
]


def numbers(
    found: list[dict] = FOUND, chosen: Chosen = SHOWN, measure: Measure = ACCURACY
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
        "cost_against_best_rival": 0.125,
        "accuracy_against_best_rival": -0.0625,
    }


def test_a_headline_number_that_does_not_exist_is_left_out():
    nothing = [beside("never", "rival", None, None, None)]
    assert numbers().keys() - numbers(nothing).keys() == {
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
    text = worth_summary(FOUND, FIDELITY)
    assert "the\nfidelity of the deployed rule" in text
    assert "accuracy" not in text


def test_the_table_has_each_of_the_others_of_a_task():
    cells, of_math = (
        [
            [cell.strip() for cell in line.split("|")[1:-1]]
            for line in worth_table(FOUND, task).splitlines()
        ]
        for task in ("all", "math")
    )
    assert cells[0] == ["deployed rule beside", "", "cost %", "points"]
    ahead = "+25.0 [+25.0, +25.0]"
    assert cells[2:] == [
        ["certainty alone", "one part changed", "+80.0 [+70.0, +90.0]", ahead],
        ["far", "rival", "-50.0 [-60.0, -40.0]", ahead],
        ["near", "exact", "+12.5 [+10.0, +15.0]", "-6.2 [-6.2, -6.2]"],
        ["never", "rival", "not reached", ahead],
        ["router", "router", "+60.0 [+50.0, +70.0]", ahead],
        ["oracle", "bound", "+90.0 [+80.0, +100.0]", ahead],
    ]
    assert of_math[2:] == [["never", "rival", "+70.0 [not reached, +70.0]", "not reached"]]
    assert worth_summary(FOUND, ACCURACY).startswith(worth_table(FOUND, "all"))
