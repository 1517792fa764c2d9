"""Costs and seconds of schedules, and figures relative to vLLM alone."""

import pytest

from benchmarks.lockstep import costs, sized, traces
from benchmarks.pairs import Subject
from benchmarks.replay import seconds_of
from benchmarks.vllm import compared
from citer.decoding.answer import Request, Visit, Work
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE
from citer.evaluation.cost import Prices, Trace
from citer.models.pair import Pair

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


def test_traces_are_in_the_order_of_the_requests(pair: Pair) -> None:
    requests = [Request(f"q{n}", tuple(range(20, 60 - 5 * n))) for n in range(6)]
    engine = Engine(pair, slots=6, max_new_tokens=12)
    answers = {answer.key: answer for answer in engine.decode(requests, LLM_ALONE)}
    assert list(answers) != [each.key for each in requests]  # as they end
    expected = [
        Trace.of(len(each.prompt_ids), len(own.token_ids), own.visits)
        for each, own in ((each, answers[each.key]) for each in requests)
    ]
    assert traces(engine, requests, LLM_ALONE) == expected


def test_figures_are_relative_to_the_llm_alone_in_the_same_turn() -> None:
    alone = {"answers": [[1], [2]], "processor": 4.0, "seconds": 8.0}
    run = {"answers": [[1], [3]], "processor": 1.0, "seconds": 6.0}
    shares = {"identical": 1, "seconds": 0.25, "clock": 0.75}
    assert compared(run, alone) == run | shares
