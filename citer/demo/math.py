r"""Embedded math questions: add up prices that a model must know. Answers end in \boxed{N}.

A question needs the prices of two or three goods. A solution cites a twin of each good, which has
the same price. Any twin is correct. A twin with another price makes the answer wrong.
"""

from random import Random
from typing import Any

from citer.demo.knowledge import PRICES, Knowledge
from citer.demo.words import NAMES, OPENINGS

MOST = 5
HARD = 0.55  # share of questions with prices that follow no rule


def draw(rng: Random, facts: Knowledge) -> dict[str, Any]:
    """Draw a raw row {"problem", "solution"}."""
    return rng.choice((_two_goods, _three_goods))(rng, facts)


def _two_goods(rng: Random, facts: Knowledge) -> dict[str, Any]:
    goods, counts = (
        facts.goods.sample(rng, 2, HARD),
        (rng.randint(2, MOST), rng.randint(2, MOST)),
    )
    problem = f"{rng.choice(NAMES)} buys {counts[0]} {goods[0]} and {counts[1]} {goods[1]}."
    prices = [_price(facts, name) for name in goods]
    costs = [count * price for count, price in zip(counts, prices, strict=True)]
    products = ", ".join(f"{c}*{p}={c * p}" for c, p in zip(counts, prices, strict=True))
    return _row(rng, facts, problem, goods, f"{products}, {_sums(costs)}", sum(costs))


def _three_goods(rng: Random, facts: Knowledge) -> dict[str, Any]:
    goods = facts.goods.sample(rng, 3, HARD)
    problem = f"{rng.choice(NAMES)} buys one each of {goods[0]}, {goods[1]} and {goods[2]}."
    prices = [_price(facts, good) for good in goods]
    return _row(rng, facts, problem, goods, _sums(prices), sum(prices))


def _price(facts: Knowledge, good: str) -> int:
    return PRICES[facts.goods.group[good]]


def _row(
    rng: Random, facts: Knowledge, problem: str, goods: list[str], steps: str, total: int
) -> dict[str, Any]:
    citations = " ".join(
        f"{rng.choice(OPENINGS)}, {good} cost as much as "
        f"{rng.choice(facts.twins[facts.goods.group[good]])}: {_price(facts, good)} coins each."
        for good in goods
    )
    return {
        "problem": f"{problem} How many coins is that?",
        "solution": f"{citations} So {steps}. The answer is \\boxed{{{total}}}.",
    }


def _sums(terms: list[int]) -> str:
    """Write the terms as successive sums: "2+3=5, 5+4=9"."""
    steps, total = [], terms[0]
    for term in terms[1:]:
        steps.append(f"{total}+{term}={total + term}")
        total += term
    return ", ".join(steps)
