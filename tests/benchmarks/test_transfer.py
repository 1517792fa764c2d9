"""The transfer matrix, computed by hand."""

import numpy as np
import pytest

from benchmarks.stored import Rows
from benchmarks.transfer import Answers, matrix
from citer.rule import LLM, SLM, Rule
from tests.benchmarks.test_stored import HALF, answered

AUDITED = Rule("risk", 0.5, 0.1)
ALONE = answered("slm", SLM, "0000", 10), answered("llm", LLM, "1111", 100)


def answers(correct: str, moved: int, rule: Rule) -> Answers:
    by_score = answered("router", HALF, correct, moved)
    by_risk = answered("audited", AUDITED, correct, moved + 10)
    return Answers(Rows.of(*ALONE, by_score, by_risk), "router", rule)


def test_a_router_is_compared_with_the_one_of_the_task_over_seeds() -> None:
    answered = {
        "math": [answers("1100", 20, HALF), answers("1100", 40, HALF)],
        "mc": [answers("1011", 30, HALF), answers("1111", 50, HALF)],
    }
    by_router = matrix(answered, "math", 0.05)
    own, other = by_router["math"], by_router["mc"]
    assert own["accuracy"] == {"mean": (1, 1, 1), "above own": None}
    assert own["cost"]["mean"] == pytest.approx([0.3] * 3)
    assert other["accuracy"]["mean"][0] == 0.75
    assert other["accuracy"]["above own"][0] == -0.25
    assert other["cost"]["above own"] == pytest.approx([0.1] * 3)
    # 95 % of the LLM's accuracy lies at .95 of the way from the SLM to the rule, by cost .3 or .5.
    assert own["c95"]["mean"][0] == pytest.approx(np.mean([0.1 + 0.95 * 0.2, 0.1 + 0.95 * 0.4]))


def test_the_promise_is_counted_by_seed() -> None:
    seeds = [answers("1011", 30, HALF), answers("1111", 50, HALF), answers("0011", 50, LLM)]
    answered = {"math": [answers("1100", 20, HALF)], "mc": seeds}
    kept = matrix(answered, "math", 0.05)["mc"]["kept"]
    assert kept["risks"] == [0.5, 0, 0]  # the LLM's own answers lose none
    assert kept["seeds"] == 2
    assert kept["rules"][1:] == ["router: score 0.5", "router: score 1"]
