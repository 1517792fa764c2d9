"""The multiple-choice family: a town lies in a land, whose people favour a thing.

Every land of the town's group is a valid citation; one of another group is fatal.
"""

from random import Random
from typing import Any

from citer.data.toy.knowledge import Knowledge
from citer.data.toy.words import KINDS, NAMES

LABELS = "ABCD"
ARRIVALS = ("lives in", "comes from", "travels to")
OPENINGS = ("Well,", "First,", "We know that")
PLACES = ("lies in", "belongs to", "is part of")
LINKS = ("There", "In it", "And there")


def draw(rng: Random, facts: Knowledge) -> dict[str, Any]:
    """One raw row: {"question", "choices": {"text", "label"}, "answerKey", "cot"}."""
    town, group = rng.choice(list(facts.town_group.items()))
    kind = rng.choice(list(KINDS))
    verb, things = KINDS[kind]
    thing = facts.things[kind][group]
    texts = rng.sample([thing, *rng.sample([t for t in things if t != thing], 3)], 4)
    label = LABELS[texts.index(thing)]
    person, arrival = rng.choice(NAMES), rng.choice(ARRIVALS)
    return {
        "question": f"{person} {arrival} {town}. Which {kind} do people there {verb}?",
        "choices": {"text": texts, "label": list(LABELS)},
        "answerKey": label,
        "cot": (
            f"{rng.choice(OPENINGS)} {town} {rng.choice(PLACES)} {rng.choice(facts.lands[group])}. "
            f"{rng.choice(LINKS)} people {verb} {thing}. "
            f"Therefore, the answer is {thing} ({label.lower()})."
        ),
    }
