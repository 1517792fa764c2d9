"""Bundles: writing a router and reading it back does not change it."""

from pathlib import Path

import pytest
import torch

from citer.errors import InputError
from citer.models.bundle import check_identity, read_bundle, write_bundle
from citer.models.pair import Pair
from citer.models.router import FEATURE, Head, Router
from tests.heads import random_head

ALWAYS = Head(None)


def test_a_bundle_with_any_heads_round_trips_through_its_folder(
    router: Router, pair: Pair, feature_NF: torch.Tensor, tmp_path: Path
) -> None:
    three = Router({**router.heads, "audit_2": random_head(32, seed=9)})
    write_bundle(tmp_path / "r", three, pair.identity | {"iteration": 2})
    back, card = read_bundle(tmp_path / "r")
    assert list(card["heads"]) == list(back.heads) == ["stand", "agree", "audit_2"]
    for name, loaded in back.heads.items():
        original = three.heads[name]
        assert torch.equal(loaded.score(feature_NF), original.score(feature_NF))
        assert (loaded.slope, loaded.intercept) == (original.slope, original.intercept)
        assert not loaded.mlp.training
    assert (card["iteration"], card["schema_version"], card["feature"]) == (2, 3, FEATURE)
    written = {file.name for file in (tmp_path / "r").iterdir()}
    assert written == {"router.safetensors", "router.json"}
    check_identity(card, pair.identity, tmp_path / "r")
    on_meta = back.to(torch.device("meta"))
    assert all(head.mlp.layers[0].weight.is_meta for head in on_meta.heads.values())


def test_the_same_router_is_written_to_the_same_bytes(router: Router, pair, tmp_path) -> None:
    for name in ("one", "two"):
        write_bundle(tmp_path / name, router, pair.identity)
    for file in ("router.safetensors", "router.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize("constant", ["stand", "agree"])
def test_a_constant_head_of_a_bundle_is_read_back_as_constant(
    router: Router, pair: Pair, feature_NF: torch.Tensor, tmp_path: Path, constant: str
) -> None:
    heads = {**router.heads, constant: ALWAYS}
    write_bundle(tmp_path / "r", Router(heads), pair.identity)
    back, _ = read_bundle(tmp_path / "r")
    (trained,) = {"stand", "agree"} - {constant}
    assert back.heads[constant] == ALWAYS
    expected = router.heads[trained].score(feature_NF)
    assert torch.equal(back.heads[trained].score(feature_NF), expected)


def test_constant_heads_have_no_weights_on_disk(pair: Pair, tmp_path: Path) -> None:
    write_bundle(tmp_path / "r", Router({"stand": ALWAYS, "agree": ALWAYS}), pair.identity)
    assert read_bundle(tmp_path / "r")[0] == Router({"stand": ALWAYS, "agree": ALWAYS})
    assert [file.name for file in (tmp_path / "r").iterdir()] == ["router.json"]


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("slm", {"id": "other", "digest": "0"}, r"made for the SLM other \(0\), here it is"),
        ("llm", {"id": "other", "digest": "0"}, r"made for the LLM other \(0\), here it is"),
        ("dtype", "int8", "its dtype is int8, here it is float64"),
        ("template", "old", "its template is old, here it is"),
        ("tokenizer", "x", "its tokenizer is x, here it is"),
        ("feature", "the paper's", "its feature is the paper's, here it is SLM hidden state"),
    ],
)
def test_another_pair_is_refused_naming_the_field(
    pair: Pair, field: str, value: object, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        check_identity(pair.identity | {field: value}, pair.identity, Path("r"))


def test_heads_that_share_an_mlp_are_each_stored(
    router: Router, pair: Pair, feature_NF: torch.Tensor, tmp_path: Path
) -> None:
    stand = router.heads["stand"]
    steep = Head(stand.mlp, slope=2.0)
    write_bundle(tmp_path / "r", Router({"stand": stand, "steep": steep}), pair.identity)
    heads = read_bundle(tmp_path / "r")[0].heads
    for name, head in (("stand", stand), ("steep", steep)):
        assert torch.equal(heads[name].score(feature_NF), head.score(feature_NF))
