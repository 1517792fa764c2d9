"""The gate's decision where routers are measured by fidelity to the LLM."""

from dataclasses import replace

import pytest

from citer.evaluation.gate import Answered, Decision, Graded
from citer.evaluation.measure import FIDELITY, Conditions
from tests.gates import GATE as ACCURATE
from tests.gates import alone, outcomes

FAITHFUL = Conditions(FIDELITY, "temperature 0.7", "1a2b3c4d5e")
GATE = replace(ACCURATE, conditions=FAITHFUL)


def beside(conditions: Conditions, challenger: dict[str, Graded]) -> Decision:
    """Decide with a champion that was measured under `conditions`."""
    answered = map(Answered, (challenger, outcomes(196, 4), outcomes(200, 0, 100)))
    return GATE.decide(*answered, certified=True, champion_conditions=conditions)


@pytest.mark.parametrize(
    ("conditions", "measured"),
    [
        (Conditions(), "accuracy, greedy"),
        (FAITHFUL._replace(sampling="greedy"), "fidelity to LLM 1a2b3c4, greedy"),
        (FAITHFUL._replace(llm="99"), "fidelity to LLM 99, temperature 0.7"),
        (FAITHFUL._replace(prompts="5"), "fidelity to LLM 1a2b3c4, prompts 5, temperature 0.7"),
    ],
    ids=["measure", "sampling", "llm", "prompts"],
)
def test_a_champion_that_was_measured_otherwise_is_not_compared(conditions, measured):
    decision = beside(conditions, outcomes(200, 0, 10))
    assert not decision.promote
    assert decision.reason == (
        "measured by fidelity to LLM 1a2b3c4, temperature 0.7, "
        f"the champion by {measured}, so the two cannot be compared; "
        "to promote it anyway, run `citer promote VERSION`"
    )
    assert beside(FAITHFUL, outcomes(200, 0, 10)).promote


def test_a_champion_that_is_set_aside_may_have_been_measured_otherwise():
    answered = map(Answered, (outcomes(200, 0, 10), outcomes(196, 4), outcomes(200, 0, 100)))
    measured = {"champion_conditions": Conditions()}
    decision = GATE.decide(*answered, certified=True, set_aside="is gone", **measured)
    moved = "it moves 0.100 of the LLM's bytes at batch 1, on 200 common questions"
    said = f"the champion is gone: its rule keeps the promised bound, and {moved}"
    assert decision == Decision(True, said)


@pytest.mark.parametrize(
    ("challenger", "reason"),
    [
        (
            outcomes(196, 4),
            "not worse by more than the margins: on 200 common questions ",
        ),
        (outcomes(190, 10), "may be less faithful: on 200 common questions fidelity differs"),
        (
            outcomes(189, 11),
            "the answer differs from the LLM's on 11 of 200 test questions, expected at most 5.0%",
        ),
    ],
    ids=["kept", "worse", "broken"],
)
def test_reasons_speak_of_fidelity(challenger, reason):
    assert beside(FAITHFUL, challenger).reason.startswith(reason)


def test_the_promise_counts_questions_on_which_the_llm_does_not_repeat_its_answer():
    challenger, llm = outcomes(180, 20), outcomes(180, 20, 100)
    decision = alone(GATE, challenger, llm)
    assert decision.reason.startswith("the answer differs from the LLM's on 20 of 200 ")
    by_accuracy = replace(GATE, conditions=Conditions())
    assert alone(by_accuracy, challenger, llm).promote


def test_the_llm_floor_does_not_apply():
    challenger, llm = outcomes(200, 0), outcomes(0, 200, 100)
    strict = replace(GATE, llm_floor=1.0)
    assert alone(strict, challenger, llm).promote
