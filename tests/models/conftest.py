"""Fixtures: a tiny pair to damage, the message of its refusal, a router and its bundle."""

import json
from pathlib import Path

import pytest
import torch

from citer.errors import InputError
from citer.models.bundle import write_bundle
from citer.models.folder import PairFolder
from citer.models.pair import Pair
from citer.models.router import EXTRAS, Head, Router
from tests.heads import random_head
from tests.tiny import TinyPair, make_tiny_pair


@pytest.fixture
def folders(tmp_path: Path) -> TinyPair:
    return make_tiny_pair(tmp_path)


def edit(path: Path, **changes: object) -> None:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def refusal(pair: TinyPair) -> str:
    with pytest.raises(InputError) as caught:
        PairFolder(pair.slm, pair.llm)
    assert "\n" not in str(caught.value)
    return str(caught.value)


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
    write_bundle(tmp_path / "r", router, pair.identity)
    return tmp_path / "r"
