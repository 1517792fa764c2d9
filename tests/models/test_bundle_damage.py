"""Bundles are refused if damaged, of another version or of another pair."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from citer.errors import InputError
from citer.models.bundle import read_bundle, write_bundle
from citer.models.pair import Pair
from citer.models.router import Router
from tests.models.conftest import edit


def test_torn_bundles_and_bundles_of_another_version_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    weights = (folder / "router.safetensors").read_bytes()
    (folder / "router.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(InputError, match=r"router\.safetensors: not the weights"):
        read_bundle(folder)
    edit(folder / "router.json", schema_version=2)
    with pytest.raises(InputError, match="schema_version: 2: expected 3"):
        read_bundle(folder)
    with pytest.raises(InputError, match=r"router\.json: no such file"):
        read_bundle(tmp_path / "nowhere")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-7] ^= 1
    path.write_bytes(content)


def swap_heads(path: Path) -> None:
    other = {"stand": "agree", "agree": "stand"}
    names = (key.partition(".") for key in load_file(path))
    swapped = {f"{other[h]}.{rest}": load_file(path)[f"{h}.{rest}"] for h, _, rest in names}
    save_file(swapped, path)


@pytest.mark.parametrize("damage", [flip, swap_heads])
def test_weights_that_were_changed_are_refused(
    folder: Path, damage: Callable[[Path], None]
) -> None:
    damage(folder / "router.safetensors")
    expected = r"router\.safetensors: not the weights .* their digest is \w+, expected \w+$"
    with pytest.raises(InputError, match=expected):
        read_bundle(folder)


@pytest.mark.parametrize("name", ["layers.0.weight", "layers.1.running_var"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_router_with_non_finite_weights_is_not_written(
    router: Router, pair: Pair, tmp_path: Path, name: str, value: float
) -> None:
    router.heads["agree"].mlp.state_dict()[name].view(-1)[3] = value
    with pytest.raises(InputError, match=rf"new: agree\.{name}: a weight is not finite"):
        write_bundle(tmp_path / "new", router, pair.identity)
    assert not (tmp_path / "new").exists()


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    card = json.loads(path.read_text())
    change(card)
    path.write_text(json.dumps(card))


def mlp(field: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda card: card["heads"]["stand"]["mlp"].update({field: value})


def calibration(field: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda card: card["heads"]["agree"]["calibration"].update({field: value})


def rule(visit: str, at: float, **more: object) -> Callable[[dict[str, Any]], object]:
    stored = {"rule": {"visit": visit, "at": at, "audit": 0.0}, **more}
    return lambda card: card.update(threshold=stored)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda card: card.pop("heads"), "heads: missing"),
        (lambda card: card.update(heads={}), "heads: {}: expected at least 1"),
        (lambda card: card["heads"].update(stand={"x": 1}), "heads.stand.mlp: missing"),
        (mlp("hidden_size", -1), "heads.stand.mlp.hidden_size: -1: expected greater than or eq"),
        (mlp("hidden_size", 10**19), f"heads.stand.mlp.hidden_size: {10**19}: expected less th"),
        (mlp("dropout", -1), "heads.stand.mlp.dropout: -1: expected greater than or equal to 0"),
        (mlp("dropout", 1), "heads.stand.mlp.dropout: 1: expected less than 1"),
        (calibration("slope", math.nan), "not JSON: expected value"),
        (calibration("intercept", "steep"), "heads.agree.calibration.intercept: 'steep': expected"),
        (rule("score", 2.0), "threshold.rule: 'score 2.0': expected `score τ`"),
        (rule("every", 0), "threshold.rule: 'every 0.0': expected `score τ`"),
        (lambda card: card.update(slm="x"), "slm: 'x': expected a section of keys"),
        (lambda card: card.update(prompts={"kind": "x"}), "prompts.kind: 'x': expected 'plain'"),
        (lambda card: card.update(slm={"id": "x"}), "slm.digest: missing"),
        (lambda card: card.update(threshold={"rule": {"visit": 3}}), "threshold.rule.visit: 3: "),
    ],
)
def test_an_invalid_card_is_refused_naming_the_field(
    folder: Path, change: Callable[[dict[str, Any]], object], complaint: str
) -> None:
    path = folder / "router.json"
    rewrite(path, change)
    with pytest.raises(InputError, match=f"^{path}: {re.escape(complaint)}"):
        read_bundle(folder)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda card: card.update(weights=None), r"their digest is \w+, expected None"),
        (mlp("hidden_size", 2**16), "size mismatch for layers"),
    ],
)
def test_a_card_of_other_weights_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], object], complaint: str
) -> None:
    rewrite(folder / "router.json", change)
    with pytest.raises(InputError, match=complaint):
        read_bundle(folder)


def test_a_card_that_is_not_an_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "router.json").write_text("[]")
    with pytest.raises(InputError, match=r"router\.json: top level: \[\]: expected a section"):
        read_bundle(tmp_path)
