"""The engine's delay, compared by replay with waiting for any fixed number of answers."""

import random

import pytest

from citer.decoding.answer import llm_runs
from citer.evaluation import cost
from citer.evaluation.cost import Batch, Trace
from tests.decoding.reference import by_score


def schedules(fraction: float, count: int) -> list[Trace]:
    draw = random.Random(0)
    texts = ("".join("SL"[draw.random() < fraction] for _ in range(1000)) for _ in range(count))
    return [Trace.of(5, len(text), by_score(text)) for text in texts]


@pytest.mark.parametrize("fraction", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("llm_weights", [3, 10])
def test_waiting_for_half_of_the_answers_is_nearly_optimal_if_weights_take_the_time(
    fraction: float, llm_weights: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = 8
    traces = schedules(fraction, 2 * slots)

    def seconds() -> float:
        slm, llm = Batch("", slots, "delayed").work(traces)
        return slm.forwards + llm_weights * llm.forwards

    def waiting_for(llm_batch: int) -> float:
        """Return the seconds of a schedule whose LLM waits for `llm_batch` answers."""

        def runs(waiting: int, drafting: int, delayed: bool) -> bool:
            return waiting > 0 and (waiting >= llm_batch or not drafting)

        with monkeypatch.context() as patch:
            patch.setattr(cost, "llm_runs", runs)
            return seconds()

    assert seconds() <= 1.1 * min(map(waiting_for, range(1, slots + 1)))


@pytest.mark.parametrize(("in_flight", "enough"), [(0, 1), (1, 1), (2, 1), (3, 2), (8, 4), (9, 5)])
def test_a_delayed_llm_waits_for_half_of_the_answers_in_flight(in_flight: int, enough: int) -> None:
    for waiting in range(in_flight + 1):
        assert llm_runs(waiting, in_flight - waiting, True) == (waiting >= enough)
        assert llm_runs(waiting, in_flight - waiting, False) == (waiting > 0)
