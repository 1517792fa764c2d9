"""The delay that all use, against all that there could be, by replay."""

import random
from itertools import pairwise

import pytest

from citer.decoding.answer import Visit
from citer.decoding.delay import usual_llm_batch
from citer.evaluation.cost import Trace, replay


def schedules(fraction: float, count: int) -> list[Trace]:
    draw = random.Random(0)
    return [routed([draw.random() < fraction for _ in range(1000)]) for _ in range(count)]


def routed(by_llm: list[bool]) -> Trace:
    """CITER's answer: the LLM writes in the place of a draft."""
    places = [-1, *(place for place, theirs in enumerate(by_llm) if theirs)]
    visits = [Visit(place - last, place, place) for last, place in pairwise(places)]
    return Trace.of(5, len(by_llm), visits)


@pytest.mark.parametrize("fraction", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("llm_weights", [3, 10])
def test_half_of_the_slots_is_near_the_best_where_weights_take_the_time(
    fraction: float, llm_weights: int
) -> None:
    slots = 8
    traces = schedules(fraction, 2 * slots)

    def seconds(llm_batch: int) -> float:
        slm, llm = replay(traces, slots, llm_batch)
        return slm.forwards + llm_weights * llm.forwards

    best = min(map(seconds, range(1, slots + 1)))
    assert seconds(usual_llm_batch(slots)) <= 1.1 * best


def test_a_lone_answer_waits_for_no_other() -> None:
    assert [usual_llm_batch(slots) for slots in (1, 2, 3, 64)] == [1, 1, 2, 32]
