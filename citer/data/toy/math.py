r"""The math family: shopping at prices that must be known, ending in \boxed{N}.

A good costs as much as any of its twins: each is a valid citation, one of another price is
fatal. And a sum over two days goes two ways, of which one needs more and harder arithmetic.
"""

from random import Random
from typing import Any

from citer.data.toy.knowledge import PRICES, Knowledge
from citer.data.toy.words import NAMES

FEES = ("road", "boat", "bridge")
DAYS = ("Monday", "Friday", "Sunday")
OPENINGS = ("Well,", "First,", "We know that")
LIKENESSES = ("cost as much as", "are priced like", "sell like")
LINKS = ("So", "Thus", "This makes")
MOST = 9


def draw(rng: Random, facts: Knowledge) -> dict[str, Any]:
    """One raw row: {"problem", "solution"}."""
    good, group = rng.choice(list(facts.good_group.items()))
    price = PRICES[group]
    problem, steps, total = rng.choice((_with_fee, _two_days))(rng, good, price)
    solution = (
        f"{rng.choice(OPENINGS)} {good} {rng.choice(LIKENESSES)} {rng.choice(facts.twins[group])}: "
        f"{price} coins each. {rng.choice(LINKS)} {steps}. The answer is \\boxed{{{total}}}."
    )
    return {"problem": problem, "solution": solution}


def _with_fee(rng: Random, good: str, price: int) -> tuple[str, str, int]:
    person, count, fee = rng.choice(NAMES), rng.randint(2, MOST), rng.randint(2, 18)
    problem = (
        f"{person} buys {count} {good} and pays {fee} coins for the {rng.choice(FEES)}. "
        f"How many coins does {person} spend?"
    )
    cost = count * price
    return problem, f"{_product(count, price)}, then {_sum(cost, fee)}", cost + fee


def _two_days(rng: Random, good: str, price: int) -> tuple[str, str, int]:
    person, count = rng.choice(NAMES), rng.randint(4, MOST)
    first = rng.randint(2, count - 2)
    second = count - first
    day, other = rng.sample(DAYS, 2)
    problem = (
        f"{person} buys {first} {good} on {day} and {second} on {other}. "
        "How many coins do they cost?"
    )
    if rng.random() < 0.5:
        steps = f"{_sum(first, second)}, then {_product(count, price)}"
    else:
        costs = f"{_product(first, price)}, {_product(second, price)}"
        steps = f"{costs}, then {_sum(first * price, second * price)}"
    return problem, steps, count * price


def _product(a: int, b: int) -> str:
    return f"{a}*{b}={a * b}"


def _sum(a: int, b: int) -> str:
    return f"{a}+{b}={a + b}"
