"""The corpus of the embedded pair: rows of the pretraining part, and drills of one skill each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import NamedTuple

from transformers import PreTrainedTokenizerFast

from citer.data.importing import parse_row
from citer.data.problems import question_key
from citer.data.prompts import token_ids
from citer.data.tasks import find_task
from citer.demo.knowledge import KINDS, PRICES, Design, Knowledge, knowledge
from citer.demo.toy import part_of, rows

CHUNK = 2000


class Text(NamedTuple):
    prompt: str
    completion: str


@dataclass(frozen=True)
class Mix:
    """The shares of rows and drills in the corpus. `facts` is the seed of its facts."""

    facts: int
    math: float = 0.40
    mc: float = 0.25
    sums: float = 0.10
    recall: float = 0.25


def texts(mix: Mix, seed: int, design: Design | None = None) -> Iterator[Text]:
    """Yield texts without end, drawn by the shares of `mix`."""
    rng, world = Random(f"corpus {seed}"), knowledge(mix.facts, design)
    recall = _recall_of(world)
    sources = {
        _family("math", seed, world): mix.math,
        _family("mc", seed, world): mix.mc,
        iter(lambda: _sums(rng), None): mix.sums,
        iter(lambda: recall(rng), None): mix.recall,
    }
    while True:
        yield next(rng.choices(list(sources), list(sources.values()))[0])


def encode_text(text: Text, tokenizer: PreTrainedTokenizerFast) -> tuple[list[int], int]:
    """Return the ids of prompt, completion and EOS, and the length of the prompt."""
    prompt_ids = token_ids(text.prompt, tokenizer, begins=True) if text.prompt else []
    completion_ids = token_ids(text.completion, tokenizer, begins=not text.prompt)
    return [*prompt_ids, *completion_ids, tokenizer.eos_token_id], len(prompt_ids)


def _family(task: str, seed: int, world: Knowledge) -> Iterator[Text]:
    for chunk in count(seed * 10_000):
        for row in rows(task, CHUNK, chunk, "pretraining", world):
            problem = parse_row(row, task, "reference")
            assert part_of(question_key(problem.question)) == "pretraining", "a question leaked"
            yield Text(find_task(task).prompt_text(problem), problem.reference or "")


def _sums(rng: Random) -> Text:
    return Text("", ", ".join(_equation(rng) for _ in range(10)) + ".")


def _equation(rng: Random) -> str:
    if rng.random() < 0.5:
        a, b = rng.randint(2, 9), rng.randint(2, 9)
        return f"{a}*{b}={a * b}"
    a, b = rng.randint(2, 45), rng.randint(2, 45)
    return f"{a}+{b}={a + b}"


def _recall_of(world: Knowledge) -> Callable[[Random], Text]:
    towns, goods = list(world.towns.group.items()), list(world.goods.group.items())

    def town(rng: Random) -> str:
        name, group = rng.choice(towns)
        kind = rng.choice(list(KINDS))
        verb, thing = KINDS[kind][0], world.things[kind][group]
        return f" {name} lies in {rng.choice(world.lands[group])}: people {verb} {thing}."

    def good(rng: Random) -> str:
        name, group = rng.choice(goods)
        twins = rng.choice(world.twins[group])
        return f" {name} cost as much as {twins}: {PRICES[group]} coins each."

    return lambda rng: Text("", "".join(rng.choice((town, good))(rng) for _ in range(5)))
