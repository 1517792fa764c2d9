"""The order in which validation tests the rules of all lines, and what it then promises."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from citer.evaluation.choice import (
    Candidate,
    Step,
    choose_each,
    deployed,
    explained,
    sequence,
    upper_bound,
    worth_testing,
)
from citer.rule import LLM, Rule
from tests.evaluation.test_choice import seen


def exact(risk: float, discordant: int, cost: float, n: int = 100) -> Candidate:
    return replace(seen(0, discordant, cost, n), rule=Rule("risk", risk, 1))


def test_rules_go_from_the_fewest_lost_questions_to_the_most():
    lost = [0, 2, 5, 1, 3]
    tried = [seen(0.9 - n / 10, each, 0.5 - n / 10) for n, each in enumerate(lost)]
    assert sequence(tried, 0.05) == [0, 3, 1, 4, 2]


def test_of_rules_that_lose_equally_many_the_dearest_comes_first():
    assert sequence([seen(0.9, 1, 0.4), seen(0.8, 1, 0.5), seen(0.7, 1, 0.45)], 0.05) == [1, 2, 0]


def test_a_rule_that_surely_loses_more_than_epsilon_is_not_tested():
    """With a risk of 5 %, 10 or more of 100 are lost in 2.8 % of cases, 9 or more in 6.3 %."""
    assert binom.sf(9, 100, 0.05) < 0.05 < binom.sf(8, 100, 0.05)
    assert sequence([seen(0.9, 9, 0.4), seen(0.8, 10, 0.3)], 0.05) == [0]


def test_without_held_out_questions_the_rules_keep_their_order():
    assert sequence([seen(0.9 - n / 10, 0, 0.0, n=0) for n in range(5)], 0.05) == [0, 1, 2, 3, 4]


def test_a_rule_is_worth_no_test_if_a_cheaper_one_of_its_family_loses_no_more():
    beaten = seen(0.5, 2, 0.5)
    assert worth_testing([beaten, seen(0.4, 2, 0.4)]) == [1]
    assert worth_testing([beaten, seen(0.4, 0, 0.4), seen(0.3, 3, 0.3)]) == [1, 2]
    assert worth_testing([beaten, seen(0.4, 3, 0.4)]) == [0, 1], "cheaper, but it loses more"
    assert worth_testing([beaten, seen(0.4, 1, 0.5)]) == [0, 1], "no cheaper"
    assert worth_testing([beaten, seen(0.4, 2, 0.5), seen(0.3, 3, 0.3)]) == [0, 2], "they are alike"


def test_a_rule_that_loses_more_than_a_fifth_is_worth_no_test_whatever_the_promise_is():
    assert worth_testing([seen(0.5, 20, 0.5), seen(0.4, 21, 0.4)]) == [0]
    assert worth_testing([seen(0.5, 21, 0.5), seen(0.4, 100, 0.4)]) == []


def test_without_a_held_out_question_that_counts_all_rules_are_worth_a_test():
    assert worth_testing([seen(0.9, 0, 0.9 - n / 10, n=0) for n in range(5)]) == [0, 1, 2, 3, 4]


def step(method: str, validation: Candidate) -> Step:
    return Step(method, seen(validation.rule.at, 0, validation.cost), validation)


def test_a_method_loses_rules_by_its_own_failures_and_the_deployed_rule_by_all():
    steps = [
        step("router", seen(0.9, 0, 0.6)),
        step("audited", seen(0.8, 1, 0.5)),
        step("router", seen(0.7, 1, 0.55)),
        step("rival", seen(0.65, 0, 0.45)),
        step("router", seen(0.6, 30, 0.3)),  # fails
        step("rival", seen(0.55, 0, 0.2)),  # passes beside the rival's rules alone
        step("router", seen(0.5, 0, 0.1)),  # fails after its own failure
    ]
    chosen = choose_each(steps, ["router", "audited", "third", "rival"], 0.05, 0.05)
    rules = {method: each.rule.at for method, each in chosen.items() if method != "third"}
    assert rules == {"router": 0.7, "audited": 0.8, "rival": 0.65}
    assert chosen["third"].rule == LLM
    assert [each.certified for each in chosen.values()] == [True, True, False, True]
    assert {each.delta for each in chosen.values()} == {0.05}
    assert deployed(chosen) == "rival"
    without = choose_each(
        [each for each in steps if each.held_out.rule.at != 0.65],
        ["router", "audited", "rival"],
        0.05,
        0.05,
    )
    assert deployed(without) == "audited"
    assert without["rival"].rule.at == 0.55


def test_a_method_keeps_its_own_rule_if_no_rule_passes_the_test_of_all():
    """The failure of the rival's first rule leaves the router's none of the level that it needs."""
    steps = [step("rival", seen(0.9, 9, 0.6, n=70)), step("router", seen(0.8, 0, 0.5, n=70))]
    for methods in (["router", "rival"], ["rival", "router"]):
        chosen = choose_each(steps, methods, 0.05, 0.05)
        assert (chosen["router"].rule.at, chosen["router"].certified) == (0.8, True)
        assert (chosen["rival"].rule, deployed(chosen)) == (LLM, "llm")


def test_a_method_of_exact_rules_gets_its_cheapest_one_though_nothing_can_be_certified():
    """Three questions are too few for any other rule; a failure before changes nothing."""
    steps = [
        step("router", seen(0.9, 0, 0.2, n=3)),
        step("exact", exact(0.5, 0, 0.6, n=3)),
        step("exact", exact(0.4, 0, 0.5, n=3)),
    ]
    chosen = choose_each(steps, ["router", "exact"], 0.05, 0.05)
    assert {method: each.rule for method, each in chosen.items()} == {
        "router": LLM,
        "exact": Rule("risk", 0.4, 1),
    }
    assert (chosen["exact"].certified, chosen["exact"].bound) == (True, 0.0)
    assert deployed(chosen) == "exact"


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

    def counted(lost_LT: np.ndarray, n: int) -> list[Candidate]:
        return [
            Candidate(rule, n, int(lost), 0.1, cost)
            for row in zip(rule_LT, lost_LT, cost_LT, strict=True)
            for rule, lost, cost in zip(*row, strict=True)
        ]

    tried, judged = counted(held_LT, 60), counted(lost_LT, 300)
    methods = [f"{line}" for line, rules in enumerate(rule_LT) for _ in rules]
    steps = [Step(methods[n], tried[n], judged[n]) for n in sequence(tried, 0.05)]
    chosen = choose_each(steps, ["0", "1"], 0.05, delta)
    best = chosen[deployed(chosen)]
    return best.certified and best.rule.at > 0.05
