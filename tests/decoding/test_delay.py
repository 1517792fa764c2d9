"""The delay that all use, against all that there could be, by replay."""

import random
from itertools import pairwise

import pytest

from citer.decoding.answer import Visit
from citer.decoding.delay import llm_runs
from citer.evaluation import cost
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
def test_half_of_the_answers_is_near_the_best_where_weights_take_the_time(
    fraction: float, llm_weights: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = 8
    traces = schedules(fraction, 2 * slots)

    def seconds() -> float:
        slm, llm = replay(traces, slots, delayed=True)
        return slm.forwards + llm_weights * llm.forwards

    def waiting_for(llm_batch: int) -> float:
        """Seconds of a schedule whose LLM waits for so many answers."""

        def runs(waiting: int, drafting: int, delayed: bool) -> bool:
            return waiting > 0 and (waiting >= llm_batch or not drafting)

        with monkeypatch.context() as patch:
            patch.setattr(cost, "llm_runs", runs)
            return seconds()

    assert seconds() <= 1.1 * min(map(waiting_for, range(1, slots + 1)))


@pytest.mark.parametrize("delayed", [False, True])
def test_the_llm_runs_where_nothing_goes_on_without_it_and_never_for_nobody(delayed: bool) -> None:
    assert llm_runs(1, 0, delayed)
    assert not llm_runs(0, 0, delayed)
    assert not llm_runs(0, 7, delayed)


@pytest.mark.parametrize(("in_flight", "enough"), [(1, 1), (2, 1), (3, 2), (8, 4), (9, 5)])
def test_a_delayed_llm_waits_for_half_of_the_answers_in_flight(in_flight: int, enough: int) -> None:
    for waiting in range(1, in_flight + 1):
        assert llm_runs(waiting, in_flight - waiting, True) == (waiting >= enough)
        assert llm_runs(waiting, in_flight - waiting, False)
