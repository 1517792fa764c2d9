"""A gate with the default settings, and outcomes for it to decide on."""

from citer.evaluation.gate import Answered, Decision, Gate, Graded, GradedAnswers
from citer.evaluation.measure import Conditions

GATE = Gate(
    margin=0.02,
    byte_margin=0.02,
    batch=1,
    delta=0.05,
    epsilon=0.05,
    llm_floor=0.2,
    conditions=Conditions(),
)


def outcomes(correct: int, wrong: int, bytes: float = 50.0) -> dict[str, Graded]:
    marks = [True] * correct + [False] * wrong
    return {f"q{index}": Graded(mark, bytes) for index, mark in enumerate(marks)}


def alone(
    gate: Gate, challenger: GradedAnswers, llm_alone: GradedAnswers, certified: bool = True
) -> Decision:
    """Decide without a champion."""
    return gate.decide(Answered(challenger), None, Answered(llm_alone), certified=certified)
