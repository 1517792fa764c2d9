"""Requests that share a trunk, and policies that share a request."""

from dataclasses import replace

import pytest

from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy
from citer.decoding.runner import Held, ModelRunner
from citer.models.pair import Pair
from citer.models.sampling import Sampling
from citer.rule import Rule
from tests.decoding.reference import (
    by_llm,
    random_scorer,
)
from tests.decoding.test_engine import MAX_NEW_TOKENS, decode, make_requests
from tests.noise import SAMPLINGS


def branches(request: Request, reference: tuple[int, ...], cuts: list[int]) -> list[Request]:
    """Make requests that leave one reference at several places, each with another token."""
    trunk = (*request.prompt_ids, *reference)
    return [
        Request(f"{request.key}@{cut}", request.prompt_ids, (*reference[:cut], 7 + cut), trunk)
        for cut in cuts
    ]


@pytest.mark.parametrize("sampling", [None, SAMPLINGS[0]])
@pytest.mark.parametrize("tau", [0.0, 0.4, 1.0])
def test_a_fork_of_a_trunk_equals_a_fresh_decode_of_its_prefix(
    pair: Pair, tau: float, sampling: Sampling | None
) -> None:
    policy = Policy(random_scorer, Rule("score", tau))
    requests = [
        branch
        for n, request in enumerate(make_requests(12))
        for branch in branches(request, tuple(range(40 + n, 60 + n)), [0, 3, 3 + n, 19])
    ]
    requests = [replace(request, sampling=sampling) for request in requests]
    forked, engine = decode(pair, requests, policy, slots=5)
    fresh, plain = decode(pair, [replace(one, trunk_ids=None) for one in requests], policy, slots=5)
    for key, answer in fresh.items():
        assert forked[key].token_ids == answer.token_ids
        assert by_llm(forked[key]) == by_llm(answer)
    for work, unused in (("slm_work", 1.0), ("llm_work", 0.0)):
        ours, theirs = (getattr(each, work).positions for each in (engine, plain))
        assert ours < theirs or (tau == unused and ours == theirs)


TAUS = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]
AT_TAUS = [Policy(random_scorer, Rule("score", tau)) for tau in TAUS]


def test_a_sweep_computes_shared_beginnings_once(pair: Pair) -> None:
    """The work is below the sum over the thresholds, but not below that of any threshold."""
    requests = make_requests(30)
    engine = Engine(pair, 4, MAX_NEW_TOKENS)
    list(engine.sweep(requests, AT_TAUS))
    single = [decode(pair, requests, Policy(random_scorer, Rule("score", tau)))[1] for tau in TAUS]
    for name in ("slm_work", "llm_work"):
        positions = [getattr(one, name).positions for one in single]
        assert max(positions) <= getattr(engine, name).positions < sum(positions)


def test_a_sweep_forks_only_where_tokens_differ(pair: Pair) -> None:
    """If both models are the same, all thresholds share all tokens, whatever the scores."""
    twins = replace(pair, llm=pair.slm)
    requests = make_requests(12)
    engine = Engine(twins, 4, MAX_NEW_TOKENS)
    list(engine.sweep(requests, AT_TAUS))
    single = decode(twins, requests, Policy(random_scorer, Rule("score", 0.9)))[1]
    assert engine.slm_work.positions == single.slm_work.positions


def start(runner: ModelRunner, *trunks: tuple[int, ...]) -> None:
    """Empty the first slots, and start in each a sequence that equals its trunk."""
    requests = [Request("", ids, trunk_ids=ids) for ids in trunks]
    runner.prepare([Held(slot, 0, request.trunk) for slot, request in enumerate(requests)])


def test_a_lane_keeps_as_many_trunks_as_slots_and_drops_the_least_recently_used(pair: Pair) -> None:
    runner = ModelRunner(pair.slm, slots=2)

    def computed(first: int) -> int:
        """Return the positions computed to start from the trunk with this first token."""
        before = runner.total.positions
        start(runner, tuple(range(first, first + 9)))
        return runner.total.positions - before

    assert [computed(first) for first in (1, 2, 1, 3, 1, 2)] == [9, 9, 0, 9, 0, 9]


def test_trunks_of_one_batch_share_a_forward_and_outlive_older_ones(pair: Pair) -> None:
    runner = ModelRunner(pair.slm, slots=3)
    one, two, three, four = (tuple(range(first, first + 5)) for first in (1, 2, 3, 4))
    start(runner, one)
    start(runner, two, three, two)
    assert runner.total.forwards == 2
    start(runner, one, four, three)
    assert (runner.total.forwards, runner.total.positions) == (3, 20)
    assert runner.cache.lengths == [4, 4, 4]
