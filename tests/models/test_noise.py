"""Choices among perturbed logits are samples, and two models with the same noise often agree.

Seeds are fixed: a test gives the same counts in every run.
"""

import pytest
import torch
from scipy.stats import chi2_contingency, chisquare
from torch import Tensor

from citer.config.params import SamplingParams
from citer.models.sampling import Sampler, Sampling
from citer.models.vocabulary import Vocabulary, perturbed
from tests.noise import SAMPLINGS, noisy, warped

DRAWS = 20_000
FAR = 1e-4  # a p-value that sound samples are unlikely to have
SAMPLED = [sampling for sampling in SAMPLINGS if sampling.temperature]
LOGITS_1V = torch.tensor([[2.0, 1.5, 1.5, 0.9, 0.3, 0.0, -0.4, -1.0, -2.5, -6.0]]).double()
OTHERS_1V = torch.tensor([[1.0, 2.2, 0.0, 1.9, -0.5, 0.4, -3.0, -1.0, -2.0, -6.0]]).double()


def numbers(sampling: Sampling, position: int = 5) -> Tensor:
    """Return noise_N5 of `DRAWS` neighbouring seeds."""
    seeds = range(sampling.seed, sampling.seed + DRAWS)
    return torch.tensor([sampling._replace(seed=seed).numbers(position) for seed in seeds])


def chosen(logits_1V: Tensor, sampling: Sampling, position: int = 5) -> Tensor:
    logits_NV = logits_1V.expand(DRAWS, -1)
    return perturbed(logits_NV, numbers(sampling, position)).argmax(1)


def fit(chosen_N: Tensor, chance_V: Tensor) -> float:
    """Return the p-value of the counts of the possible tokens. No other may be chosen."""
    count_V = chosen_N.bincount(minlength=len(chance_V))
    possible_V = chance_V > 0
    assert count_V[~possible_V].sum() == 0
    expected_V = chance_V[possible_V] * DRAWS
    return float(chisquare(count_V[possible_V], expected_V).pvalue) if len(expected_V) > 1 else 1.0


@pytest.mark.parametrize("sampling", SAMPLED)
def test_choices_are_distributed_as_samples_of_transformers(sampling: Sampling) -> None:
    chance_V = warped(LOGITS_1V, sampling).softmax(1)[0]
    assert fit(chosen(LOGITS_1V, sampling), chance_V) > FAR
    other_V = warped(LOGITS_1V, sampling._replace(temperature=3.0, top_p=1.0)).softmax(1)[0]
    assert fit(chosen(LOGITS_1V, sampling._replace(top_p=1.0)), other_V) < FAR, "no power"


@pytest.mark.parametrize("sampling", SAMPLED)
def test_the_first_eos_is_sampled_with_the_sum_of_all_eos_ids(sampling: Sampling) -> None:
    chance_V = warped(LOGITS_1V, sampling).softmax(1)[0]
    chance_V[3] += chance_V[1]
    chance_V[1] = 0
    logits_NV = LOGITS_1V.repeat(DRAWS, 1)
    row_N1 = torch.arange(DRAWS)[:, None]
    z_NV = Vocabulary(10, (3, 1)).choices(logits_NV, torch.cat([row_N1, numbers(sampling)], 1))
    assert fit(z_NV.argmax(1), chance_V) > FAR


@pytest.mark.parametrize(("positions", "seeds"), [(1, 0), (0, 1), (250, 0)])
def test_choices_at_other_positions_and_of_other_seeds_are_independent(
    positions: int, seeds: int
) -> None:
    first = Sampling(1.0, 0, 1.0, 3)
    second = first._replace(seed=first.seed + seeds * DRAWS)
    pairs_N = chosen(LOGITS_1V, first) * 10 + chosen(LOGITS_1V, second, 5 + positions)
    table = pairs_N.bincount(minlength=100).view(10, 10)[:8, :8]
    assert chi2_contingency(table).pvalue > FAR


def test_the_noise_of_two_tokens_is_independent() -> None:
    logits_NV = torch.zeros(DRAWS, 6)
    z_NV = perturbed(logits_NV, numbers(Sampling(1.0, 0, 1.0, 3)))
    above_NV = z_NV > -torch.tensor(2.0).log().log()  # the median of Gumbel noise
    for first in range(6):
        for second in range(first):
            pairs_N = above_NV[:, first].int() * 2 + above_NV[:, second]
            assert chisquare(pairs_N.bincount(minlength=4)).pvalue > FAR


@pytest.mark.parametrize("sampling", SAMPLED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_perturbed_logits_follow_their_definition(sampling: Sampling, dtype: torch.dtype) -> None:
    logits_NV = torch.randn(20, 300, generator=torch.Generator().manual_seed(0)).to(dtype) * 3
    noise_N5 = torch.tensor([sampling.numbers(position) for position in range(20)])
    z_NV = perturbed(logits_NV, noise_N5)
    assert z_NV.dtype == dtype
    rows = [noisy(row[None].double(), sampling, n) for n, row in enumerate(logits_NV)]
    expected_NV = torch.cat(rows)
    dropped_NV = expected_NV.isinf()
    assert dropped_NV.any() == (sampling.top_k > 0 or sampling.top_p < 1)
    torch.testing.assert_close(z_NV[~dropped_NV].double(), expected_NV[~dropped_NV])
    assert (z_NV[dropped_NV] == torch.finfo(dtype).min).all()


def test_without_filters_no_token_is_dropped() -> None:
    """The likeliest tokens have a mass that rounds to 1."""
    logits_NV = torch.cat([torch.zeros(50, 3), torch.full((50, 997), -60.0)], 1)
    noise_N5 = torch.tensor([Sampling(1.0, 0, 1.0, seed).numbers(0) for seed in range(50)])
    assert perturbed(logits_NV, noise_N5).amin() > -100


def test_a_dropped_token_has_odds_of_zero_and_entropies_stay_finite() -> None:
    logits_NV = LOGITS_1V.expand(DRAWS, -1).float()
    z_NV = perturbed(logits_NV, numbers(Sampling(0.7, 2, 0.9, 1)))
    odds_NV = (z_NV - z_NV.amax(1, keepdim=True)).exp()
    assert set((odds_NV > 0).sum(1).tolist()) == {3}  # two have equal logits
    assert torch.distributions.Categorical(logits=z_NV).entropy().isfinite().all()


def test_rows_of_temperature_0_stay_bit_for_bit() -> None:
    logits_NV = torch.cat([LOGITS_1V, -LOGITS_1V, OTHERS_1V]).float()
    cold, warm = Sampling(0.0, 0, 1.0, 0), Sampling(1.0, 0, 1.0, 3)
    rows = [cold.numbers(3), warm.numbers(3), (0,) * 5]  # as padding rows
    z_NV = perturbed(logits_NV, torch.tensor(rows))
    assert z_NV[::2].view(torch.int32).equal(logits_NV[::2].view(torch.int32))
    assert not z_NV[1].equal(logits_NV[1])


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (5, 1.0), (0, 0.6)])
def test_small_temperatures_choose_greedily(top_k: int, top_p: float) -> None:
    assert set(chosen(OTHERS_1V, Sampling(1e-4, top_k, top_p, 0)).tolist()) == {1}


def test_shared_noise_couples_two_models_almost_as_well_as_possible() -> None:
    """P(equal) by the formula for Gumbel noise, with its bounds (arXiv 2408.07978)."""
    sampling = Sampling(0.8, 0, 1.0, 11)
    p_V, q_V = (warped(logits, sampling).softmax(1)[0] for logits in (LOGITS_1V, OTHERS_1V))
    formula = float((1 / torch.maximum(p_V / p_V[:, None], q_V / q_V[:, None]).sum(1)).sum())
    equal_N = chosen(LOGITS_1V, sampling) == chosen(OTHERS_1V, sampling)
    sigma = (formula * (1 - formula) / DRAWS) ** 0.5
    assert float(equal_N.double().mean()) == pytest.approx(formula, abs=4 * sigma)
    distance = float((p_V - q_V).abs().sum()) / 2
    assert (1 - distance) / (1 + distance) < formula < 1 - distance
    apart_N = chosen(OTHERS_1V, sampling, position=6)
    assert (chosen(LOGITS_1V, sampling) == apart_N).double().mean() < formula - 0.1


def test_a_samplers_noise_depends_on_seed_and_key() -> None:
    params = SamplingParams(temperature=0.7, top_p=0.9)
    sampling = Sampler(params, 17).sampling("question")
    assert sampling == Sampler(params, 17).sampling("question")
    assert sampling[:3] == (0.7, 0, 0.9)
    others = Sampler(params, 18).sampling("question"), Sampler(params, 17).sampling("another")
    assert len({each.seed for each in (sampling, *others)}) == 3
    assert Sampler(None, 17).sampling("question") is None
    assert str(Sampler(params, 17)) == ", temperature 0.7, top_p 0.9, seed 17"
