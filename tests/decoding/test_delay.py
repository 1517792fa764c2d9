"""The delay's prediction against replayed schedules."""

import random

import pytest

from citer.decoding.delay import best_llm_batch, seconds_per_token, usual_llm_batch
from citer.evaluation.cost import Trace, replay


def schedules(fraction: float) -> list[Trace]:
    draw = random.Random(0)
    return [Trace(5, [draw.random() < fraction for _ in range(5000)]) for _ in range(16)]


def slm(rows: int) -> float:
    return 1.0 + 0.02 * rows


def llm(rows: int) -> float:
    return 9.0 + 0.1 * rows


@pytest.mark.parametrize("fraction", [0.05, 0.2, 0.5])
@pytest.mark.parametrize(("slots", "llm_batch"), [(1, 1), (8, 1), (8, 4), (8, 8), (16, 5)])
def test_forwards_a_token_are_those_of_a_replay(slots, llm_batch, fraction):
    traces = schedules(fraction)
    written = sum(len(trace.by_llm) for trace in traces)
    for ran, seconds in zip(
        replay(traces, slots, llm_batch),
        [(lambda _: 1.0, lambda _: 0.0), (lambda _: 0.0, lambda _: 1.0)],
        strict=True,
    ):
        predicted = seconds_per_token(llm_batch, slots, fraction, *seconds)
        assert predicted * written == pytest.approx(ran.forwards, rel=0.1)


def test_a_lone_answer_takes_a_step_a_token_and_a_visit_now_and_then():
    assert seconds_per_token(1, 1, 0.2, slm, llm) == pytest.approx(slm(1) + 0.2 * llm(1))


@pytest.mark.parametrize("fraction", [0.05, 0.2])
def test_the_best_delay_is_near_the_best_of_all_replays(fraction):
    def replayed(llm_batch: int) -> float:
        steps, visits = replay(schedules(fraction), 8, llm_batch)
        return steps.forwards + 9 * visits.forwards

    best = best_llm_batch(8, fraction, lambda _: 1.0, lambda _: 9.0)
    assert best > 1
    assert replayed(best) <= 1.03 * min(map(replayed, range(1, 9)))


def test_nobody_waits_for_an_llm_whose_rows_cost_as_much_as_its_forwards():
    assert best_llm_batch(8, 0.2, lambda _: 1.0, lambda rows: rows) == 1


@pytest.mark.parametrize("slots", [8, 64])
@pytest.mark.parametrize("fraction", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("llm_weights", [3, 10])
def test_half_of_the_slots_is_near_the_best_where_weights_take_the_time(
    slots: int, fraction: float, llm_weights: int
) -> None:
    times = (lambda _: 1.0, lambda _: llm_weights)
    best = best_llm_batch(slots, fraction, *times)
    halved = seconds_per_token(usual_llm_batch(slots), slots, fraction, *times)
    assert halved <= 1.1 * seconds_per_token(best, slots, fraction, *times)
