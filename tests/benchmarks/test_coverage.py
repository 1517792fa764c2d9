"""The simulation of how rules are tested, on profiles whose result is known."""

import numpy as np
import pytest

from benchmarks.coverage import CHOOSERS, DELTA, EPSILON, Counts, Profile, by_line, simulate

COST_LT = np.array([[0.5, 0.3], [0.6, 0.4]])
N = 600


@pytest.mark.parametrize("chooser", CHOOSERS.values(), ids=CHOOSERS.keys())
def test_every_way_certifies_rules_that_lose_nothing_and_none_that_lose_a_fifth(chooser):
    profile = Profile(np.array([[0.0, 0.2], [0.0, 0.0]]), COST_LT)
    held, judged = (Counts(np.array([[0, n // 5], [0, 0]]), n) for n in (120, N))
    assert chooser(profile, held, judged).tolist() == [[True, False], [True, True]]


@pytest.mark.parametrize("chooser", CHOOSERS.values(), ids=CHOOSERS.keys())
def test_no_way_breaks_its_promise_more_often_than_delta(chooser):
    profile = Profile(np.full((2, 2), 1.02 * EPSILON), COST_LT)
    _, low, _ = simulate(profile, chooser, 60, 300, draws=400)["any_broken"]
    assert low <= DELTA


def test_a_test_at_the_whole_delta_for_each_rule_would_break_it():
    """The simulation can tell."""

    def careless(profile: Profile, held: Counts, judged: Counts) -> np.ndarray:
        return judged.lost_LT <= 0.05 * judged.n

    profile = Profile(np.full((2, 2), 1.02 * EPSILON), COST_LT)
    result = simulate(profile, careless, 60, 300, draws=400)
    assert result["any_broken"][1] > DELTA
    assert result["broken"] == result["any_broken"]


def test_risks_are_as_declared_and_losses_correlate():
    drawn = Profile(np.array([[0.2, 0.4]]), COST_LT[:1]).draw(20_000, np.random.default_rng(0))
    assert drawn.lost_LT[0] / drawn.n == pytest.approx([0.2, 0.4], abs=0.015)


def test_a_line_ends_at_its_first_failure():
    profile = Profile(np.zeros((2, 2)), COST_LT)
    judged = Counts(np.array([[N, 0], [0, N]]), N)
    assert by_line(profile, judged, judged).tolist() == [[False, False], [True, False]]
