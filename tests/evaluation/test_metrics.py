import pytest
from scipy.stats import binomtest

from citer.evaluation.metrics import fraction_for, share_interval


@pytest.mark.parametrize(("successes", "trials"), [(300, 400), (1, 3), (0, 7), (500, 500)])
def test_the_interval_of_a_share_is_wilsons(successes, trials):
    low, high = share_interval(successes, trials)
    expected = binomtest(successes, trials).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high))
    assert 0 <= low < high <= 1


def test_the_fraction_for_an_accuracy_is_the_first_crossing():
    fractions, accuracies = [1.0, 0.0, 0.4, 0.2], [0.9, 0.4, 0.55, 0.6]
    assert fraction_for(0.5, fractions, accuracies) == pytest.approx(0.1)
    assert fraction_for(0.3, fractions, accuracies) == 0.0
    assert fraction_for(0.9, fractions, accuracies) == 1.0
    assert fraction_for(0.95, fractions, accuracies) is None
