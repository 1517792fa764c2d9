"""The watch over the agreement that audits find, by simulation of beta-binomial answers."""

from collections.abc import Iterator
from queue import Queue
from typing import Any

import numpy as np
import pytest
from scipy import stats

from citer.rule import Rule
from citer.serving.drift import WINDOW, Audited, Promised, Watch

RULE = Rule("risk", 0.8, audit=0.1)
Q, RHO = 0.04, 0.1  # disagreements per audited token; over-dispersion between answers


def answers(number: int, q: float, rho: float, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Return (audited, disagreed) of answers of different lengths."""
    audited = rng.integers(5, 40, size=number)
    size = 1 / rho - 1
    disagreed = rng.binomial(audited, rng.beta(q * size, (1 - q) * size, size=number))
    return list(zip(audited.tolist(), disagreed.tolist(), strict=True))


def at_promotion(rng: np.random.Generator) -> Promised:
    promised = Promised.measured(answers(1000, Q, RHO, rng))
    assert promised
    return promised


def alarms(watch: Watch, counts: list[tuple[int, int]]) -> Iterator[int]:
    """Yield the numbers of the answers at which the alarm begins."""
    for number, each in enumerate(counts, 1):
        before = watch.alarm
        watch.count(*each)
        if watch.alarm and not before:
            yield number


def test_the_over_dispersion_is_estimated() -> None:
    rng = np.random.default_rng(17)
    for rho in (0.01, 0.1, 0.3):
        promised = Promised.measured(answers(20_000, Q, rho, rng))
        assert promised
        assert promised.agreement == pytest.approx(1 - Q, abs=0.003)
        assert promised.overdispersion == pytest.approx(rho, rel=0.2)


def test_answers_that_vary_less_than_a_binomial_have_no_over_dispersion() -> None:
    promised = Promised.measured([(20, 2)] * 50)
    assert promised == Promised(50, 1000, 100, 50 * 20 * 19, 0.0)


def test_without_an_audit_nothing_is_measured() -> None:
    assert Promised.measured([(0, 0), (0, 0)]) is None
    assert Promised.measured([]) is None


@pytest.mark.parametrize("rho", [0.0, 0.2])
def test_the_limit_is_the_quantile_of_a_beta_binomial(rho: float) -> None:
    """With much evidence at promotion, and one answer in the window."""
    promised = Promised(10**6, 10**9, 10**8, 10**12, rho)
    seen = Audited(1, 50, 5, 50 * 49)
    limit = promised.limit(seen, alpha=0.01)
    size = 1 / rho - 1 if rho else 1e9
    law = stats.betabinom(50, 0.1 * size, 0.9 * size)
    most = round((1 - limit) * 50)
    assert law.sf(most) <= 0.01 < law.sf(most - 1)


def test_little_evidence_at_promotion_lowers_the_limit() -> None:
    seen = Audited(200, 4000, 400, 200 * 20 * 19)
    limits = [Promised(n, n * 20, n * 2, n * 380, 0.05).limit(seen) for n in (50, 500, 5000)]
    assert limits == sorted(limits)
    assert limits[0] < limits[1] - 0.01


def test_false_alarms_are_about_as_rare_as_stated() -> None:
    """At a laxer limit than the real one, so that there are enough of them to count."""
    rng = np.random.default_rng(17)
    window, alpha, answered, found = 50, 0.01, 1000, 0
    for _ in range(40):
        watch = Watch(at_promotion(rng), RULE, lambda _: None, window=window, alpha=alpha)
        found += len([*alarms(watch, answers(answered, Q, RHO, rng))])
    stated = 40 * answered / 1058  # see docs/serving.md
    assert 0.4 * stated < found < 1.3 * stated


def test_a_drift_of_three_points_is_seen_within_two_windows() -> None:
    rng = np.random.default_rng(17)
    for _ in range(10):
        watch = Watch(at_promotion(rng), RULE, lambda _: None)
        before, drifted = answers(1000, Q, RHO, rng), answers(2 * WINDOW, Q + 0.04, RHO, rng)
        first = next(alarms(watch, before + drifted))
        assert 1000 < first <= 1000 + 2 * WINDOW


def test_no_alarm_before_the_window_is_full() -> None:
    rng = np.random.default_rng(17)
    watch = Watch(at_promotion(rng), RULE, lambda _: None)
    assert [*alarms(watch, [(20, 20)] * WINDOW)] == [WINDOW]


def test_a_crossing_is_told_once_and_the_next_one_again() -> None:
    told: Queue[dict[str, Any]] = Queue()
    watch = Watch(Promised(1000, 20_000, 400, 380_000, 0.0), RULE, told.put, window=20)
    for disagreed in (0, 5, 0, 5):
        for _ in range(60):
            watch.count(20, disagreed)
        assert watch.alarm == bool(disagreed)
    found = [told.get(timeout=60) for _ in range(2)]
    assert told.empty()
    assert found[0]["agreement"] < found[0]["limit"] < 0.98
    assert (found[0]["rule"], found[0]["answers"]) == (str(RULE), 20)


def test_an_agreement_near_the_limit_is_told_once() -> None:
    told: Queue[dict[str, Any]] = Queue()
    watch = Watch(Promised(1000, 20_000, 400, 380_000, 0.0), RULE, told.put, window=20)
    limit = watch.promised.limit(Audited(20, 400, 0, 7600))
    around = round((1 - limit) * 20)
    begins = [*alarms(watch, [(20, around + number % 2) for number in range(400)])]
    assert len(begins) == 1
