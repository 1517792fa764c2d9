"""A gate with the default settings."""

from citer.evaluation.gate import Gate
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
