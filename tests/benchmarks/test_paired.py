"""Readings of frontiers, by hand."""

import numpy as np
import pytest

from benchmarks.paired import Outcomes
from citer.data.problems import Problem
from citer.decoding.lane import Work
from citer.evaluation.cost import Batch, Prices, Trace
from citer.evaluation.sweep import Result, Run
from citer.rule import Rule

PRICES = Prices(slm_weights=1, llm_weights=10, slm_kv=0, llm_kv=0)
EACH_ONCE, ONLY_THE_THIRD = np.ones(4, int), np.array([0, 0, 4, 0])


def run(at: float, forwards: bytes, correct: str, digests: str) -> Run:
    """Four answers of these forwards each; `correct` and `digests` question by question."""
    slm, llm = (Work(forwards.upper().count(model), 0, 0) for model in (b"S", b"L"))
    rule = Rule("score", at)
    results = [
        Result(
            Problem(f"q{n}", "math", "", None, None, "1", "toy", "test"),
            rule,
            Trace(forwards, slm, llm),
            scores=(),
            correct=right == "1",
            truncated=False,
            counts={"tokens": 4, "llm_tokens": llm.forwards},
            digest=int(digest),
        )
        for n, (right, digest) in enumerate(zip(correct, digests, strict=True))
    ]
    return Run("method", rule, results, PRICES)


@pytest.fixture
def outcomes() -> Outcomes:
    """Costs of .1, .325, .55, .775 and 1; of all questions 1, 3, 2, 4 and 4 are right."""
    return Outcomes.of(
        [
            run(0, b"Ssss", "1000", "1234"),
            run(0.2, b"SsLs", "1110", "1574"),
            run(0.4, b"SsLl", "1010", "1534"),
            run(0.6, b"SLll", "1111", "5678"),
            run(1, b"Llll", "1111", "5678"),
        ]
    )


@pytest.mark.parametrize(
    ("share", "once", "third"),
    [(0.25, 0.1, 0.15625), (0.75, 0.325, 0.26875), (0.875, 0.55, 0.296875)],
)
def test_the_cost_of_an_accuracy_is_read_between_what_nothing_cheaper_reaches(
    outcomes: Outcomes, share: float, once: float, third: float
) -> None:
    drawn_RQ = np.array([EACH_ONCE, ONLY_THE_THIRD])
    assert outcomes.cost_for(share, drawn_RQ) == pytest.approx([once, third])


def test_an_exact_rule_writes_the_llms_tokens_in_every_answer_drawn(outcomes: Outcomes) -> None:
    drawn_RQ = np.array([EACH_ONCE, ONLY_THE_THIRD])
    assert outcomes.cost_of_exact(drawn_RQ) == pytest.approx([0.775, 0.325])


def test_the_cheapest_rule_is_one_that_reaches_the_target(outcomes: Outcomes) -> None:
    everything = EACH_ONCE.astype(bool)
    assert [outcomes.cheapest(share, everything) for share in (0.75, 0.8, None)] == [1, 3, 3]
    third = ONLY_THE_THIRD.astype(bool)
    assert [outcomes.cheapest(share, third) for share in (0.75, None)] == [1, 1]


def test_a_batch_is_priced_against_the_llm_in_the_same(outcomes: Outcomes) -> None:
    mine_Q = np.array([True, True, False, True])
    assert outcomes.cost_at(Batch("b1", 1), 1, mine_Q) == pytest.approx(0.325)
    assert outcomes.cost_at(Batch("b3", 3), 2, mine_Q) == pytest.approx(0.55)


def test_llm_fractions_are_read_linearly(outcomes: Outcomes) -> None:
    [fraction] = outcomes.fraction_for(0.5, EACH_ONCE[None, :])
    assert fraction == pytest.approx(0.125)  # half of the way from 0 (1 right) to 1/4 (3 right)
