"""What an engine takes."""

import pytest

from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import SLM_ALONE, Policy
from citer.errors import InputError
from citer.models.pair import Pair
from citer.rule import Rule
from tests.decoding.reference import random_scorer, uncached
from tests.decoding.test_engine import MAX_NEW_TOKENS, make_requests


def test_a_sweep_has_policies_of_several_drafters(pair: Pair) -> None:
    engine, [request] = Engine(pair, 2, MAX_NEW_TOKENS), make_requests(1)
    policies = [
        Policy(random_scorer, Rule("every", 2, 0.5, draft=draft)) for draft in ("slm", "both")
    ]
    answers = {answer.policy: answer for answer in engine.sweep([request], policies)}
    for policy in policies:
        tokens, _ = uncached(pair, request, policy, MAX_NEW_TOKENS)
        assert list(answers[policy].token_ids) == tokens


def test_a_request_without_a_token_is_refused_when_it_is_submitted(pair: Pair) -> None:
    engine = Engine(pair, 1, MAX_NEW_TOKENS)
    with pytest.raises(InputError, match="empty: no tokens, expected a prompt"):
        engine.submit(Request("empty", ()), SLM_ALONE)
    assert engine.step() == []
