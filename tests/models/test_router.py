"""A head, the router of two, and its bundle on disk."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from citer.decoding.policy import StepView, head_for, routed
from citer.errors import InputError
from citer.models.bundle import check_card, identity, read_bundle, write_bundle
from citer.models.features import EXTRAS, FEATURE, features
from citer.models.pair import Pair
from citer.models.router import HIGHEST, Head, Router, RouterMLP
from citer.rule import Rule
from tests.heads import random_head, random_router

ALWAYS = Head(None)


@pytest.fixture
def head() -> Head:
    trained = random_head(32, seed=3)
    return Head(trained.mlp, slope=2.0, intercept=-0.5)


@pytest.fixture
def router(head: Head) -> Router:
    return Router(head, random_head(32, seed=4, slope=3.0))


@pytest.fixture
def feature_NF() -> torch.Tensor:
    return torch.randn(9, 32 + EXTRAS, generator=torch.Generator().manual_seed(0))


def test_a_score_is_the_calibrated_probability_below_one(head: Head, feature_NF) -> None:
    expected = torch.sigmoid(2.0 * head.mlp(feature_NF) - 0.5)
    torch.testing.assert_close(head.score(feature_NF), expected)
    sure = Head(head.mlp, slope=0.0, intercept=100.0)
    assert (sure.score(feature_NF) == HIGHEST).all()
    assert sure.score(feature_NF).max() < 1


def test_features_in_float64_are_scored_in_the_precision_of_the_weights(head, feature_NF) -> None:
    assert torch.equal(head.score(feature_NF.double()), head.score(feature_NF))


def test_a_head_without_weights_lets_every_token_stand() -> None:
    assert (ALWAYS.score(torch.randn(3, 8)) == HIGHEST).all()
    assert ALWAYS.weight_bytes == 0


def test_the_shape_is_the_papers_but_for_what_is_read_beside_the_state() -> None:
    mlp = RouterMLP(32, dropout=0.1)
    shapes = [tuple(w.shape) for name, w in mlp.named_parameters() if w.ndim == 2]
    assert shapes == [(64, 32 + 10), (32, 64), (1, 32)]
    norms = 2 * 64 + 2 * 32
    assert Head(mlp).weight_bytes == 4 * (64 * 42 + 64 + 32 * 64 + 32 + 32 + 1 + norms)


def test_agreement_decides_where_the_answer_is_to_be_the_llms_own(router: Router) -> None:
    rules = {
        "score 0.9": router.stand,
        "risk 0.5 audit 0.1": router.stand,
        "every 4 audit 0.99": router.stand,
        "risk 0.5 audit 1": router.agree,
        "score 0.5 audit 1": router.agree,
    }
    hidden_NH, logits_NV = torch.randn(5, 32), torch.randn(5, 20)
    view = StepView(hidden_NH, logits_NV, *torch.zeros(2, 5, dtype=torch.int64))
    assert not router.stand.score(features(hidden_NH, logits_NV)).equal(
        router.agree.score(features(hidden_NH, logits_NV))
    )
    for text, expected in rules.items():
        rule = Rule.parse(text)
        assert head_for(router, rule) is expected
        policy = routed(router, rule)
        assert policy.rule == rule
        assert policy.scorer(view).equal(expected.score(features(hidden_NH, logits_NV)))


def test_a_bundle_comes_back_as_it_was(
    router: Router, pair: Pair, feature_NF: torch.Tensor, tmp_path: Path
) -> None:
    write_bundle(tmp_path / "r", router, identity(pair) | {"iteration": 2})
    back, card = read_bundle(tmp_path / "r")
    for name in ("stand", "agree"):
        ours, theirs = getattr(router, name), getattr(back, name)
        assert torch.equal(theirs.score(feature_NF), ours.score(feature_NF))
        assert (theirs.slope, theirs.intercept) == (ours.slope, ours.intercept)
        assert not theirs.mlp.training
    assert (card["iteration"], card["schema_version"], card["feature"]) == (2, 3, FEATURE)
    assert {file.name for file in (tmp_path / "r").iterdir()} == {
        "router.safetensors",
        "router.json",
    }
    check_card(card, pair, tmp_path / "r")


def test_the_same_router_is_written_to_the_same_bytes(router: Router, pair, tmp_path) -> None:
    for name in ("one", "two"):
        write_bundle(tmp_path / name, router, identity(pair))
    for file in ("router.safetensors", "router.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize("constant", ["stand", "agree"])
def test_a_constant_head_beside_a_trained_one_comes_back_constant(
    router: Router, pair: Pair, feature_NF: torch.Tensor, tmp_path: Path, constant: str
) -> None:
    write_bundle(tmp_path / "r", router._replace(**{constant: ALWAYS}), identity(pair))
    back, _ = read_bundle(tmp_path / "r")
    (trained,) = {"stand", "agree"} - {constant}
    assert getattr(back, constant) == ALWAYS
    expected = getattr(router, trained).score(feature_NF)
    assert torch.equal(getattr(back, trained).score(feature_NF), expected)


def test_constant_heads_have_no_weights_on_disk(pair: Pair, tmp_path: Path) -> None:
    write_bundle(tmp_path / "r", Router(ALWAYS, ALWAYS), identity(pair))
    assert read_bundle(tmp_path / "r")[0] == Router(ALWAYS, ALWAYS)
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
        check_card(identity(pair) | {field: value}, pair, Path("r"))


def test_torn_bundles_and_those_of_another_version_are_refused(
    router: Router, pair: Pair, tmp_path: Path
) -> None:
    folder = tmp_path / "r"
    write_bundle(folder, router, identity(pair))
    weights = (folder / "router.safetensors").read_bytes()
    (folder / "router.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(InputError, match=r"router\.safetensors: not the weights"):
        read_bundle(folder)
    card = json.loads((folder / "router.json").read_text())
    (folder / "router.json").write_text(json.dumps(card | {"schema_version": 1}))
    with pytest.raises(InputError, match="schema_version: 1: expected 2 or 3"):
        read_bundle(folder)
    with pytest.raises(InputError, match=r"router\.json: no such file"):
        read_bundle(tmp_path / "nowhere")


@pytest.fixture
def folder(router: Router, pair: Pair, tmp_path: Path) -> Path:
    write_bundle(tmp_path / "r", router, identity(pair))
    return tmp_path / "r"


def as_of_the_version_before(folder: Path) -> None:
    path = folder / "router.json"
    card = json.loads(path.read_text()) | {"schema_version": 2}
    del card["weights"]
    path.write_text(json.dumps(card))


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


def test_a_card_that_lost_its_digest_is_refused(folder: Path) -> None:
    card = json.loads((folder / "router.json").read_text())
    (folder / "router.json").write_text(json.dumps(card | {"weights": None}))
    with pytest.raises(InputError, match=r"their digest is \w+, expected None"):
        read_bundle(folder)


def test_a_bundle_of_the_version_before_is_read_with_a_warning(
    folder: Path, router: Router, feature_NF: torch.Tensor, capsys: pytest.CaptureFixture
) -> None:
    as_of_the_version_before(folder)
    back, _ = read_bundle(folder)
    assert torch.equal(back.stand.score(feature_NF), router.stand.score(feature_NF))
    said = f"{folder}/router.safetensors: of an earlier version, without a digest: "
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize("name", ["layers.0.weight", "layers.1.running_var"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_router_of_no_numbers_is_neither_written_nor_read(
    folder: Path, router: Router, pair: Pair, tmp_path: Path, name: str, value: float
) -> None:
    as_of_the_version_before(folder)
    weights = load_file(folder / "router.safetensors")
    weights[f"agree.{name}"].view(-1)[3] = value
    save_file(weights, folder / "router.safetensors")
    with pytest.raises(InputError, match=rf"r/router\.safetensors: agree\.{name}: a weight is no"):
        read_bundle(folder)
    router.agree.mlp.state_dict()[name].view(-1)[3] = value
    with pytest.raises(InputError, match=rf"new: agree\.{name}: a weight is no number"):
        write_bundle(tmp_path / "new", router, identity(pair))
    assert not (tmp_path / "new").exists()


def test_a_calibration_that_could_not_be_read_is_not_written(
    head: Head, pair: Pair, tmp_path: Path
) -> None:
    steep = Router(Head(head.mlp, slope=1e30), ALWAYS)
    with pytest.raises(InputError, match=r"new: .*heads\.stand\.calibration\.slope: 1e\+30"):
        write_bundle(tmp_path / "new", steep, identity(pair))
    assert not (tmp_path / "new").exists()


def test_a_size_that_no_memory_holds_is_held_against_the_weights(folder: Path) -> None:
    card = json.loads((folder / "router.json").read_text())
    card["heads"]["stand"]["mlp"]["hidden_size"] = 2**16
    (folder / "router.json").write_text(json.dumps(card))
    with pytest.raises(InputError, match="size mismatch for layers"):
        read_bundle(folder)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(random_router(16), id="another width"),
        pytest.param(Router(ALWAYS, random_head(32)), id="one head alone"),
    ],
)
def test_weights_of_another_router_are_refused(
    router: Router, pair: Pair, tmp_path: Path, other: Router
) -> None:
    write_bundle(tmp_path / "r", router, identity(pair))
    write_bundle(tmp_path / "other", other, identity(pair))
    (tmp_path / "other/router.safetensors").replace(tmp_path / "r/router.safetensors")
    with pytest.raises(InputError, match=r"r/router\.safetensors: not the weights") as caught:
        read_bundle(tmp_path / "r")
    assert "\n" not in str(caught.value)


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
        (lambda card: card["heads"].pop("agree"), "heads.agree: missing"),
        (lambda card: card["heads"].update(stand={"x": 1}), "heads.stand.mlp: missing"),
        (lambda card: card["heads"]["stand"]["mlp"].update(x=1), "heads.stand.mlp.x: 1: "),
        (mlp("hidden_size", 10**30), "heads.stand.mlp.hidden_size: 1000000"),
        (mlp("hidden_size", 0), "heads.stand.mlp.hidden_size: 0: expected greater than 0"),
        (mlp("hidden_size", "32"), "heads.stand.mlp.hidden_size: '32': expected"),
        (mlp("dropout", -1), "heads.stand.mlp.dropout: -1: expected greater than or equal to 0"),
        (mlp("dropout", 1), "heads.stand.mlp.dropout: 1: expected less than 1"),
        (calibration("slope", 10**30), "heads.agree.calibration.slope: 1000000"),
        (calibration("slope", math.nan), "not JSON: NaN, expected a finite number"),
        (calibration("intercept", -(10**30)), "heads.agree.calibration.intercept: -1000000"),
        (lambda card: card.update(holdout_scores={"0.5": 10**30}), "holdout_scores.0.5: 1000000"),
        (lambda card: card.update(holdout_scores={"-1": 0.5}), "holdout_scores.-1.[key]: '-1': "),
        (lambda card: card.update(holdout_scores={"1": 1, "0": 0}), "holdout_scores: not in order"),
        (lambda card: card.update(holdout_scores={"0": 1, "1": 0}), "holdout_scores: not in order"),
        (rule("score", 2.0), "threshold.rule: 'score 2.0': expected `score τ`"),
        (rule("every", 0), "threshold.rule: 'every 0.0': expected `score τ`"),
        (rule("score", 0.5, epsilon=10**30), "threshold.epsilon: 1000000"),
        (lambda card: card.update(slm="x"), "slm: 'x': expected a section of keys"),
        (lambda card: card.update(slm={"id": "x"}), "slm.digest: missing"),
        (lambda card: card.update(holdout_scores=[0.5]), "holdout_scores: [0.5]: expected"),
        (lambda card: card.update(threshold={"rule": {"visit": 3}}), "threshold.rule.visit: 3: "),
    ],
)
def test_a_card_that_is_no_routers_is_refused_naming_the_field(
    router: Router,
    pair: Pair,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], object],
    complaint: str,
) -> None:
    write_bundle(tmp_path / "r", router, identity(pair))
    path = tmp_path / "r/router.json"
    card = json.loads(path.read_text())
    change(card)
    path.write_text(json.dumps(card))
    with pytest.raises(InputError, match=f"^{path}: {re.escape(complaint)}"):
        read_bundle(tmp_path / "r")


def test_a_card_that_is_no_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "router.json").write_text("[]")
    with pytest.raises(InputError, match=r"router\.json: top level: \[\]: expected a section"):
        read_bundle(tmp_path)
