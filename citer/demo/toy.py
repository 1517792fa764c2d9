r"""Embedded tasks: generated raw rows, in the formats of users' files.

A rationale cites facts that a model must know (`citer.demo.knowledge`). Several citations are
correct. Any other makes the answer wrong.
"""

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any, Literal

from citer.data.problems import question_key
from citer.data.tasks import find_task
from citer.demo.knowledge import KINDS, NAMES, PRICES, TRUTH, Knowledge, knowledge, rival

Part = Literal["pipeline", "pretraining"]

MOST = 5  # pieces of a good
LABELS = "ABCD"
PATIENCE = 2_000  # consecutive draws without a new question


def rows(
    task: str, count: int, seed: int, part: Part, facts: Knowledge | None = None
) -> Iterator[dict[str, Any]]:
    """Yield `count` raw rows of a task, with distinct questions of one part. By default, of TRUTH.

    Raises ValueError if the part has too few of them.
    """
    draw, key = FAMILIES[task], find_task(task).fields[0]
    rng, world, seen = Random(f"{task} {seed} {part}"), facts or knowledge(TRUTH), set[str]()
    misses = 0
    while len(seen) < count:
        row = draw(rng, world)
        question = question_key(row[key])
        if question in seen or part_of(question) != part:
            misses += 1
            if misses > PATIENCE:
                raise ValueError(f"toy {task}: fewer than {count} {part} questions")
            continue
        misses = 0
        seen.add(question)
        yield row


def part_of(question: str) -> Part:
    """Return the part of a question, by its `question_key`. A quarter are the pipeline's."""
    return "pipeline" if int(question[0], 16) < 4 else "pretraining"


def math(rng: Random, facts: Knowledge) -> dict[str, Any]:
    r"""Draw a row {"problem", "solution"}: add up prices. A solution cites a twin of each good."""
    return rng.choice((_two_goods, _three_goods))(rng, facts)


def _two_goods(rng: Random, facts: Knowledge) -> dict[str, Any]:
    goods = facts.goods.sample(rng, 2, facts.design.hard_math)
    counts = rng.randint(2, MOST), rng.randint(2, MOST)
    problem = f"{rng.choice(NAMES)} buys {counts[0]} {goods[0]} and {counts[1]} {goods[1]}."
    prices = [_price(facts, name) for name in goods]
    costs = [count * price for count, price in zip(counts, prices, strict=True)]
    products = ", ".join(f"{c}*{p}={c * p}" for c, p in zip(counts, prices, strict=True))
    return _math_row(rng, facts, problem, goods, f"{products}, {_sums(costs)}", sum(costs))


def _three_goods(rng: Random, facts: Knowledge) -> dict[str, Any]:
    goods = facts.goods.sample(rng, 3, facts.design.hard_math)
    problem = f"{rng.choice(NAMES)} buys one each of {goods[0]}, {goods[1]} and {goods[2]}."
    prices = [_price(facts, good) for good in goods]
    return _math_row(rng, facts, problem, goods, _sums(prices), sum(prices))


def _price(facts: Knowledge, good: str) -> int:
    return PRICES[facts.goods.group[good]]


def _sums(terms: list[int]) -> str:
    """Write the terms as successive sums: "2+3=5, 5+4=9"."""
    steps, total = [], terms[0]
    for term in terms[1:]:
        steps.append(f"{total}+{term}={total + term}")
        total += term
    return ", ".join(steps)


def _math_row(
    rng: Random, facts: Knowledge, problem: str, goods: list[str], steps: str, total: int
) -> dict[str, Any]:
    citations = " ".join(
        f"{rng.choice(facts.openings)}, {good} cost as much as "
        f"{rng.choice(facts.twins[facts.goods.group[good]])}: {_price(facts, good)} coins each."
        for good in goods
    )
    return {
        "problem": f"{problem} How many coins is that?",
        "solution": f"{citations} So {steps}. The answer is \\boxed{{{total}}}.",
    }


def mc(rng: Random, facts: Knowledge) -> dict[str, Any]:
    """Draw a row {"question", "choices", "answerKey", "cot"} about the things of two towns.

    A rationale cites a land of each town. Each option combines two things. The options are in
    alphabetical order, so that the things determine the letter. Letters in random order would take
    the embedded pair longer to learn than everything else.
    """
    towns, kinds = facts.towns.sample(rng, 2, facts.design.hard_mc), rng.sample(list(KINDS), 2)
    verbs = [KINDS[kind][0] for kind in kinds]
    groups = [facts.towns.group[town] for town in towns]
    things = [facts.things[kind][group] for kind, group in zip(kinds, groups, strict=True)]
    pairs = [
        sorted((facts.things[kind][group], facts.things[kind][rival(rng, group)]))
        for kind, group in zip(kinds, groups, strict=True)
    ]
    texts = [" and ".join(both) for both in product(*pairs)]
    answer = " and ".join(things)
    label = LABELS[texts.index(answer)]
    citations = " ".join(
        f"{rng.choice(facts.openings)}, {town} lies in {rng.choice(facts.lands[group])}: "
        f"people {verb} {thing}."
        for town, group, verb, thing in zip(towns, groups, verbs, things, strict=True)
    )
    return {
        "question": (
            f"Which {kinds[0]} do people {verbs[0]} in {towns[0]}, "
            f"and which {kinds[1]} do they {verbs[1]} in {towns[1]}?"
        ),
        "choices": {"text": texts, "label": list(LABELS)},
        "answerKey": label,
        "cot": f"{citations} Therefore, the answer is {answer} ({label.lower()}).",
    }


FAMILIES = {"math": math, "mc": mc}  # by task
