"""The spread of results over the seeds of training, computed by hand."""

from dataclasses import asdict
from math import sqrt

import pytest

from citer.evaluation.measure import ACCURACY, FIDELITY
from citer.report.spread import Seeded, Spread, seeded, spread_table, spreads
from citer.report.standings import standings
from tests.reported import CHOSEN, points


def found(task: str, *accuracies: float, c99: tuple[float | None, ...]) -> list[Seeded]:
    return [
        Seeded(17 + n, task, "router_1", "score 0.8", {"accuracy": accuracy, "c99": cost})
        for n, (accuracy, cost) in enumerate(zip(accuracies, c99, strict=True))
    ]


def test_mean_deviation_and_range_are_by_task():
    """.9, .8, .7, .8: deviations .1, 0, -.1, 0 from the mean; a sample's variance is .02 / 3."""
    rows = found("all", 0.9, 0.8, 0.7, 0.8, c99=(0.5,) * 4) + found("math", 0.4, c99=(0.3,))
    both = {each.task: each.statistics["accuracy"] for each in spreads(rows)}
    assert asdict(both["all"]) == pytest.approx(
        {"seeds": 4, "mean": 0.8, "deviation": sqrt(0.02 / 3), "least": 0.7, "largest": 0.9}
    )
    assert (both["math"].mean, both["math"].deviation) == (0.4, 0)


def test_a_cost_that_some_seeds_do_not_reach_counts_the_others():
    some, none = (
        next(spreads(found("all", 0.9, 0.8, 0.7, c99=costs))).statistics["c99"]
        for costs in ((None, 0.25, 0.75), (None, None, None))
    )
    assert (some.seeds, some.mean, some.least, some.largest) == (2, 0.5, 0.25, 0.75)
    assert none is None


def test_only_chosen_rules_are_taken_from_the_standings():
    rows = [*seeded(18, standings(points(), CHOSEN), CHOSEN, FIDELITY)]
    assert [row.method for row in rows] == list(CHOSEN)
    assert rows[0].rule == "score 0.8"
    assert rows[0].numbers["fidelity"] == 0.8
    assert "accuracy" not in rows[0].numbers


def test_the_table_has_a_row_for_each_method_and_says_what_is_not_reached():
    numbers = {
        "accuracy": (0.9, 0.8),
        "llm_fraction": (0.1, 0.2),
        "cost_b1": (0.25, 0.25),
        "cost_for_95_percent": (None, 0.5),
        "cost_for_99_percent": (None, None),
    }
    rows = [
        Seeded(seed, "all", "router_1", "score 0.8", {k: v[n] for k, v in numbers.items()})
        for n, seed in enumerate((17, 18))
    ]
    lines = spread_table(rows, ACCURACY).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == [
        "all",
        "router 1",
        "85.0 ± 7.1 [80.0, 90.0]",
        "0.150 ± 0.071 [0.100, 0.200]",
        "0.250 ± 0.000 [0.250, 0.250]",
        "0.500 ± 0.000 [0.500, 0.500] (1 of 2 seeds)",
        "not reached",
    ]
    assert "Each of 2 seeds" in "\n".join(lines)


def test_a_spread_is_plain_data_for_json():
    [row] = spreads(found("all", 0.9, 0.7, c99=(None, 0.5)))
    assert isinstance(row, Spread)
    assert asdict(row)["statistics"]["c99"]["mean"] == 0.5
