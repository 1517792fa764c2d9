"""The multiple-choice family: a town lies in a land, whose people favour a thing.

Every land of the town's group is a valid citation; one of another group is fatal. Options stand
in alphabetical order, one of each quarter of the alphabet, so that a thing always has one letter:
binding letters freely would take the tiny pair longer to learn than all the rest.
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
    town = rng.choice(facts.met_towns)
    group = facts.town_group[town]
    kind = rng.choice(list(KINDS))
    verb, things = KINDS[kind]
    thing = facts.things[kind][group]
    texts = [
        thing if thing in pair else rng.choice(pair)
        for pair in zip(things[::2], things[1::2], strict=True)
    ]
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
