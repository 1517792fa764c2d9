import pytest

from citer.evaluation.gate import Gate, Graded

GATE = Gate(margin=0.02, delta=0.05, resamples=500, seed=0)


def outcomes(correct: int, wrong: int, bytes: float = 50.0) -> dict[str, Graded]:
    marks = [True] * correct + [False] * wrong
    return {f"q{index}": Graded(mark, bytes) for index, mark in enumerate(marks)}


def test_without_a_champion_a_certified_cheaper_router_is_promoted():
    promote, reason = GATE.first(outcomes(90, 10, 40), outcomes(95, 5, 100), certified=True)
    assert promote
    assert "0.400 of the LLM's" in reason
    assert "100 questions" in reason


def test_without_a_champion_an_uncertified_router_is_not():
    decision = GATE.first(outcomes(99, 1, 40), outcomes(95, 5, 100), certified=False)
    assert not decision.promote
    assert "bound" in decision.reason


@pytest.mark.parametrize("bytes", [100, 130])
def test_without_a_champion_a_router_no_cheaper_than_the_llm_is_not(bytes):
    decision = GATE.first(outcomes(95, 5, bytes), outcomes(95, 5, 100), certified=True)
    assert not decision.promote
    assert f"{bytes / 100:.3f}" in decision.reason


def test_an_equal_challenger_is_promoted():
    assert GATE.against(outcomes(90, 10), outcomes(90, 10)).promote


def test_a_clearly_less_accurate_challenger_is_not():
    promote, reason = GATE.against(outcomes(800, 200, 30), outcomes(900, 100))
    assert not promote
    assert "-0.1000" in reason


def test_a_challenger_that_only_may_be_worse_is_not():
    # One answer in a hundred lost: within the margin, but its lower bound is not.
    assert not GATE.against(outcomes(99, 1), outcomes(100, 0)).promote
    assert GATE.against(outcomes(9990, 10), outcomes(10000, 0)).promote


def test_a_dearer_challenger_is_not_promoted_however_accurate():
    promote, reason = GATE.against(outcomes(95, 5, 51), outcomes(80, 20, 50))
    assert not promote
    assert "1.020 of the champion's bytes" in reason


def test_only_common_questions_count():
    champion = outcomes(90, 10) | {"other": Graded(True, 1.0)}
    challenger = outcomes(90, 10) | {"another": Graded(False, 1e9)}
    promote, reason = GATE.against(challenger, champion)
    assert promote
    assert "100 common questions" in reason


def test_no_common_question_is_a_no_with_its_reason():
    decision = GATE.against(outcomes(90, 10), {"other": Graded(True, 1.0)})
    assert not decision.promote
    assert "no question in common" in decision.reason
