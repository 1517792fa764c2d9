"""Frontiers of resampled answers, computed by hand, and the coverage of their intervals."""

import numpy as np
import pytest

from citer.evaluation import metrics
from citer.evaluation.metrics import RESAMPLES, Frontier, interval, resamples

# Five rules in no order. Sample 0: the rule of cost 4 is beaten by that of cost 3, and that of
# cost 2 by a mix of its neighbours. In sample 1 all are equally accurate.
COST_RT = np.array([[3.0, 1.0, 4.0, 2.0, 7.0], [3.0, 1.0, 4.0, 2.0, 7.0]])
RIGHT_RT = np.array([[8.0, 0.0, 6.0, 1.0, 10.0], [5.0, 5.0, 5.0, 5.0, 5.0]])


@pytest.fixture
def frontier() -> Frontier:
    return Frontier.of(COST_RT, RIGHT_RT)


def test_a_frontier_leaves_out_rules_that_a_mix_of_two_others_beats(frontier: Frontier):
    assert frontier.cost_RT.tolist() == [[1, 3, 7, 7, 7], [1] * 5]
    assert frontier.right_RT.tolist() == [[0, 8, 10, 10, 10], [5] * 5]


@pytest.mark.parametrize(
    ("right", "cost"), [(0, 1), (0.5, 1.125), (4.5, 2.125), (8, 3), (9, 5), (10.5, np.inf)]
)
def test_the_cost_of_an_accuracy_lies_between_two_points(
    frontier: Frontier, right: float, cost: float
):
    whole = 1 if right <= 5 else np.inf
    assert frontier.cost_for(np.array([right, right])).tolist() == [cost, whole]


@pytest.mark.parametrize(
    ("cost", "right"), [(0.5, -np.inf), (1, 0), (2.5, 6), (3.5, 8.25), (5, 9), (9, 10)]
)
def test_the_accuracy_for_a_cost_lies_between_two_points(
    frontier: Frontier, cost: float, right: float
):
    whole = 5 if cost >= 1 else -np.inf
    found_R = frontier.right_for(np.array([cost, cost]))
    assert found_R.tolist() == [right, whole]


def test_resamples_draw_as_many_questions_of_the_task_each_time():
    in_task_Q = np.array([True, False, True, True])
    drawn_RQ = resamples(in_task_Q)
    assert drawn_RQ[0].tolist() == [1, 0, 1, 1]
    assert set(drawn_RQ.sum(1)) == {3}
    assert not drawn_RQ[:, 1].any()
    assert drawn_RQ[1:].mean(0) == pytest.approx([1, 0, 1, 1], abs=0.1)


def test_the_intervals_of_both_numbers_cover_the_truth_as_often_as_they_say(monkeypatch):
    """200 studies of 400 questions; the answers of all rules to a question are correlated."""
    monkeypatch.setattr(metrics, "RESAMPLES", 300)
    rng = np.random.default_rng(1)
    share_V = np.array([0.4, 0.62, 0.8, 0.9, 0.95, 0.85])  # SLM, three rules, LLM; our rule
    bytes_V = np.array([1.0, 2.0, 3.5, 5.0, 9.0, 3.0])
    covered = np.array([_covered(rng, share_V, bytes_V) for _ in range(200)]).mean(0)
    assert ((covered > 0.9) & (covered < 0.985)).all(), covered


def _covered(rng: np.random.Generator, share_V: np.ndarray, bytes_V: np.ndarray) -> list[bool]:
    hard_Q1 = rng.uniform(size=(400, 1))
    own_QV = rng.uniform(size=(400, len(share_V)))
    ease_QV = np.where(rng.uniform(size=own_QV.shape) < 0.7, hard_Q1, own_QV)
    right_QV = (ease_QV < share_V).astype(float)
    moved_QV = bytes_V * rng.gamma(4, 1 / 4, size=(400, 1)) * rng.gamma(9, 1 / 9, own_QV.shape)
    drawn_RQ = resamples(np.full(400, True)) / 400
    truths = _both_numbers(bytes_V[None, :], share_V[None, :])
    values = _both_numbers(drawn_RQ @ moved_QV, drawn_RQ @ right_QV)
    bounds = [interval(value_R)[1:] for value_R in values]
    return [low <= truth <= high for (low, high), [truth] in zip(bounds, truths, strict=True)]


def _both_numbers(moved_RV: np.ndarray, right_RV: np.ndarray) -> list[np.ndarray]:
    """Compute cost at equal accuracy, and accuracy at equal cost."""
    rival = Frontier.of(moved_RV[:, :5], right_RV[:, :5])
    return [
        moved_RV[:, 5] / rival.cost_for(right_RV[:, 5]) - 1,
        right_RV[:, 5] - rival.right_for(moved_RV[:, 5]),
    ]


@pytest.mark.parametrize(("without", "known"), [(0, True), (24, True), (25, False), (26, False)])
def test_an_end_beside_a_resample_without_a_value_is_no_number(without, known):
    """The lower end lies between the 25th and the 26th least of 1,000 values."""
    value_R = np.array([0.1] + without * [-np.inf] + (RESAMPLES - without) * [0.1])
    value, low, high = interval(value_R)
    assert (value, high) == (0.1, 0.1)
    assert np.isfinite(low) == known
