"""A router of two small heads, and its bundle on disk."""

from pathlib import Path

import pytest
import torch

from citer.models.bundle import identity, write_bundle
from citer.models.features import EXTRAS
from citer.models.pair import Pair
from citer.models.router import Head, Router
from tests.heads import random_head


@pytest.fixture
def head() -> Head:
    trained = random_head(32, seed=3)
    return Head(trained.mlp, slope=2.0, intercept=-0.5)


@pytest.fixture
def router(head: Head) -> Router:
    return Router({"stand": head, "agree": random_head(32, seed=4, slope=3.0)})


@pytest.fixture
def feature_NF() -> torch.Tensor:
    return torch.randn(9, 32 + EXTRAS, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def folder(router: Router, pair: Pair, tmp_path: Path) -> Path:
    write_bundle(tmp_path / "r", router, identity(pair))
    return tmp_path / "r"
