from dataclasses import asdict
from itertools import compress
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from citer.config.params import load_params
from citer.evaluation import choice
from citer.evaluation.choice import (
    FIRST,
    Candidate,
    ChosenRule,
    Step,
    certified,
    choose_each,
    deployed,
    least_questions,
    upper_bound,
)
from citer.rule import LLM, Rule
from citer.storage.tables import read_as, write_json

ROOT = Path(__file__).parents[2]


def seen(tau: float, discordant: int, cost: float, n: int = 100) -> Candidate:
    rule = Rule("score", tau)
    return Candidate(rule=rule, n=n, discordant=discordant, llm_fraction=cost, cost=cost)


def choose(candidates: list[Candidate], epsilon: float, delta: float) -> ChosenRule:
    """Test the candidates in their order, and choose the cheapest that passes."""
    return choice.choose(
        compress(candidates, certified(candidates, epsilon, delta)), epsilon, delta
    )


def test_the_bound_without_an_error_is_as_by_hand():
    assert upper_bound(0, 100, 0.05) == pytest.approx(1 - 0.05 ** (1 / 100))


def test_the_bound_inverts_the_binomial_test():
    bound = upper_bound(7, 300, 0.05)
    assert binom.cdf(7, 300, bound) == pytest.approx(0.05)


@pytest.mark.parametrize("questions", [0, 10])
def test_the_bound_is_1_if_all_questions_are_lost_or_there_are_none(questions):
    assert upper_bound(questions, questions, 0.05) == 1.0


@pytest.mark.parametrize("epsilon", [0.05, 0.999])
def test_without_a_right_answer_of_the_llm_nothing_is_certified(epsilon):
    chosen = choose([seen(0.9, 0, 0.6, n=0), seen(0.1, 0, 0.1, n=0)], epsilon, 0.05)
    assert (chosen.rule, chosen.certified) == (LLM, False)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 0.05), (0.05, 0.05 / 3), (0.01, 0.1)])
def test_the_least_number_of_questions_is_as_by_hand(epsilon, delta):
    """Without an error n questions bound a share by 1 - δ^(1/n). The first rule has 0.8 δ."""
    least = least_questions(epsilon, delta)
    assert (1 - epsilon) ** least <= 0.8 * delta < (1 - epsilon) ** (least - 1)
    assert choose([seen(0.9, 0, 0.5, n=least)], epsilon, delta).certified
    assert not choose([seen(0.9, 0, 0.5, n=least - 1)], epsilon, delta).certified


def test_the_cheapest_rule_that_keeps_the_promise_is_chosen():
    chosen = choose([seen(0.9, 0, 0.6), seen(0.7, 1, 0.4), seen(0.5, 30, 0.2)], 0.05, 0.05)
    assert (chosen.rule.at, chosen.discordant, chosen.n, chosen.cost) == (0.7, 1, 100, 0.4)
    assert chosen.certified
    assert chosen.bound == upper_bound(1, 100, 0.05) <= 0.05


def test_a_rule_that_passes_hands_its_level_on_and_a_rule_that_fails_loses_it():
    """By hand, 5 rules at delta 0.05: levels 0.04, 0.0425, 0.045, 0.0025, 0.005."""
    levels = [0.04, 0.0425, 0.045, 0.0025, 0.005]
    passes = [True, True, False, True, True]
    for at, level in enumerate(levels):
        others = [seen(0.9, 0 if keeps else 100, 0.5, n=10_000) for keeps in passes]
        bound = upper_bound(3, 100, level)
        for epsilon, expected in ((bound, True), (bound - 1e-9, False)):
            tried = [*others[:at], seen(0.5, 3, 0.2), *others[at + 1 :]]
            tried[2] = tried[2] if at == 2 else seen(0.9, 9_999, 0.5, n=10_000)
            assert certified(tried, epsilon, 0.05)[at] is expected


def test_after_a_failure_a_rule_must_lose_less():
    candidates = [seen(0.9, 0, 0.6), seen(0.7, 30, 0.4), seen(0.5, 0, 0.2)]
    assert choose(candidates, 0.05, 0.05).rule == Rule("score", 0.9)
    many = [seen(each.rule.at, each.discordant, each.cost, n=200) for each in candidates]
    assert choose(many, 0.05, 0.05).rule == Rule("score", 0.5)


def test_the_cheapest_rule_is_chosen_by_bytes_not_by_its_place_in_the_line():
    chosen = choose([seen(0.9, 0, 0.5), seen(0.7, 0, 0.55)], 0.05, 0.05)
    assert chosen.rule == Rule("score", 0.9)


@pytest.mark.parametrize("candidates", [[], [seen(0.9, 30, 0.5)], [seen(0.9, 0, 1.0)]])
def test_the_llm_answers_alone_if_no_cheaper_rule_is_certified(candidates):
    chosen = choose(candidates, 0.05, 0.05)
    assert (chosen.rule, chosen.certified, chosen.cost, chosen.bound) == (LLM, False, 1.0, 0.0)


def test_a_bound_of_just_epsilon_keeps_the_promise():
    assert choose([seen(0.9, 1, 0.5)], upper_bound(1, 100, FIRST * 0.05), 0.05).certified


def test_an_exact_rule_keeps_the_promise_without_a_test_and_costs_no_confidence():
    """Its answers are the LLM's own. A rule after it is tested at the level that it had before."""
    exact = Candidate(Rule("risk", 0.5, 1), n=0, discordant=0, llm_fraction=0.5, cost=0.5)
    lost = seen(0.7, 3, 0.4)
    first, second = upper_bound(3, 100, 0.04), upper_bound(3, 100, 0.04 + 0.01)
    assert certified([lost], first, 0.05) == [True]
    assert certified([exact, lost], second, 0.05) == [True, True]
    assert certified([exact, lost], second - 1e-9, 0.05) == [True, False]
    assert certified([seen(0.9, 50, 0.6), exact], 0.05, 0.05) == [False, True]
    chosen = choose([seen(0.9, 0, 0.4, n=3), exact], 0.05, 0.05)
    assert (chosen.rule, chosen.cost) == (exact.rule, 0.5)
    assert (chosen.certified, chosen.bound) == (True, 0.0)


def test_an_exact_rule_that_lost_answers_by_near_ties_has_the_bound_of_its_losses():
    """It is no certificate without a doubt, and its record says so."""
    lost = Candidate(Rule("risk", 0.5, 1), n=100, discordant=5, llm_fraction=0.5, cost=0.5)
    chosen = choose([lost], 0.05, 0.05)
    assert (chosen.certified, chosen.bound) == (True, upper_bound(5, 100, 0.05))


def test_the_cheapest_method_on_validation_is_deployed_and_the_first_of_equals():
    costs = {"router": 0.5, "exact": 0.4, "bild": 0.4}
    steps = [Step(name, *[seen(0.9, 0, cost)] * 2) for name, cost in costs.items()]
    assert deployed(choose_each(steps, [*costs], 0.05, 0.05)) == "exact"
    assert deployed(choose_each(steps, ["policy", *costs], 0.05, 0.05)) == "exact"
    assert deployed(choose_each([], ["llm"], 0.05, 0.05)) == "llm"


def test_a_chosen_rule_round_trips_through_a_file(tmp_path):
    rule = Rule("risk", 0.8, 0.1)
    chosen = choose([Candidate(rule, 100, 0, 0.2, 0.5)], 0.05, 0.05)
    assert chosen.rule == rule
    write_json(tmp_path / "threshold.json", asdict(chosen))
    assert read_as(tmp_path / "threshold.json", ChosenRule) == chosen


@pytest.mark.parametrize("p_right", [0.02, 0.3, 0.95])
@pytest.mark.parametrize("p_lost", [0.051, 0.1, 1.0])
def test_a_rule_that_breaks_the_promise_is_certified_no_more_often_than_delta(p_right, p_lost):
    """Enumerate all outcomes of 300 questions: the LLM is right on n and some of these are lost."""
    certified = 0.0
    for n in range(301):
        passing = [lost for lost in range(n + 1) if upper_bound(lost, n, 0.05) <= 0.05]
        certified += binom.pmf(n, 300, p_right) * binom.pmf(passing, n, p_lost).sum()
    assert certified <= 0.05


@pytest.mark.parametrize("p_right", [0.3, 0.95])
def test_the_promise_of_a_chosen_rule_holds_at_its_confidence(p_right):
    """Draw 2,000 times: each rule is cheaper than the one before, and loses more questions."""
    rates = np.linspace(0.02, 0.09, 8)
    rng = np.random.default_rng(0)
    broken = 0
    for _ in range(2000):
        fragile = rng.random(
            rng.binomial(600, p_right)
        )  # a rule loses the questions below its rate
        line = [
            seen(1 - rate, int((fragile < rate).sum()), 1 - rate, n=len(fragile)) for rate in rates
        ]
        chosen = choose(line, 0.05, 0.05)
        broken += chosen.certified and 1 - chosen.rule.at > 0.05
    assert 0 < broken / 2000 <= 0.05


def test_the_documents_say_how_many_questions_the_promise_needs():
    params = load_params(ROOT / "citer/config/params.yaml").evaluate
    least = least_questions(params.epsilon, params.delta)
    method, own_data = ((ROOT / f"docs/{name}.md").read_text() for name in ("method", "own-data"))
    assert f"with ε = δ = {params.epsilon} from {least} on." in method
    assert f"takes at least {least} validation questions" in own_data
    for lost, needed in ((0, least), (1, 99), (2, 130)):
        bounds = [upper_bound(lost, n, 0.8 * params.delta) for n in (needed, needed - 1)]
        assert bounds[0] <= params.epsilon < bounds[1]
    assert "loses one answer, n must be 99; if it loses two, 130." in method


def test_an_exact_rule_that_loses_more_than_near_ties_explain_is_not_certified():
    lost = {n: Candidate(Rule("risk", 0.5, 1), 100, n, 0.5, 0.5) for n in (5, 6)}
    assert [certified([each], 0.05, 0.05) for each in lost.values()] == [[True], [False]]
