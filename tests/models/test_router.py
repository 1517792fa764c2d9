"""The router, and its bundle on disk."""

import json
from pathlib import Path

import pytest
import torch

from citer.errors import InputError
from citer.models.bundle import check_card, identity, read_bundle, write_bundle
from citer.models.pair import Pair
from citer.models.router import HIGHEST, Router, RouterMLP


@pytest.fixture
def router() -> Router:
    torch.manual_seed(3)
    mlp = RouterMLP(32, dropout=0.1)
    mlp(torch.randn(64, 32))  # gives the batch norms something to remember
    return Router(mlp.eval().requires_grad_(False), slope=2.0, intercept=-0.5)


def test_a_score_is_the_calibrated_probability_below_one(router: Router) -> None:
    hidden = torch.randn(9, 32)
    expected = torch.sigmoid(2.0 * router.mlp(hidden) - 0.5)
    torch.testing.assert_close(router.score(hidden), expected)
    sure = Router(router.mlp, slope=0.0, intercept=100.0)
    assert (sure.score(hidden) == HIGHEST).all()
    assert sure.score(hidden).max() < 1


def test_router_zero_lets_every_token_stand() -> None:
    assert (Router(None).score(torch.randn(3, 8)) == HIGHEST).all()
    assert Router(None).weight_bytes == 0


def test_the_shape_is_the_papers(router: Router) -> None:
    shapes = [tuple(w.shape) for name, w in router.mlp.named_parameters() if w.ndim == 2]
    assert shapes == [(64, 32), (32, 64), (1, 32)]


def test_a_bundle_comes_back_as_it_was(router: Router, pair: Pair, tmp_path: Path) -> None:
    write_bundle(tmp_path / "r", router, identity(pair) | {"iteration": 2})
    back, card = read_bundle(tmp_path / "r")
    hidden = torch.randn(9, 32)
    assert torch.equal(back.score(hidden), router.score(hidden))
    assert card["iteration"] == 2
    assert {file.name for file in (tmp_path / "r").iterdir()} == {
        "router.safetensors",
        "router.json",
    }
    check_card(card, pair, tmp_path / "r")


def test_the_constant_router_has_no_weights_on_disk(pair: Pair, tmp_path: Path) -> None:
    write_bundle(tmp_path / "r", Router(None), identity(pair))
    assert read_bundle(tmp_path / "r")[0] == Router(None)
    assert [file.name for file in (tmp_path / "r").iterdir()] == ["router.json"]


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("llm", {"id": "other", "digest": "0"}, r"made for the LLM other \(0\), here it is"),
        ("dtype", "int8", "its dtype is int8, here it is float64"),
        ("template", "old", "its template is old, here it is"),
        ("tokenizer", "x", "its tokenizer is x, here it is"),
    ],
)
def test_another_pair_is_refused_naming_the_field(
    pair: Pair, field: str, value: object, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        check_card(identity(pair) | {field: value}, pair, Path("r"))


def test_torn_or_foreign_bundles_are_refused(router: Router, pair: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    write_bundle(folder, router, identity(pair))
    weights = (folder / "router.safetensors").read_bytes()
    (folder / "router.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(InputError, match=r"router\.safetensors: not the weights"):
        read_bundle(folder)
    card = json.loads((folder / "router.json").read_text())
    (folder / "router.json").write_text(json.dumps(card | {"schema_version": 99}))
    with pytest.raises(InputError, match="schema_version 99, expected 1"):
        read_bundle(folder)
    with pytest.raises(InputError, match=r"router\.json: no such file"):
        read_bundle(tmp_path / "nowhere")
