"""What an engine takes, and which scorers it runs for the requests in flight."""

import pytest
from torch import Tensor

from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import SLM_ALONE, Policy, StepView
from citer.errors import InputError
from citer.models.pair import Pair
from citer.rule import Rule
from tests.decoding.reference import random_scorer, scheduled, uncached
from tests.decoding.test_engine import MAX_NEW_TOKENS, make_requests
from tests.decoding.test_steps import Log


class Counting:
    """A scorer that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, view: StepView) -> Tensor:
        self.calls += 1
        return random_scorer(view)


def test_the_scorer_of_a_cancelled_request_runs_no_more(pair: Pair) -> None:
    engine, gone, stays = Engine(pair, 2, MAX_NEW_TOKENS), Counting(), Counting()
    log = Log(engine)
    asked, rule = make_requests(2), Rule("score", 0.5)
    cancelled, other = (
        engine.submit(request, Policy(scorer, rule))
        for request, scorer in zip(asked, (gone, stays), strict=True)
    )
    log.step()
    engine.cancel(cancelled)
    before = gone.calls
    log.drain()
    assert gone.calls == before > 0
    [answer] = log.answers[other]
    assert list(answer.token_ids) == uncached(pair, asked[1], answer.policy, MAX_NEW_TOKENS)[0]


def test_scorers_of_finished_requests_do_not_pile_up_in_an_engine_that_is_never_idle(
    pair: Pair,
) -> None:
    log = Log(Engine(pair, 2, MAX_NEW_TOKENS))
    submitted = {}
    for request in make_requests(12):
        policy = Policy(scheduled(len(submitted)), Rule("score", 0.5))
        submitted[log.engine.submit(request, policy)] = request, policy
        while len(log.engine._sequences) > 1:
            log.step()
        assert len(log.engine._drafts.scorers) <= 2
    log.drain()
    for handle, (request, policy) in submitted.items():
        [answer] = log.answers[handle]
        tokens, by_llm = uncached(pair, request, policy, MAX_NEW_TOKENS)
        assert (list(answer.token_ids), list(answer.by_llm)) == (tokens, by_llm)


def test_policies_of_one_request_have_one_drafter_except_in_a_sweep(pair: Pair) -> None:
    engine, [request] = Engine(pair, 2, MAX_NEW_TOKENS), make_requests(1)
    policies = [
        Policy(random_scorer, Rule("every", 2, 0.5, draft=draft)) for draft in ("slm", "both")
    ]
    with pytest.raises(ValueError, match="2 drafters, expected one"):
        engine.submit(request, *policies)
    answers = {answer.policy: answer for answer in engine.sweep([request], policies)}
    for policy in policies:
        tokens, _ = uncached(pair, request, policy, MAX_NEW_TOKENS)
        assert list(answers[policy].token_ids) == tokens


@pytest.mark.parametrize("limits", [(0, 8), (2, 0)])
def test_an_engine_needs_a_slot_and_a_token(pair: Pair, limits: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"\d slots, \d new tokens: expected at least one of each"):
        Engine(pair, *limits)


def test_a_request_without_a_token_is_refused_when_it_is_submitted(pair: Pair) -> None:
    engine = Engine(pair, 1, MAX_NEW_TOKENS)
    with pytest.raises(InputError, match="empty: no tokens, expected a prompt"):
        engine.submit(Request("empty", ()), SLM_ALONE)
    assert engine.step() == []
