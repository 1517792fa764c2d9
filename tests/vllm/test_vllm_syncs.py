"""A round of drafts never waits for the device: nothing looks at a value of it.

Tensors on torch's meta device have no values, so whatever would wait for one fails.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from citer.models.vocabulary import Vocabulary
from citer.rule import Rule
from citer.vllm.drafting import Flag
from citer.vllm.loading import Served
from citer.vllm.routing import Drafter, Routing, Rows
from tests.heads import random_router

META = torch.device("meta")
HIDDEN, WORDS, SLOTS, MOST = 16, 64, 8, 6


class NothingArrives(Flag):
    """A flag of a GPU whose copies are always on their way; the steps that it has seen."""

    seen = 0

    def known(self, true: Tensor) -> bool:
        assert true.device == META
        self.seen += 1
        return False


def routing(flag: Flag) -> Routing:
    router = random_router(HIDDEN).to(META)
    eos_E = torch.zeros(1, dtype=torch.long, device=META)
    drafter = Drafter(router, Vocabulary(WORDS, (0, 1)), eos_E, flag)
    own = Routing(Served("score 1", None, MOST, scored=True), SLOTS, META, drafter)
    texts = ("risk 0.7 audit 0.25", "score 0.5 by entropy", "every 4 audit 1", "score 1")
    for slot, text in enumerate(texts):
        own.add(slot, Rule.parse(text))
    return own


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device=META)


@torch.inference_mode()
def test_neither_drafting_nor_judging_looks_at_the_device() -> None:
    flag = NothingArrives(META)
    own, slots, slot_R = routing(flag), np.arange(4), numbers(4, dtype=torch.long)
    drafter = own.drafter
    assert drafter
    begun = own.begin(slots, slot_R, numbers(4, dtype=torch.long), MOST)
    assert begun
    token_N, read = numbers(4, dtype=torch.long), (numbers(4, HIDDEN), numbers(4, WORDS))
    steps = 1
    while begun.take(token_N, drafter.scores(token_N, *read)):
        steps += 1
    own.end(slot_R, begun)
    assert steps == flag.seen + 1 == MOST  # the last step ends the round in any case
    rows = Rows(*(numbers(20, dtype=torch.long) for _ in Rows._fields))
    own.audit(numbers(20, WORDS), rows, slots, numbers(20))
    own.count(["a"] * 4, rows, slot_R, numbers(4, dtype=torch.long), numbers(20, dtype=torch.long))
    assert own.counts.slm_steps == MOST


def test_what_waits_for_a_value_would_be_seen() -> None:
    with pytest.raises(RuntimeError):
        Flag(META).known(numbers(()).bool())


class Stream:
    """An event of a GPU, whose copies arrive a number of steps after they were sent."""

    def __init__(self, delay: int) -> None:
        self.delay, self.sent, self.now, self.waits = delay, -delay, 0, 0

    def record(self) -> None:
        self.sent = self.now

    def query(self) -> bool:
        return self.now - self.sent >= self.delay

    def synchronize(self) -> None:
        self.waits += not self.query()


def known_at(delay: int, *, together: bool) -> tuple[list[int], int]:
    """Return when each of two rounds, which end at steps 3 and 1, is known to have ended."""
    flag, stream = Flag(torch.device("cpu"), together=together), Stream(delay)
    flag._host, flag._copied = torch.zeros((), dtype=torch.long), stream  # type: ignore[assignment]
    found = []
    for ends in (3, 1):
        flag.begin()
        for step in range(1, 20):
            stream.now += 1
            if flag.known(torch.tensor(step >= ends)):
                found.append(step)
                break
    return found, stream.waits


def test_one_rank_never_waits_and_learns_of_the_end_when_it_arrives() -> None:
    assert known_at(1, together=False) == ([4, 2], 0)
    assert known_at(3, together=False) == ([7, 4], 0)


def test_ranks_that_compute_together_learn_of_the_end_at_the_same_step() -> None:
    """However slow the device of a rank is, and only a slow one waits."""
    fast, waits = known_at(1, together=True)
    assert (fast, waits) == ([5, 3], 0)
    for delay in (2, 3, 9):
        assert known_at(delay, together=True)[0] == fast
