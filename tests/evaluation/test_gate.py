from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import ndtri
from scipy.stats import binom

from citer.evaluation.gate import (
    Answered,
    Decision,
    Gate,
    Graded,
    GradedAnswers,
    difference,
    least_difference,
)
from tests.gates import GATE, alone, outcomes


def first(challenger: GradedAnswers, llm_alone: GradedAnswers, certified: bool = True) -> Decision:
    return alone(GATE, challenger, llm_alone, certified)


def against(challenger: GradedAnswers, champion: GradedAnswers) -> Decision:
    """Compare both; the LLM is right wherever the challenger is, so the promise is kept."""
    return beside(GATE, challenger, champion, challenger)


def beside(
    gate: Gate,
    challenger: GradedAnswers,
    champion: GradedAnswers | None,
    llm_alone: GradedAnswers,
    certified: bool = True,
) -> Decision:
    """Decide with a champion that was measured like the challenger, or without one."""
    return gate.decide(
        Answered(challenger),
        Answered(champion) if champion else None,
        Answered(llm_alone),
        certified=certified,
        champion_conditions=gate.conditions,
    )


def test_without_a_champion_a_certified_cheaper_router_is_promoted():
    promote, reason = first(outcomes(91, 9, 40), outcomes(95, 5, 100))
    assert promote
    assert reason.startswith("no champion yet: ")
    assert "0.400 of the LLM's" in reason
    assert "at batch 1, on 100 common questions" in reason


def test_without_a_champion_an_uncertified_router_is_not_promoted():
    decision = first(outcomes(99, 1, 40), outcomes(95, 5, 100), certified=False)
    assert not decision.promote
    assert "bound" in decision.reason


@pytest.mark.parametrize("bytes", [100, 130])
def test_without_a_champion_a_router_no_cheaper_than_the_llm_is_not_promoted(bytes):
    decision = first(outcomes(95, 5, bytes), outcomes(95, 5, 100))
    assert not decision.promote
    assert f"{bytes / 100:.3f}" in decision.reason


def test_an_equal_challenger_is_promoted():
    assert against(outcomes(190, 10), outcomes(190, 10)).promote


def test_a_clearly_less_accurate_challenger_is_not_promoted():
    promote, reason = against(outcomes(800, 200, 30), outcomes(900, 100))
    assert not promote
    assert "-0.1000" in reason


def test_a_challenger_that_may_be_worse_is_not_promoted():
    # One answer in a hundred is lost. The mean is within the margin, but its lower bound is not.
    assert not against(outcomes(198, 2), outcomes(200, 0)).promote
    assert against(outcomes(9900, 100), outcomes(10000, 0)).promote


def test_a_challenger_that_may_lose_just_the_margin_is_promoted():
    challenger, champion = outcomes(198, 2), outcomes(200, 0)
    low = difference(challenger, champion, 0.05).low
    gate = replace(GATE, margin=-low)
    assert beside(gate, challenger, champion, challenger).promote


def test_a_more_expensive_challenger_is_not_promoted_however_accurate():
    promote, reason = against(outcomes(95, 5, 52), outcomes(80, 20, 50))
    assert not promote
    assert "1.040 of the champion's bytes at batch 1, on 100 common questions (margin 0" in reason


def test_only_common_questions_count():
    champion = outcomes(190, 10) | {"other": Graded(True, 1.0)}
    challenger = outcomes(190, 10) | {"another": Graded(False, 1e9)}
    promote, reason = against(challenger, champion)
    assert promote
    assert "200 common questions" in reason


def test_a_few_common_questions_promote_nothing():
    """This holds even if both answer them alike."""
    for common in (1, 40, 149):
        assert not against(outcomes(common, 0), outcomes(common, 0)).promote


def test_a_champion_is_never_displaced_on_other_questions():
    challenger, llm_alone = outcomes(100, 0, 40), outcomes(100, 0, 100)
    champion = {"other": Graded(False, 1e9)}
    promote, reason = beside(GATE, challenger, champion, llm_alone)
    assert not promote
    assert reason.startswith("no test question in common with the champion's")
    assert reason.endswith("run `citer promote VERSION`")
    assert first(challenger, llm_alone).promote


@pytest.mark.parametrize("champion", [None, outcomes(0, 1000, 60), {"other": Graded(False, 60)}])
@pytest.mark.parametrize(
    ("challenger", "llm_alone", "reason"),
    [
        ((0, 1000), (0, 1000), "the LLM is right on 0 of 1000 test questions, expected at "),
        ((199, 801), (199, 801), "the LLM is right on 199 of 1000 test questions, expected at "),
        (
            (0, 1000),
            (1000, 0),
            "wrong on 1000 of the 1000 test questions that the LLM answers right",
        ),
        (
            (899, 101),
            (950, 50),
            "wrong on 51 of the 950 test questions that the LLM answers right, ",
        ),
    ],
    ids=["both never right", "LLM below the floor", "never right", "promise broken"],
)
def test_a_certified_router_that_breaks_the_promise_or_the_floor_on_test_is_never_promoted(
    champion, challenger, llm_alone, reason
):
    llm = outcomes(*llm_alone, bytes=100)
    decision = beside(GATE, outcomes(*challenger, bytes=40), champion, llm)
    assert not decision.promote
    assert decision.reason.startswith(reason)


def test_without_a_floor_the_llm_must_still_be_right_on_something():
    gate = replace(GATE, llm_floor=0.0)
    decision = alone(gate, outcomes(0, 9, 40), outcomes(0, 9, 100))
    assert decision == (
        False, "the LLM is right on 0 of 9 test questions, expected at least one"
    )  # fmt: skip
    assert alone(gate, outcomes(63, 900, 40), outcomes(63, 900, 100)).promote


def test_without_a_test_question_nothing_is_promoted():
    assert not first({}, {}).promote


def test_a_first_router_needs_as_many_test_questions_as_certify_a_rule_on_validation():
    """1 - .05 ** n is above the first rule's part of delta, .8 * .05, up to n = 62."""
    decision = first(outcomes(62, 9, 40), outcomes(62, 9, 100))
    assert decision == (
        False,
        "no champion yet: on test the LLM is right on 62 questions, expected at least 63",
    )
    assert first(outcomes(63, 9, 40), outcomes(63, 9, 100)).promote


def test_a_promise_kept_to_the_last_question_and_a_floor_just_reached_are_enough():
    assert first(outcomes(190, 810, 40), outcomes(200, 800, 100)).promote


def test_an_uncertified_challenger_displaces_no_champion():
    equal = outcomes(1000, 0, 40)
    assert beside(GATE, equal, equal, outcomes(1000, 0, 100)).promote
    promote, reason = beside(GATE, equal, equal, outcomes(1000, 0, 100), certified=False)
    assert not promote
    assert reason == "no rule cheaper than the LLM keeps the promised bound"


def test_a_difference_is_paired_and_bounded_on_either_side():
    one = {"a": Graded(True, 1.0), "b": Graded(False, 1.0), "c": Graded(True, 1.0)}
    other = {"b": Graded(True, 1.0), "c": Graded(False, 1.0), "a": Graded(False, 1.0)}
    gap = difference(one | {"d": Graded(True, 1.0)}, other, 0.05)
    assert (gap.questions, gap.mean) == (3, 1 / 3)
    assert (gap.low, gap.high) == (
        least_difference(2, 1, 3, 0.05),
        -least_difference(1, 2, 3, 0.05),
    )
    assert -1 < gap.low < gap.mean < gap.high < 1


@pytest.mark.parametrize(
    ("gained", "lost", "questions"), [(7, 1, 21), (1, 7, 21), (3, 5, 1000), (20, 20, 40), (0, 0, 9)]
)
def test_the_bound_inverts_the_score_test(gained, lost, questions):
    """Tango's test, with a search for the maximum-likelihood shares under the bound."""
    least = least_difference(gained, lost, questions, 0.05)

    def unlikelihood(p_lost: float) -> float:
        shares = np.array([p_lost + least, p_lost, 1 - 2 * p_lost - least])
        seen = np.array([gained, lost, questions - gained - lost])
        return -float((seen * np.log(np.maximum(shares, 1e-300))).sum())

    range_ = (max(0.0, -least), (1 - least) / 2)
    p_lost = minimize_scalar(unlikelihood, range_, bounds=range_, options={"xatol": 1e-12}).x
    error = (questions * (2 * p_lost + least - least**2)) ** 0.5
    score = (gained - lost - 0.5 - questions * least) / error
    assert score == pytest.approx(ndtri(0.95), abs=1e-4)


def test_the_bound_is_minus_1_if_every_question_is_lost():
    assert least_difference(0, 40, 40, 0.05) == -1.0


@pytest.mark.parametrize("delta", [0.001, 0.05, 0.5, 0.9])
def test_every_outcome_has_a_bound_that_falls_with_more_losses(delta):
    for gained in range(13):
        bounds = [least_difference(gained, lost, 12, delta) for lost in range(13 - gained)]
        assert all(-1 <= bound <= 1 for bound in bounds)
        assert bounds == sorted(bounds, reverse=True)


def wrong_promotions(questions: int, p_gained: float) -> float:
    """Return the probability that the gate promotes a router that truly loses 2 %."""
    p_lost, total = p_gained + 0.02, 0.0
    for lost in range(int(binom.ppf(1 - 1e-6, questions, p_lost)) + 1):
        left = questions - lost
        gained = least_gained(lost, questions)
        p_enough = binom.sf(gained - 1, left, p_gained / (1 - p_lost))
        total += binom.pmf(lost, questions, p_lost) * p_enough
    return total


def least_gained(lost: int, questions: int) -> int:
    """Find the fewest gains with which the gate accepts that many losses."""
    for gained in range(questions - lost + 1):
        if least_difference(gained, lost, questions, 0.05) >= -0.02:
            return gained
    return questions + 1


@pytest.mark.parametrize("questions", [40, 135, 300, 1000])
@pytest.mark.parametrize("p_gained", [0.0, 0.01, 0.05])
def test_a_router_that_loses_the_margin_is_promoted_no_more_often_than_delta(questions, p_gained):
    assert wrong_promotions(questions, p_gained) <= 0.05


def test_a_router_that_loses_nothing_is_promoted_on_as_many_questions_as_in_the_default_run():
    """It nearly always passes with 1,000 questions, of which 1 % are gained and 1 % lost."""
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(1000, [0.01, 0.01, 0.98], size=200)
    promoted = [least_difference(*row[:2], 1000, 0.05) >= -0.02 for row in drawn.tolist()]
    assert np.mean(promoted) > 0.95
