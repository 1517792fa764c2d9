"""Rows, metrics and table of the methods that the points name."""

from dataclasses import replace

import pytest

from citer.evaluation.measure import ACCURACY, Conditions
from citer.evaluation.methods import Kind
from citer.report.standings import (
    AT_SHARE,
    efficient,
    frontier,
    metrics,
    promise,
    standings,
    summary,
)
from tests.reported import (
    CHOSEN,
    NOTHING_CERTIFIED,
    chosen_rule,
    chosen_with_made_up,
    made_up,
    points,
)


def by_method(numbers: list[dict]) -> dict[str, dict]:
    return {row["method"]: row for row in numbers}


def test_a_frontier_goes_from_the_slm_to_the_llm():
    line = frontier(points(), "router_1")
    assert [p["llm_fraction"] for p in line] == [0.0, 0.1, 0.4, 1.0]


def test_a_point_is_efficient_if_no_cheaper_point_is_as_accurate():
    """Both models alone belong to every method; among equals the cheapest stays."""
    line = [(p["cost_b1"], p["accuracy"]) for p in efficient(points(), "audited_1")]
    assert line == [(0.1, 0.4), (0.35, 0.82), (0.45, 0.9)]
    line = [p["cost_b1"] for p in efficient(points(), "speculative")]
    assert line == [0.1, 0.65]


def test_methods_are_read_at_their_chosen_rule_and_bounds_near_the_deployed_one():
    """Router 2 is the cheapest on validation. Its LLM fraction is .3, between .2 and .5."""
    rows = standings(points(), CHOSEN)
    assert [row["method"] for row in rows] == [
        "slm", "llm", "router_1", "router_2", "audited_1", "speculative", "entropy", "random"
    ]  # fmt: skip
    accuracies = [row["accuracy"] for row in rows]
    assert accuracies == pytest.approx([0.4, 0.9, 0.8, 0.86, 0.82, 0.9, 0.8, 0.5])
    fractions = [row["llm_fraction"] for row in rows[2:]]
    assert fractions == pytest.approx([0.4, 0.3, 0.05, 0.3, 0.5, 0.2])
    kinds = [row["kind"] for row in rows[2:]]
    assert kinds == ["router", "router", "audited", "exact", "rival", "bound"]


def test_a_rule_is_known_by_its_visits_and_its_audits():
    for text, accuracy in (("risk 0.5 audit 0.1", 0.82), ("risk 0.5 audit 1", 0.9)):
        chosen = CHOSEN | {"audited_1": chosen_rule(text)}
        assert by_method(standings(points(), chosen))["audited_1"]["accuracy"] == accuracy


def test_a_method_is_read_at_the_rule_that_validation_chose_though_another_is_cheaper_on_test():
    chosen = CHOSEN | {"speculative": chosen_rule("every 2 audit 1", 0.65)}
    row = by_method(standings(points(), chosen))["speculative"]
    assert (row["threshold"], row["cost_b1"]) == (2, 0.7)
    # A mix of the cheapest γ and the SLM alone: each answers some questions.
    share = (0.95 * 0.9 - 0.4) / (0.9 - 0.4)
    assert row["cost_for_95_percent"] == pytest.approx(0.1 + share * 0.55)


def test_a_method_that_was_not_run_is_left_out():
    others = [p for p in points() if p["method"] != "speculative"]
    chosen = {name: each for name, each in CHOSEN.items() if name != "speculative"}
    assert by_method(standings(others, chosen)).keys() == by_method(others).keys()


def test_the_fraction_for_a_share_of_the_llms_accuracy_is_read_off_each_frontier():
    rows = by_method(standings(points(), CHOSEN))
    target = 0.95 * 0.9
    assert rows["router_1"][AT_SHARE] == pytest.approx(0.4 + 0.6 * (target - 0.8) / 0.1)
    assert rows["router_2"][AT_SHARE] == pytest.approx(0.3 * (target - 0.4) / 0.46)


def test_the_cost_for_a_share_of_the_llms_accuracy_is_read_off_the_efficient_points():
    rows = by_method(standings(points(), CHOSEN))
    c95, c99 = 0.95 * 0.9, 0.99 * 0.9
    by_hand = {
        "router_1": (0.5 + 0.5 * (c95 - 0.8) / 0.1, 0.5 + 0.5 * (c99 - 0.8) / 0.1),
        "router_2": (0.1 + 0.3 * (c95 - 0.4) / 0.46, 0.4 + 0.6 * (c99 - 0.86) / 0.04),
        "audited_1": (0.35 + 0.1 * (c95 - 0.82) / 0.08, 0.35 + 0.1 * (c99 - 0.82) / 0.08),
        "entropy": (0.6 + 0.4 * (c95 - 0.8) / 0.1, 0.6 + 0.4 * (c99 - 0.8) / 0.1),
    }
    for method, costs in by_hand.items():
        row = rows[method]
        assert (row["cost_for_95_percent"], row["cost_for_99_percent"]) == pytest.approx(costs)


@pytest.mark.parametrize("tried", [("router_1",), ()], ids=["tried", "no rule to try"])
def test_if_nothing_is_certified_the_llm_is_deployed_and_bounds_are_read_near_it(tried):
    drawn = points(*tried, "random")
    chosen = {"router_1" if tried else "llm": NOTHING_CERTIFIED}
    rows = by_method(standings(drawn, chosen))
    assert list(rows) == ["slm", "llm", *tried, "random"]
    for name in tried:
        assert rows[name]["accuracy"] == rows["llm"]["accuracy"]
    assert rows["random"]["llm_fraction"] == 0.5
    assert "the LLM answers alone" in summary([*rows.values()], chosen, [1], Conditions())


def test_rules_that_are_not_deployed_do_not_move_the_bounds():
    chosen = {"router_1": chosen_rule("score 0.8", deployed=True), "audited_1": NOTHING_CERTIFIED}
    rows = by_method(standings(points("router_1", "audited_1", "random"), chosen))
    assert rows["audited_1"]["accuracy"] == 0.9
    assert rows["random"]["llm_fraction"] == 0.5  # nearer to the .4 of router 1 than .2


def test_the_interval_of_an_accuracy_need_not_be_symmetric():
    whole = [p | {"accuracy_low": 0.7612, "accuracy_high": 1.0} for p in points()]
    assert "| 90.0% [76.1, 100.0] |" in summary(standings(whole, CHOSEN), CHOSEN, [1], Conditions())


@pytest.mark.parametrize(
    ("kind", "accuracy"),
    [
        (Kind.ALONE, 0.7),  # its only rule
        (Kind.ROUTER, 0.7),  # the chosen rule
        (Kind.AUDITED, 0.7),
        (Kind.POLICY, 0.7),
        (Kind.RIVAL, 0.7),
        (Kind.EXACT, 0.7),
        (Kind.BOUND, 0.6),  # the rule of .2, as near to the .3 of router 2 as that of .4
    ],
)
def test_a_method_of_any_kind_that_has_points_is_in_table_and_metrics(kind, accuracy):
    both = [*points(), *points(task="math"), *made_up(kind), *made_up(kind, "math")]
    chosen = chosen_with_made_up(kind)
    rows = standings(both, chosen)
    numbers = metrics(rows, chosen, ACCURACY)["made_up"]
    assert numbers["accuracy"] == numbers["math"]["accuracy"] == pytest.approx(accuracy)
    assert summary(rows, chosen, [1], Conditions()).count("| made up ") == 2
    others = [row for row in rows if row["method"] != "made_up" and row["task"] == "all"]
    assert others == standings(points(), CHOSEN)


def test_metrics_are_by_method_and_by_task_below_it():
    both = [*points(), *points(task="math")]
    numbers = metrics(standings(both, CHOSEN), CHOSEN, ACCURACY)
    assert numbers["router_2"]["accuracy"] == 0.86
    assert numbers["router_2"]["math"]["cost_b1"] == pytest.approx(0.4)
    assert (numbers["router_2"]["at"], numbers["router_2"]["audit"]) == (0.7, 0)
    assert (numbers["audited_1"]["at"], numbers["audited_1"]["audit"]) == (0.5, 0.1)
    assert (numbers["audited_1"]["agreement"], numbers["audited_1"]["rejected_share"]) == (
        0.75,
        0.125,
    )
    assert numbers["router_2"]["discordant_bound"] == 0.033
    costs = {"cost_for_95_percent", "cost_for_99_percent"}
    assert set(numbers["router_2"]["math"]) == {"accuracy", "llm_fraction", "cost_b1"} | costs
    assert set(numbers["slm"]["math"]) == {"accuracy", "llm_fraction", "cost_b1"}
    assert numbers["slm"]["bytes_per_answer_b1"] == 7.0
    assert not {"threshold", "visit", "accuracy_low", "bytes_per_answer_b8"} & set(numbers["slm"])


def test_the_summary_is_a_markdown_table_with_a_row_for_each_method():
    text = summary(standings(points(), CHOSEN), CHOSEN, [1, 8], Conditions())
    table = text.splitlines()[: 2 + 8]
    assert all(line.startswith("|") for line in table)
    assert len({line.count("|") for line in table}) == 1
    assert "| router 2 " in table[5]
    assert "86.0% [81.0, 91.0]" in table[5]
    assert "1.100 (0.800)" in table[5]
    audited = [cell.strip() for cell in table[6].split("|")]
    assert audited[2:6] == ["audited 1", "82.0% [77.0, 87.0]", "0.050", "0.025"]
    places = [line for line in text.splitlines() if line.startswith("Shown ")]
    ours, bounds = (place.partition(": ")[2] for place in places)
    assert ours == "router 1, router 2, audited 1, speculative, entropy."
    assert bounds == "random."
    assert "at the tried rule nearest to the cheapest chosen one in LLM fraction" in places[1]
    assert "audited 1: `risk 0.5 audit 0.1` keeps" in text


def test_where_vllm_serves_the_costs_in_lockstep_are_in_the_table():
    rows = standings([p | {"cost_b8_lockstep": 0.4321} for p in points()], CHOSEN)
    text = summary(rows, CHOSEN, [1, 8], Conditions(ACCURACY))
    assert text.count(", 0.432)") == len(rows)
    assert "The last in brackets: in lockstep, as vLLM drafts." in text
    assert "lockstep" not in summary(standings(points(), CHOSEN), CHOSEN, [1], Conditions(ACCURACY))


def test_a_promise_names_its_numbers():
    sentence = promise("router_2", chosen_rule("score 0.7"), ACCURACY)
    assert sentence.startswith("router 2: `score 0.7` keeps P(routed wrong | LLM right) <= 0.05 at")
    assert (
        "confidence 0.9 (on validation the LLM answers 200 questions right, and the routed answer "
        in sentence
    )
    assert "`risk 0.1235 audit 0.1`" in promise(
        "audited_2", chosen_rule("risk 0.12345 audit 0.1"), ACCURACY
    )


def test_an_exact_rule_gets_no_bound_and_near_ties_are_named():
    rule = chosen_rule("risk 0.6 audit 1")
    ties = promise("exact", rule, ACCURACY)
    assert ties.startswith("exact: `risk 0.6 audit 1` keeps P(routed wrong | LLM right) <= 0.05: ")
    assert ties.endswith("wrong on 3 of them, by near ties in half precision).")
    assert promise("exact", replace(rule, discordant=0), ACCURACY).endswith("wrong on 0 of them).")


def test_an_uncertified_rule_gets_a_plain_sentence():
    assert "no rule cheaper than the LLM" in promise("router_1", NOTHING_CERTIFIED, ACCURACY)
