"""The gate with extreme numbers, and with a promise that the champion breaks."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citer.evaluation.gate import Answered, Graded
from citer.evaluation.measure import FIDELITY, Conditions
from tests.gates import GATE

QUESTIONS = [f"q{number}" for number in range(200)]


def answered(bytes: float, bound: float = 0.02) -> Answered:
    return Answered({key: Graded(True, bytes) for key in QUESTIONS}, bytes, bound)


@given(st.lists(st.floats(1e-320, 1.7e308), min_size=3, max_size=3))
def test_bytes_so_large_or_small_that_their_sum_is_no_number_never_promote(sizes):
    challenger, champion, llm = map(answered, sizes)
    decision = GATE.decide(
        challenger, champion, llm, certified=True, champion_conditions=GATE.conditions
    )
    assert not decision.promote or challenger.batched <= 1.03 * champion.batched
    decision = GATE.decide(challenger, None, llm, certified=True)
    assert not decision.promote or challenger.batched <= llm.batched


STRICT = replace(GATE, epsilon=0.02)
KEPT, BROKEN = 0.019, 0.036  # bounds


def decide(challenger: Answered, champion: Answered, conditions: Conditions = STRICT.conditions):
    return STRICT.decide(
        challenger, champion, answered(100), certified=True, champion_conditions=conditions
    )


def test_a_champion_that_breaks_the_promise_now_asked_is_set_aside():
    """The challenger keeps the stricter one, for 1.28 of the champion's bytes."""
    promote, reason = decide(answered(64, KEPT), answered(50, BROKEN))
    assert promote
    assert reason == (
        "the champion does not keep the promise that is asked now (bound 0.036 at confidence 0.95, "
        "expected at most 0.02) and is set aside: its rule keeps the promised bound, and it moves "
        "0.640 of the LLM's bytes at batch 1, on 200 common questions"
    )
    promote, reason = decide(answered(64, KEPT), answered(50, KEPT))
    assert not promote
    assert reason.startswith("moves more bytes: ")


@pytest.mark.parametrize(
    ("challenger", "reason"),
    [
        (answered(64, BROKEN), "no rule cheaper than the LLM keeps the promised bound"),
        (answered(101, KEPT), "is set aside: it moves 1.010 of the LLM's bytes"),
        (
            Answered(dict.fromkeys(QUESTIONS[:9], Graded(True, 40)), None, KEPT),
            "is set aside: on test the LLM is right on 9 questions, expected at least 160",
        ),
        (
            Answered({q: Graded(q not in QUESTIONS[:5], 40) for q in QUESTIONS}, None, KEPT),
            "wrong on 5 of the 200 test questions that the LLM answers right, expected at most 2.0",
        ),
    ],
    ids=["its own bound", "bytes of the LLM", "questions", "test"],
)
def test_without_a_bar_the_challenger_must_still_keep_its_own_promise(challenger, reason):
    promote, said = decide(challenger, answered(50, BROKEN))
    assert not promote
    assert reason in said


def test_a_champion_of_another_measure_stays_a_matter_for_people():
    other = Conditions(FIDELITY)
    decision = decide(answered(10, KEPT), answered(50, BROKEN), other)
    assert not decision.promote
    assert "run `citer promote VERSION`" in decision.reason
