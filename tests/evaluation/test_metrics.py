import numpy as np
import pytest

from citer.evaluation.metrics import fraction_for, interval, resampled_means, value_at


def test_the_bootstrap_draws_whole_questions_with_replacement():
    means_R = resampled_means([0, 0, 0, 1], resamples=4000, seed=3)
    assert set(np.unique(means_R)) <= {0, 0.25, 0.5, 0.75, 1}
    assert means_R.mean() == pytest.approx(0.25, abs=0.02)
    assert (means_R == 0).mean() == pytest.approx((3 / 4) ** 4, abs=0.03)


def test_the_bootstrap_is_that_of_questions_drawn_one_by_one():
    values = [1.0, -1.0, 0.0, 0.0, 1.0, 0.5, 0.0]
    rng = np.random.default_rng(5)
    one_by_one = np.array([rng.choice(values, len(values)).mean() for _ in range(20_000)])
    means_R = resampled_means(values, 20_000, seed=6)
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        expected = np.quantile(one_by_one, share)
        assert np.quantile(means_R, share) == pytest.approx(expected, abs=0.02)


def test_the_interval_agrees_with_the_normal_one_where_that_is_good():
    low, high = interval([1] * 300 + [0] * 100, resamples=2000, seed=0)
    half = 1.96 * (0.75 * 0.25 / 400) ** 0.5
    assert (low, high) == pytest.approx((0.75 - half, 0.75 + half), abs=0.006)


def test_a_value_between_points_is_linear_whatever_their_order():
    assert value_at(0.3, [1.0, 0.0, 0.2], [0.9, 0.1, 0.5]) == pytest.approx(0.5 + 0.4 / 8)


def test_the_fraction_for_an_accuracy_is_the_first_crossing():
    fractions, accuracies = [1.0, 0.0, 0.4, 0.2], [0.9, 0.4, 0.55, 0.6]
    assert fraction_for(0.5, fractions, accuracies) == pytest.approx(0.1)
    assert fraction_for(0.3, fractions, accuracies) == 0.0
    assert fraction_for(0.9, fractions, accuracies) == 1.0
    assert fraction_for(0.95, fractions, accuracies) is None
