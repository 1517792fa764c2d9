"""Sampled requests beside greedy ones, and what scorers see of them."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy, StepView, always_slm
from citer.decoding.runner import Drafts, MakeGraphs
from citer.models.graphs import no_graphs
from citer.models.pair import Pair
from citer.models.sampling import Sampling
from citer.rule import Rule
from tests.decoding.test_engine import MAX_NEW_TOKENS, make_requests
from tests.graphs import Traced, uncaptured
from tests.heads import random_head
from tests.noise import SAMPLINGS


def by_key(answers: Iterable[Answer]) -> dict[str, Answer]:
    return {answer.key: answer for answer in answers}


def sampled(requests: list[Request], *ways: Sampling | None) -> list[Request]:
    return [replace(each, sampling=ways[n % len(ways)]) for n, each in enumerate(requests)]


@pytest.fixture(scope="module")
def policy(pair: Pair) -> Policy:
    head = random_head(pair.slm.hidden_size, dtype=torch.float64)
    return Policy(head, Rule("risk", 0.5, 0.3))


@pytest.mark.parametrize("slots", [1, 4])
def test_greedy_answers_are_the_same_beside_sampled_ones(
    pair: Pair, policy: Policy, slots: int
) -> None:
    """Compare all numbers: scores, odds and visits. Temperature 0 is greedy, too."""
    requests = make_requests(12)
    mixed = sampled(requests, None, SAMPLINGS[0], SAMPLINGS[4], SAMPLINGS[1])
    assert SAMPLINGS[4].temperature == 0
    greedy, beside = (
        by_key(Engine(pair, slots, MAX_NEW_TOKENS).decode(each, policy))
        for each in (requests, mixed)
    )
    own = [request.key for request in mixed if not request.sampling or request.sampling[0] == 0]
    for key in own:
        assert beside[key].token_ids == greedy[key].token_ids
        assert beside[key].scores == pytest.approx(greedy[key].scores, rel=1e-9)
    assert sum(beside[key].token_ids != greedy[key].token_ids for key in greedy) > 3


def test_temperature_0_gives_the_same_bits(pair: Pair, policy: Policy) -> None:
    requests = make_requests(8)
    cold = sampled(requests, SAMPLINGS[4])
    greedy, answers = (
        list(Engine(pair, 4, MAX_NEW_TOKENS).decode(each, policy)) for each in (requests, cold)
    )
    assert answers == greedy


@pytest.mark.parametrize("make_graphs", [no_graphs, uncaptured])
@pytest.mark.parametrize("rule", ["risk 0.5 audit 0.3", "score 0.5"])
def test_noise_is_computed_for_the_rows_that_sample_only(
    pair: Pair, policy: Policy, noisy_rows: list[int], make_graphs: MakeGraphs, rule: str
) -> None:
    """Beside greedy requests, one that samples needs as much noise as alone."""
    policy = replace(policy, rule=Rule.parse(rule))
    one, *others = sampled(make_requests(9), None, SAMPLINGS[4])
    one = replace(one, sampling=SAMPLINGS[0])
    engine = Engine(pair, 4, MAX_NEW_TOKENS, make_graphs=make_graphs)
    [alone] = engine.decode([one], policy)
    needed = noisy_rows.copy()
    noisy_rows.clear()
    [beside] = [each for each in engine.decode([one, *others], policy) if each.key == one.key]
    assert beside.token_ids == alone.token_ids
    if make_graphs is no_graphs or not policy.rule.audit:  # else rows have unequal widths
        assert noisy_rows == needed
    noisy_rows.clear()
    list(engine.decode(others, policy))
    assert noisy_rows == []


def test_captured_forwards_sample_the_same_answers(kin: Pair) -> None:
    """The engine is greedy at first, and then samples with other settings for each request."""
    waves = [make_requests(1), sampled(make_requests(3, seed=1), SAMPLINGS[2], None, SAMPLINGS[0])]
    policy, traced = Policy(always_slm, Rule("every", 3, 1)), Traced()
    captured, plain = (Engine(kin, 2, 6, make_graphs=make) for make in (traced, no_graphs))
    for wave in waves:
        found, expected = (by_key(engine.decode(wave, policy)) for engine in (captured, plain))
        for key, answer in expected.items():
            assert found[key].token_ids == answer.token_ids
    assert traced.captures > 0


def test_scorers_see_noise_but_no_token_as_impossible(pair: Pair) -> None:
    seen: list[Tensor] = []

    def noting(view: StepView) -> Tensor:
        seen.append(view.logits_NV)
        return view.logits_NV.amax(1)

    hidden_NH = torch.randn(5, pair.slm.hidden_size, generator=torch.Generator().manual_seed(0))
    hidden_NH = hidden_NH.double()
    noise_N6 = torch.tensor([(n, *Sampling(0.7, 9, 1.0, 3).numbers(n)) for n in range(5)])
    given_N2 = torch.zeros(5, 2, dtype=torch.int64)
    token_N, _ = Drafts(pair, (noting,))(hidden_NH, given_N2, noise_N6).unbind(1)
    own_NV = pair.vocabulary.choices(pair.slm.logits(hidden_NH))
    z_NV = pair.vocabulary.choices(pair.slm.logits(hidden_NH), noise_N6)
    assert token_N.equal(z_NV.argmax(1).double())
    kept_NV = z_NV > torch.finfo(z_NV.dtype).min
    assert set(kept_NV.sum(1).tolist()) <= set(range(1, 10))
    assert seen[0][kept_NV].equal(z_NV[kept_NV])
    assert seen[0][~kept_NV].equal(own_NV[~kept_NV])
