"""Costs and seconds of schedules, and figures relative to vLLM alone."""

import pytest

from benchmarks.lockstep import costs, seconds_of, sized
from benchmarks.pairs import Subject
from benchmarks.vllm import ALONE, relative
from citer.decoding.answer import Visit
from citer.decoding.work import Work
from citer.evaluation.cost import Prices, Trace

PRICES = Prices(slm_weights=1, llm_weights=10, slm_kv=0, llm_kv=0)


def test_costs_are_relative_to_the_llm_alone_in_the_same_rounds() -> None:
    drafted = Trace.of(5, 12, [Visit(12, 12, 12, 12)])
    alone = Trace.of(5, 12, [Visit(0, n, n) for n in range(12)])
    cost = costs([drafted] * 2, [alone] * 2, 2, PRICES.moved)
    assert cost["delayed"] == (12 + 10) / 120
    # The LLM writes the first token; the rows then draft 11, or 4, a visit's token and 6.
    assert cost["lockstep 16"] == (11 + 2 * 10) / 120
    assert cost["lockstep 8"] == (8 + 2 + 3 * 10) / 120


def test_the_pairs_have_the_bytes_of_their_names() -> None:
    ratios = {name: each.llm_weights / each.slm_weights for name, each in sized().items()}
    assert ratios == pytest.approx({"0.5B:1.5B": 3.1, "1.5B:7B": 4.9, "1.5B:72B": 47}, rel=0.02)


def test_seconds_are_those_of_each_model_s_forwards(subject: Subject) -> None:
    seconds = seconds_of(subject, 2)
    one, none = Work(forwards=1, positions=2), Work()
    visit = seconds(none, Work(forwards=1, positions=34))
    assert seconds(one, none) > 0
    assert visit > 0
    both = seconds(Work(forwards=3, positions=6), Work(forwards=2, positions=68))
    assert both == pytest.approx(3 * seconds(one, none) + 2 * visit)


def test_figures_are_relative_to_vllm_alone_at_as_many_sequences() -> None:
    def row(method: str, sequences: int, moved: float, answers: list[list[int]]) -> dict:
        row = {"method": method, "sequences": sequences, "bytes": moved, "answers": answers}
        return row | {"seconds": 2 * moved}

    rows = [
        row(ALONE, 8, 100, [[1], [2]]),
        row("routed", 8, 25, [[1], [3]]),
        row(ALONE, 32, 50, [[1], [2]]),
        row("routed", 32, 25, [[1], [2]]),
    ]
    figures = [(row["bytes"], row["seconds"], row["identical"]) for row in relative(rows)]
    assert figures == [(1, 1, 2), (0.25, 0.25, 1), (1, 1, 2), (0.5, 0.5, 2)]
