"""Two tiny task families, generated: raw rows in the formats that users' files have."""

from collections.abc import Iterator
from random import Random
from typing import Any, Literal

from citer.config import Task
from citer.data.problems import question_key
from citer.data.toy import math, mc
from citer.data.toy.knowledge import TRUTH, knowledge

Part = Literal["pipeline", "pretraining"]

_FAMILIES = {"math": (math.draw, "problem"), "mc": (mc.draw, "question")}
PATIENCE = 2_000  # draws in a row that bring no new question


def rows(
    task: Task, count: int, seed: int, part: Part, facts: int = TRUTH
) -> Iterator[dict[str, Any]]:
    """`count` raw rows with distinct questions of one part, in the world `facts`.

    math rows are {"problem", "solution"}, mc rows {"question", "choices", "answerKey", "cot"}.
    Raises ValueError where the part holds too few distinct questions.
    """
    draw, key = _FAMILIES[task]
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
    """The part that a question belongs to, by its `question_key`: a quarter is the pipeline's."""
    return "pipeline" if int(question[0], 16) < 4 else "pretraining"
