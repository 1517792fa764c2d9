"""The order in which validation tests the rules of all lines, and what it then promises."""

import numpy as np
import pytest
from scipy.stats import binom

from citer.evaluation.choice import Candidate, upper_bound
from citer.evaluation.sequence import Step, choose_each, explained, sequence, worth_testing
from citer.rule import LLM, Rule


def seen(tau: float, discordant: int, cost: float, n: int = 100) -> Candidate:
    rule = Rule("score", tau)
    return Candidate(rule=rule, n=n, discordant=discordant, llm_fraction=cost, cost=cost)


def test_rules_of_all_lines_go_from_the_fewest_lost_questions_to_the_most():
    one = [seen(0.9, 0, 0.5), seen(0.8, 2, 0.4), seen(0.7, 5, 0.3)]
    other = [seen(0.6, 1, 0.45), seen(0.5, 3, 0.2)]
    assert sequence([one, other], 0.05) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]


def test_of_rules_that_lose_equally_many_the_dearest_comes_first():
    assert sequence([[seen(0.9, 1, 0.4), seen(0.8, 1, 0.5)], [seen(0.7, 1, 0.45)]], 0.05) == [
        (0, 1),
        (1, 0),
        (0, 0),
    ]


def test_a_rule_that_surely_loses_more_than_epsilon_is_not_tested():
    """With a risk of 5 %, 10 or more of 100 are lost in 2.8 % of cases, 9 or more in 6.3 %."""
    assert binom.sf(9, 100, 0.05) < 0.05 < binom.sf(8, 100, 0.05)
    assert sequence([[seen(0.9, 9, 0.4), seen(0.8, 10, 0.3)]], 0.05) == [(0, 0)]


def test_of_the_rules_of_a_line_that_lose_nothing_the_three_cheapest_are_tested():
    line = [seen(0.9 - n / 10, 0, 0.8 - n / 10) for n in range(5)]
    assert sequence([line, line[:1]], 0.05) == [(1, 0), (0, 2), (0, 3), (0, 4)]


def test_a_rule_is_not_tested_if_three_cheaper_ones_lose_no_more():
    beaten = seen(0.5, 2, 0.5)
    cheaper = [seen(0.4, 0, 0.4), seen(0.3, 1, 0.3), seen(0.2, 2, 0.2), seen(0.1, 3, 0.1)]
    assert worth_testing([beaten, *cheaper]) == [1, 2, 3, 4]
    assert worth_testing([beaten, *cheaper[1:]]) == [0, 1, 2, 3]
    assert worth_testing([seen(0.9, 0, 0.5, n=0)] * 5) == [0, 1, 2, 3, 4]


def test_without_held_out_questions_every_line_gives_its_safest_rule_first():
    line = [seen(0.9 - n / 10, 0, 0.0, n=0) for n in range(5)]
    rounds = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (0, 3), (0, 4)]
    assert sequence([line, line[:2]], 0.05) == rounds


def step(method: str, validation: Candidate) -> Step:
    return Step(method, seen(validation.rule.at, 0, validation.cost), validation)


def test_each_method_gets_its_cheapest_rule_before_the_first_failure():
    steps = [
        step("router", seen(0.9, 0, 0.6)),
        step("audited", seen(0.8, 1, 0.5)),
        step("router", seen(0.7, 1, 0.55)),
        step("router", seen(0.6, 30, 0.3)),  # fails
        step("audited", seen(0.5, 0, 0.2)),  # would pass
    ]
    chosen = choose_each(steps, ["router", "audited", "third"], 0.05, 0.05)
    rules = {method: each.rule for method, each in chosen.items()}
    assert rules == {"router": Rule("score", 0.7), "audited": Rule("score", 0.8), "third": LLM}
    assert [each.certified for each in chosen.values()] == [True, True, False]
    assert {each.delta for each in chosen.values()} == {0.05}


def test_a_step_as_a_row_has_the_evidence_of_both_splits_and_whether_it_passed():
    [row] = explained([step("router", seen(0.9, 1, 0.6))], epsilon=0.05, delta=0.05)
    assert row == {
        "method": "router",
        "rule": "score 0.9",
        "held_out": {"n": 100, "discordant": 0, "cost": 0.6},
        "validation": {"n": 100, "discordant": 1, "cost": 0.6},
        "bound": upper_bound(1, 100, 0.05),
        "passed": True,
    }


def test_a_rule_after_a_failure_may_fail_though_its_own_bound_is_low_enough():
    """It is tested at its part of delta only. The third has the same results, and passes first."""
    lost = [30, 1, 1]
    steps = [step("router", seen(0.9 - n / 10, each, 0.6)) for n, each in enumerate(lost)]
    _, after, _ = explained(steps, epsilon=0.05, delta=0.05)
    assert (after["bound"] <= 0.05, after["passed"]) == (True, False)
    first, *_ = explained(steps[::-1], epsilon=0.05, delta=0.05)
    assert first["passed"]


def _many(low: float, high: float) -> list[float]:
    return np.linspace(low, high, 60).tolist()


# True risks of two lines of rules. The promise is 5 %; the cheaper of two rules loses more.
PROFILES = {
    "all break it": ([0.051, 0.055, 0.06, 0.07], [0.051, 0.052, 0.055, 0.06]),
    "one line is safe": ([0.0, 0.02, 0.04, 0.051], [0.052, 0.055, 0.06, 0.07]),
    "not in the order of the lines": ([0.055, 0.01, 0.052, 0.03], [0.02, 0.051, 0.0, 0.06]),
    "120 rules break it": (_many(0.051, 0.055), _many(0.051, 0.08)),
    "120 rules, half of them safe": (_many(0.0, 0.05), _many(0.0501, 0.06)),
    "120 rules around it": (_many(0.03, 0.06), _many(0.06, 0.03)),
}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("shared", [True, False])
def test_no_promise_is_broken_more_often_than_delta(profile, shared):
    """Draw questions 1,000 times; if shared, a rule of higher risk loses all that others lose."""
    rng, delta = np.random.default_rng(7), 0.1
    risk_LT = np.array(PROFILES[profile])
    broken = 0
    for _ in range(1000):
        held, judged = (_losses(rng, risk_LT, questions, shared) for questions in (60, 300))
        broken += _breaks(risk_LT, held, judged, delta)
    assert binom.cdf(broken - 1, 1000, delta) < 0.999  # not surely more often
    assert broken > 0 or profile == "one line is safe"


def _losses(rng: np.random.Generator, risk_LT: np.ndarray, questions: int, shared: bool):
    """Count the lost questions of each rule."""
    shape = (1, 1, questions) if shared else (*risk_LT.shape, questions)
    return (rng.random(shape) < risk_LT[..., None]).sum(-1)


def _breaks(risk_LT: np.ndarray, held_LT: np.ndarray, lost_LT: np.ndarray, delta: float) -> bool:
    """Return whether a chosen rule of either method loses more than it promises."""
    cost_LT = 1 - 5 * risk_LT
    rule_LT = [[Rule("score", float(risk)) for risk in line] for line in risk_LT]

    def counted(lost_LT: np.ndarray, n: int) -> list[list[Candidate]]:
        return [
            [
                Candidate(rule, n, int(lost), 0.1, cost)
                for rule, lost, cost in zip(*row, strict=True)
            ]
            for row in zip(rule_LT, lost_LT, cost_LT, strict=True)
        ]

    tried, judged = counted(held_LT, 60), counted(lost_LT, 300)
    steps = [Step(f"{n}", tried[n][t], judged[n][t]) for n, t in sequence(tried, 0.05)]
    chosen = choose_each(steps, ["0", "1"], 0.05, delta)
    return any(each.certified and each.rule.at > 0.05 for each in chosen.values())
