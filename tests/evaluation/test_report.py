"""Rows, metrics and table of the methods that the points name."""

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


def test_routers_are_read_at_their_rule_and_rivals_at_the_last_routers_llm_fraction():
    rows = standings(points(), CHOSEN)
    assert [row["method"] for row in rows] == [
        "slm", "llm", "router_1", "audited_1", "router_2", "speculative", "random", "entropy"
    ]  # fmt: skip
    accuracies = [row["accuracy"] for row in rows]
    # at .3: random a third of the way from .2 to .5; entropy .3 / .5 of the way from the SLM
    rivals = [0.5 + 0.1 / 3, 0.4 + 0.4 * 0.6]
    assert accuracies == pytest.approx([0.4, 0.9, 0.8, 0.82, 0.86, 0.9, *rivals])
    fractions = [row["llm_fraction"] for row in rows[2:]]
    assert fractions == pytest.approx([0.4, 0.05, 0.3, 0.3, 0.3, 0.3])
    assert "accuracy_low" not in rows[-1]


def test_a_rule_is_known_by_its_visits_and_its_audits():
    for text, accuracy in (("risk 0.5 audit 0.1", 0.82), ("risk 0.5 audit 1", 0.9)):
        chosen = CHOSEN | {"audited_1": chosen_rule(text)}
        assert by_method(standings(points(), chosen))["audited_1"]["accuracy"] == accuracy


def test_speculative_decoding_is_read_at_its_cheapest_gamma():
    row = by_method(standings(points(), CHOSEN))["speculative"]
    assert (row["threshold"], row["cost_b1"]) == (4, 0.65)
    # A mix: it answers some questions, the SLM alone answers the others.
    share = (0.95 * 0.9 - 0.4) / (0.9 - 0.4)
    assert row["cost_for_95_percent"] == pytest.approx(0.1 + share * 0.55)
    assert AT_SHARE not in row


def test_speculative_decoding_is_left_out_if_it_was_not_run():
    others = [p for p in points() if p["method"] != "speculative"]
    assert "speculative" not in by_method(standings(others, CHOSEN))


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
def test_an_uncertified_router_is_read_at_the_llms_point(tried):
    drawn = points(*tried, "random")
    rows = by_method(standings(drawn, {"router_1": NOTHING_CERTIFIED}))
    assert rows["router_1"]["accuracy"] == rows["llm"]["accuracy"]
    assert rows["random"]["llm_fraction"] == 1


def test_uncertified_audits_do_not_move_the_rivals():
    """Rivals are read at the router's LLM fraction, whether audits are certified or not."""
    chosen = {"router_1": chosen_rule("score 0.8"), "audited_1": NOTHING_CERTIFIED}
    some = points("router_1", "audited_1", "random")
    rows = by_method(standings(some, chosen))
    assert rows["audited_1"]["accuracy"] == 0.9
    assert rows["random"]["llm_fraction"] == rows["router_1"]["llm_fraction"] == 0.4
    assert "LLM fraction of router 1" in summary(standings(some, chosen), chosen, [1], Conditions())


def test_if_every_router_audits_rivals_are_read_at_the_last_one():
    chosen = {"audited_1": chosen_rule("risk 0.5 audit 0.1")}
    rows = standings(points("audited_1", "random"), chosen)
    assert by_method(rows)["random"]["llm_fraction"] == 0.05
    assert "LLM fraction of audited 1" in summary(rows, chosen, [1], Conditions())


def test_the_interval_of_an_accuracy_need_not_be_symmetric():
    whole = [p | {"accuracy_low": 0.7612, "accuracy_high": 1.0} for p in points()]
    assert "| 90.0% [76.1, 100.0] |" in summary(standings(whole, CHOSEN), CHOSEN, [1], Conditions())


@pytest.mark.parametrize(
    ("kind", "accuracy"),
    [
        (Kind.ALONE, 0.7),  # its only rule
        (Kind.ROUTER, 0.7),  # the chosen rule
        (Kind.AUDITED, 0.7),
        (Kind.RIVAL, 0.65),  # halfway, at the .3 of router 2
        (Kind.EXACT, 0.6),  # the cheapest rule
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
    if kind is not Kind.ROUTER:  # rivals are read at the last router's LLM fraction
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
    assert "| router 2 " in table[6]
    assert "86.0% [81.0, 91.0]" in table[6]
    assert "1.100 (0.800)" in table[6]
    audited = [cell.strip() for cell in table[5].split("|")]
    assert audited[2:6] == ["audited 1", "82.0% [77.0, 87.0]", "0.050", "0.025"]
    assert "at the LLM fraction of router 2, read linearly between points: random, entropy" in text
    assert "at the cheapest rule: speculative" in text
    assert "at the rule that validation chose: router 1, audited 1, router 2" in text
    assert "audited 1: `risk 0.5 audit 0.1` keeps" in text


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


def test_an_uncertified_rule_gets_a_plain_sentence():
    assert "no rule cheaper than the LLM" in promise("router_1", NOTHING_CERTIFIED, ACCURACY)
