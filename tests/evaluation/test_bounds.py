import math

import pytest
import torch

from citer.decoding.policy import HIGHEST, StepView, low_entropy, top_probability
from citer.evaluation.bounds import random


def view(logits_NV=None, seed_N=None, position_N=None) -> StepView:
    count = len(next(part for part in (logits_NV, seed_N, position_N) if part is not None))
    zeros_N = torch.zeros(count, dtype=torch.int64)
    return StepView(
        hidden_NH=torch.zeros(count, 1),
        logits_NV=torch.zeros(count, 4) if logits_NV is None else logits_NV,
        seed_N=zeros_N if seed_N is None else seed_N,
        position_N=zeros_N if position_N is None else position_N,
    )


def test_low_entropy_is_one_minus_the_share_of_the_greatest_entropy():
    even_over_two = [0.0, 0.0, -1e9, -1e9]
    score_N = low_entropy(view(torch.tensor([[7.0] * 4, even_over_two, [50.0, 0, 0, 0]])))
    assert score_N[:2].tolist() == pytest.approx([0, 0.5])
    assert 0.9999 < score_N[2] < 1


def test_low_entropy_reads_probabilities_not_logits():
    skewed = torch.tensor([[3.0, 1.0, 0.5, -2.0]])
    p = skewed.softmax(-1)[0].tolist()
    by_hand = 1 + sum(x * math.log(x) for x in p) / math.log(4)
    assert low_entropy(view(skewed)).item() == pytest.approx(by_hand)
    assert low_entropy(view(skewed + 5)).item() == pytest.approx(by_hand)


def test_top_probability_is_the_largest_one_and_below_1():
    logits = torch.tensor([[0.2, 0.7, 0.1, 0.0], [1.0, 0.0, 0.0, 0.0]]).log()
    for score_N in (top_probability(view(logits)), top_probability(view(logits + 5))):
        assert score_N.tolist() == pytest.approx([0.7, HIGHEST])


def grid(requests: int, positions: int) -> StepView:
    seeds = torch.randint(0, 2**62, (requests,), generator=torch.Generator().manual_seed(0))
    return view(
        seed_N=seeds.repeat_interleave(positions),
        position_N=torch.arange(positions).repeat(requests),
    )


@pytest.mark.parametrize("tau", [0.01, 0.1, 0.5, 0.9])
def test_a_share_tau_of_random_scores_falls_below_tau(tau):
    score_N = random(17, grid(200, 50))
    sigma = (tau * (1 - tau) / 10_000) ** 0.5
    assert (score_N < tau).double().mean() == pytest.approx(tau, abs=4 * sigma)
    assert score_N.min() >= 0
    assert score_N.max() < 1


def test_random_scores_of_neighbouring_positions_are_unrelated():
    score_NT = random(17, grid(200, 50)).view(200, 50).double()
    both = torch.stack([score_NT[:, :-1].flatten(), score_NT[:, 1:].flatten()])
    assert abs(torch.corrcoef(both)[0, 1]) < 0.04


def test_a_random_score_depends_on_request_position_and_seed_alone():
    whole = grid(20, 30)
    score_N = random(17, whole)
    shuffle = torch.randperm(600, generator=torch.Generator().manual_seed(1))
    parts = shuffle.split(7)
    again = [random(17, view(None, whole.seed_N[part], whole.position_N[part])) for part in parts]
    assert torch.equal(torch.cat(again), score_N[shuffle])
    assert not torch.equal(random(18, whole), score_N)
