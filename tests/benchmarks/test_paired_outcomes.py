"""Points of frontiers, computed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.costs import Outcomes

EACH_ONCE, ONLY_THE_THIRD = np.ones(4, int), np.array([0, 0, 4, 0])


@pytest.mark.parametrize(
    ("share", "once", "third"),
    [(0.25, 0.1, 0.15625), (0.75, 0.325, 0.26875), (0.875, 0.55, 0.296875)],
)
def test_the_cost_of_an_accuracy_is_interpolated_between_efficient_rules(
    outcomes: Outcomes, share: float, once: float, third: float
) -> None:
    drawn_RQ = np.array([EACH_ONCE, ONLY_THE_THIRD])
    assert outcomes.cost_for(share, drawn_RQ) == pytest.approx([once, third])


@pytest.mark.parametrize(("share", "once", "third"), [(0.25, 0.1, 0.325), (0.75, 0.325, 0.325)])
def test_the_cost_of_a_tried_rule_is_never_between_two_rules(
    outcomes: Outcomes, share: float, once: float, third: float
) -> None:
    drawn_RQ = np.array([EACH_ONCE, ONLY_THE_THIRD])
    assert outcomes.cost_of_tried(share, drawn_RQ) == pytest.approx([once, third])


def test_an_exact_rule_equals_the_llm_in_every_answer_of_a_resample(outcomes: Outcomes) -> None:
    drawn_RQ = np.array([EACH_ONCE, ONLY_THE_THIRD])
    assert outcomes.cost_of_exact(drawn_RQ) == pytest.approx([0.775, 0.325])


def test_a_target_names_what_is_needed(outcomes: Outcomes) -> None:
    drawn_RQ = np.array([EACH_ONCE, ONLY_THE_THIRD])
    needed = {
        name: outcomes.needed(name, drawn_RQ) for name in ("f75", "c75", "c75 tried", "exact")
    }
    assert needed["f75"] == pytest.approx(outcomes.fraction_for(0.75, drawn_RQ))
    assert needed["c75"] == pytest.approx([0.325, 0.26875])
    assert needed["c75 tried"] == pytest.approx([0.325, 0.325])
    assert needed["exact"] == pytest.approx([0.775, 0.325])


def test_llm_fractions_are_interpolated_linearly(outcomes: Outcomes) -> None:
    [fraction] = outcomes.fraction_for(0.5, EACH_ONCE[None, :])
    assert fraction == pytest.approx(0.125)  # halfway between 0 (1 right) and 1/4 (3 right)


def test_joined_methods_reach_an_accuracy_at_the_lower_of_their_costs(outcomes: Outcomes) -> None:
    cheaper_T = np.array([0, 3, 0, 0, 0])
    cheaper = replace(outcomes, bytes_TQ=outcomes.bytes_TQ - cheaper_T[:, None])
    joined = outcomes.joined(cheaper)
    assert len(joined.rules) == len(joined.bytes_TQ) == 2 * len(outcomes.rules) - 2
    drawn_1Q = np.ones((1, 4), int)
    for share in (0.5, 0.75, 1.0):
        both = [one.cost_for(share, drawn_1Q)[0] for one in (outcomes, cheaper)]
        assert joined.cost_for(share, drawn_1Q)[0] <= min(both)
    assert joined.costs(drawn_1Q)[0, -1] == 1
