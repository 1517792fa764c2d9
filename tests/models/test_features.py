"""The features of a router, computed by hand."""

import math

import pytest
import torch

from citer.models.router import EXTRAS, features

SHARES = [0.3, 0.2, 0.15, 0.1, 0.08, 0.06, 0.05, 0.04, 0.02]  # of nine tokens, the best first


def shuffled(shares: list[float]) -> list[float]:
    return shares[5:] + shares[:5]


def entropy(shares: list[float]) -> float:
    return -sum(share * math.log(share) for share in shares)


def test_the_columns_are_state_entropy_margin_and_top_log_probabilities() -> None:
    even = [1 / 9] * 9
    logits_NV = torch.tensor([shuffled(SHARES), even], dtype=torch.float64).log() + 3.7
    feature_NF = features(torch.tensor([[5.0, -1.0], [0.5, 2.0]]), logits_NV)
    assert feature_NF.shape == (2, 2 + EXTRAS)
    first = [5.0, -1.0, entropy(SHARES), math.log(0.3 / 0.2), *map(math.log, SHARES[:8])]
    second = [0.5, 2.0, math.log(9), 0.0, *[-math.log(9)] * 8]
    assert feature_NF[0].tolist() == pytest.approx(first)
    assert feature_NF[1].tolist() == pytest.approx(second, abs=1e-12)


def test_features_have_the_precision_of_the_logits() -> None:
    assert features(torch.zeros(1, 2).bfloat16(), torch.zeros(1, 9)).dtype == torch.float32
    assert features(torch.zeros(1, 2), torch.zeros(1, 9).double()).dtype == torch.float64
