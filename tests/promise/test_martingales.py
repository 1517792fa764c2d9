"""The evidence against an own computation in fractions, and by enumeration of all histories."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from citer.serving.martingales import BETTER, WORSE, Detector, Product

LIMIT = Fraction(1, 20)


def factor(lost: bool, limit: Fraction, multiple: float) -> Fraction:
    risk = min(Fraction(multiple) * limit, (1 + limit) / 2)
    return risk / limit if lost else (1 - risk) / (1 - limit)


def product_of(losses: tuple[bool, ...], multiples: tuple[float, ...] = WORSE) -> Fraction:
    total = Fraction(0)
    for multiple in multiples:
        one = Fraction(1)
        for lost in losses:
            one *= factor(lost, LIMIT, multiple)
        total += one
    return total / len(multiples)


def sum_of(losses: tuple[bool, ...]) -> Fraction:
    """The sum of the products that start at each answer."""
    return sum((product_of(losses[start:]) for start in range(len(losses))), Fraction(0))


HISTORIES = [(True, False, False, True), (False,) * 30, (True,) * 9, (False, True) * 8]


@pytest.mark.parametrize("losses", HISTORIES)
def test_values_are_those_of_the_definitions(losses: tuple[bool, ...]) -> None:
    whole, better, detector = Product(), Product(BETTER), Detector()
    for lost in losses:
        for each in (whole, better, detector):
            each.take(lost, float(LIMIT))
    assert whole.value == pytest.approx(float(product_of(losses)))
    assert better.value == pytest.approx(float(product_of(losses, BETTER)))
    assert detector.value == pytest.approx(float(sum_of(losses)))


@pytest.mark.parametrize("limit", [0.01, 0.05, 0.4, 0.99])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_no_bet_gains_while_the_promise_is_kept(limit: float, share: float) -> None:
    risk = share * limit  # at most the limit
    means = [
        risk * lost + (1 - risk) * kept
        for lost, kept in zip(_one(True, limit), _one(False, limit), strict=True)
    ]
    assert max(means) <= 1 + 1e-12


def _one(lost: bool, limit: float) -> list[float]:
    values = []
    for multiple in WORSE:
        each = Product((multiple,))
        each.take(lost, limit)
        values.append(each.value)
    return values


def test_the_product_exceeds_its_bound_no_more_often_than_ville_says() -> None:
    """All 2^12 histories, at a risk of exactly the limit."""
    delta, limit, exceeded = 0.2, 0.3, 0.0
    for losses in product([False, True], repeat=12):
        chance = float(np.prod([limit if lost else 1 - limit for lost in losses]))
        whole = Product()
        for lost in losses:
            whole.take(lost, limit)
            if whole.value >= 1 / delta:
                exceeded += chance
                break
    assert 0.01 < exceeded <= delta


def test_false_alarms_are_as_rare_as_promised() -> None:
    """At a risk of exactly the limit, with limits that change from answer to answer."""
    rare, random, waits = 200.0, np.random.default_rng(7), []
    for _ in range(300):
        detector, seen = Detector(), 0
        while detector.value < rare:
            limit = 0.05 if random.random() < 0.5 else 0.3
            detector.take(bool(random.random() < limit), limit)
            seen += 1
        waits.append(seen)
    assert np.mean(waits) - 2 * np.std(waits) / np.sqrt(len(waits)) > 0.9 * rare


def test_a_good_past_hides_a_rise_from_the_product_but_not_from_the_detector() -> None:
    def answers_until(values: Product | Detector, bound: float) -> int:
        random = np.random.default_rng(3)
        for _ in range(2000):
            values.take(bool(random.random() < 0.03), 0.05)
        for seen in range(1, 10_000):
            values.take(bool(random.random() < 0.2), 0.05)
            if values.value >= bound:
                return seen
        raise AssertionError

    assert 3 * answers_until(Detector(), 20_000) < answers_until(Product(), 20)


def test_evidence_stays_finite() -> None:
    whole, detector = Product(), Detector()
    for _ in range(5000):
        whole.take(True, 0.01)
        detector.take(True, 0.01)
    assert np.isfinite(whole.value)
    assert np.isfinite(detector.value)
