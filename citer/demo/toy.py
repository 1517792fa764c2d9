"""Embedded tasks: generated raw rows, in the formats of users' files."""

from collections.abc import Iterator
from random import Random
from typing import Any, Literal

from citer.data.problems import question_key
from citer.data.tasks import find_task
from citer.demo import math, mc
from citer.demo.knowledge import TRUTH, knowledge

Part = Literal["pipeline", "pretraining"]

FAMILIES = {"math": math.draw, "mc": mc.draw}  # by task
PATIENCE = 2_000  # consecutive draws without a new question


def rows(
    task: str, count: int, seed: int, part: Part, facts: int = TRUTH
) -> Iterator[dict[str, Any]]:
    """Yield `count` raw rows of a task, with distinct questions of one part.

    `facts` is the seed of the facts (see `knowledge`). Raises ValueError if the part has too few
    distinct questions.
    """
    draw, key = FAMILIES[task], find_task(task).fields[0]
    rng, world, seen = Random(f"{task} {seed} {part}"), knowledge(facts), set[str]()
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
