"""What the gate reads of a version's certificate."""

from dataclasses import asdict

import pytest

from citer.evaluation.choice import ChosenRule, upper_bound
from citer.rule import LLM, Rule
from flows.verdict import risk_bound


@pytest.mark.parametrize(
    ("rule", "certified", "bound"),
    [
        (Rule("risk", 0.5, 0.1), True, upper_bound(3, 200, 0.01)),
        (Rule("risk", 0.5, 0.1), False, 1.0),
        (LLM, False, 0.0),
    ],
)
def test_a_stored_certificate_is_read_at_the_confidence_now_asked(rule, certified, bound):
    stored = asdict(ChosenRule(rule, 0.05, 0.05, 200, 3, 0.037, certified, 0.2, 0.4))
    assert risk_bound(stored, 0.01) == bound
