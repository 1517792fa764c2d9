"""The tokens that a pair chooses from: ids that both models have, with one EOS."""

import pytest
import torch

from citer.models.router import features
from citer.models.vocabulary import Vocabulary


@pytest.fixture
def logits_NV() -> torch.Tensor:
    return torch.randn(400, 20, generator=torch.Generator().manual_seed(0))


def test_with_at_most_one_eos_the_logits_are_unchanged(logits_NV: torch.Tensor) -> None:
    assert Vocabulary(17, (3,)).choices(logits_NV.clone()).equal(logits_NV[:, :17])
    assert Vocabulary(17, ()).choices(logits_NV.clone()).equal(logits_NV[:, :17])


def test_every_eos_that_a_model_chooses_becomes_the_first_eos(
    logits_NV: torch.Tensor,
) -> None:
    own_N = logits_NV[:, :17].argmax(1)
    ends_N = torch.isin(own_N, torch.tensor([3, 0, 9]))
    assert set(own_N[ends_N].tolist()) == {3, 0, 9}
    chosen_N = Vocabulary(17, (3, 0, 9)).choices(logits_NV.clone()).argmax(1)
    assert chosen_N.equal(own_N.where(~ends_N, 3))


def test_the_first_eos_has_the_odds_of_the_likeliest_eos(logits_NV: torch.Tensor) -> None:
    chance_NV = Vocabulary(20, (3, 0)).choices(logits_NV.clone()).softmax(1)
    assert (chance_NV[:, 0] == 0).all()
    odds_N = logits_NV[:, [3, 0]].amax(1) - logits_NV[:, 5]
    torch.testing.assert_close(chance_NV[:, 3] / chance_NV[:, 5], odds_N.exp())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_routers_features_stay_finite(logits_NV: torch.Tensor, dtype: torch.dtype) -> None:
    choices_NV = Vocabulary(20, (3, 0, 9)).choices(logits_NV.to(dtype))
    feature_NF = features(torch.zeros(400, 2), choices_NV)
    assert feature_NF.isfinite().all()
    expected = torch.distributions.Categorical(logits=choices_NV).entropy()
    torch.testing.assert_close(feature_NF[:, 2], expected)
