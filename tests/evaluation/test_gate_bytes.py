"""At which batch size the gate compares bytes, and by how much they may exceed the champion's."""

from dataclasses import replace

import pytest

from citer.evaluation.gate import Answered, Decision, Gate, Graded
from tests.gates import GATE

AT_32 = replace(GATE, batch=32)


def answered(bytes: float, batched: float | None = None, wrong: int = 0, more: int = 0) -> Answered:
    """Answer 1,000 questions and `more` of another test set."""
    graded = {f"q{n}": Graded(n >= wrong, bytes) for n in range(1000 + more)}
    return Answered(graded, batched)


def decide(gate: Gate, challenger: Answered, champion: Answered | None) -> Decision:
    llm = answered(100.0, 200.0)
    return gate.decide(
        challenger, champion, llm, certified=True, champion_conditions=gate.conditions
    )


def test_an_equal_version_with_a_few_more_bytes_is_promoted():
    promote, reason = decide(GATE, answered(50.75), answered(50.0))
    assert promote
    assert (
        "1.015 of the champion's bytes at batch 1, on 1000 common questions (margin 0.02)" in reason
    )


@pytest.mark.parametrize(("bytes", "promote"), [(51.0, True), (51.1, False)])
def test_bytes_may_exceed_the_champions_by_the_byte_margin(bytes, promote):
    assert decide(GATE, answered(bytes), answered(50.0)).promote is promote


def test_a_version_that_is_worse_in_both_is_kept_back_though_within_the_margins():
    champion = answered(50.0)
    assert decide(GATE, answered(50.0, wrong=1), champion).promote
    promote, reason = decide(GATE, answered(50.1, wrong=1), champion)
    assert not promote
    assert reason.startswith("less accurate, and more bytes: on 1000 common questions accuracy ")


@pytest.mark.parametrize(("batched", "promote"), [(88.0, True), (103.0, False)])
def test_bytes_in_a_batch_decide_instead_of_those_at_batch_1(batched, promote):
    """Here batch 1 would decide otherwise."""
    challenger = answered(60.0 if promote else 40.0, batched)
    champion = answered(50.0, 100.0)
    decision = decide(AT_32, challenger, champion)
    assert decision.promote is promote
    moved = f"{batched / 100:.3f} of the champion's bytes at batch 32 (margin 0"
    assert moved in decision.reason
    assert decide(GATE, challenger, champion).promote is not promote


def test_without_a_champion_the_llms_bytes_are_taken_at_the_same_batch_size():
    challenger = answered(99.0, 220.0)
    assert decide(GATE, challenger, None).promote
    promote, reason = decide(AT_32, challenger, None)
    assert not promote
    assert "1.100 of the LLM's bytes at batch 32" in reason


@pytest.mark.parametrize(
    ("champion", "because"),
    [
        (answered(50.0, 10.0, more=1), "the test questions differ"),
        (answered(50.0), "a version has no cost at this batch size"),
    ],
)
def test_what_cannot_be_compared_in_a_batch_is_compared_at_batch_1(champion, because):
    promote, reason = decide(AT_32, answered(40.0, 90.0), champion)
    assert promote
    compared = f"at batch 1, on 1000 common questions (not at batch 32: {because})"
    assert f"0.800 of the champion's bytes {compared}" in reason
