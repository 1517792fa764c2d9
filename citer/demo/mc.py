"""Embedded multiple-choice questions: what do people eat, drink or keep in each of two towns?

A rationale cites the land of each town. Any land of the town's group is correct. A land of another
group makes the answer wrong. Each option combines two things. The options are in alphabetical
order, so that the things determine the letter. Letters in random order would take the embedded pair
longer to learn than everything else.
"""

from itertools import product
from random import Random
from typing import Any

from citer.demo.knowledge import Knowledge, is_early, likely
from citer.demo.words import KINDS, OPENINGS

LABELS = "ABCD"
HARD = 0.6  # share of questions with lands that follow no rule


def draw(rng: Random, facts: Knowledge) -> dict[str, Any]:
    """Draw a raw row {"question", "choices": {"text", "label"}, "answerKey", "cot"}."""
    towns, kinds = facts.towns.sample(rng, 2, HARD), rng.sample(list(KINDS), 2)
    verbs = [KINDS[kind][0] for kind in kinds]
    groups = [facts.towns.group[town] for town in towns]
    things = [facts.things[kind][group] for kind, group in zip(kinds, groups, strict=True)]
    pairs = [
        sorted((facts.things[kind][group], facts.things[kind][_rival(rng, group)]))
        for kind, group in zip(kinds, groups, strict=True)
    ]
    texts = [" and ".join(both) for both in product(*pairs)]
    answer = " and ".join(things)
    label = LABELS[texts.index(answer)]
    citations = " ".join(
        f"{rng.choice(OPENINGS)}, {town} lies in {rng.choice(facts.lands[group])}: "
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


def _rival(rng: Random, group: int) -> int:
    """Draw another, equally likely group. Its things are in the other half of the alphabet."""
    return rng.choice([other for other in likely(group) if is_early(other) != is_early(group)])
