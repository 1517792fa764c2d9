"""The SLM's weights in 8 bits: how they are rounded, multiplied, counted and bound to a router."""

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from citer.config.params import DecodeParams, PairParams
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, routed
from citer.errors import InputError
from citer.models.bundle import write_bundle
from citer.models.folder import ModelFolder, PairFolder
from citer.models.pair import Pair, load_pair
from citer.models.rounding import LEVELS, Int8Linear, PackedInt8Linear, deviation, round_weights
from citer.models.size import ModelSize
from citer.rule import Rule
from citer.serving.deployment import deploy, served_pair
from tests.heads import random_router
from tests.tiny import TinyPair

DTYPES = [torch.float32, torch.bfloat16]

outline_pair = partial(load_pair, weights=False)


def layer(dtype: torch.dtype, bias: bool = True) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(96, 40, bias, dtype=dtype).requires_grad_(False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_weight_is_rounded_by_half_a_step_of_its_row_at_most(dtype: torch.dtype) -> None:
    linear = layer(dtype)
    linear.weight[7] = 0
    one, other = Int8Linear(linear), Int8Linear(linear)
    assert torch.equal(one.weight, other.weight)
    assert torch.equal(one.scale, other.scale)
    step_O1 = linear.weight.double().abs().amax(1, keepdim=True) / 127
    error_OI = (one.weight * one.scale.double() - linear.weight.double()).abs()
    assert (error_OI <= step_O1 * (0.5 + 1e-5)).all()
    assert one.weight.abs().amax(1).tolist() == [127 * (row != 7) for row in range(40)]


@torch.inference_mode()
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
def test_a_product_is_that_of_rounded_weights_and_of_states_within_half_a_step(
    dtype: torch.dtype, bias: bool
) -> None:
    linear = layer(dtype, bias)
    rounded = Int8Linear(linear)
    weight_OI = rounded.weight * rounded.scale
    network = nn.Sequential(linear)
    round_weights(network)
    states_2TI = torch.randn(2, 9, 96).to(dtype)
    states_2TI[1, 3] = 0
    found_2TO = network(states_2TI).float()
    exact_2TO = states_2TI.float() @ weight_OI.T
    exact_2TO += linear.bias.float() if bias else 0
    largest_2T1 = states_2TI.float().abs().amax(-1, keepdim=True)
    most_2TO = largest_2T1 / LEVELS / 2 * weight_OI.abs().sum(1)
    kept = torch.finfo(dtype).eps * exact_2TO.abs()
    assert ((found_2TO - exact_2TO).abs() <= most_2TO + kept + 1e-5).all()


@torch.inference_mode()
def test_a_token_has_the_same_product_in_every_batch() -> None:
    network = nn.Sequential(layer(torch.float32))
    round_weights(network)
    states_NI = torch.randn(33, 96) * torch.logspace(-3, 3, 33)[:, None]
    alone_NO = torch.cat([network(row_1I) for row_1I in states_NI.split(1)])
    assert torch.equal(network(states_NI), alone_NO)


@torch.inference_mode()
@pytest.mark.parametrize("bias", [True, False])
def test_layers_that_are_multiplied_at_once_have_the_products_of_each(bias: bool) -> None:
    """Also if they are asked in turn about other states."""
    network, outputs = nn.Module(), {"q_proj": 40, "k_proj": 8, "v_proj": 8}
    torch.manual_seed(1)
    for name, size in outputs.items():
        setattr(network, name, nn.Linear(96, size, bias, dtype=torch.bfloat16))
    each = {name: PackedInt8Linear(getattr(network, name)) for name in outputs}
    round_weights(network)
    assert len([part for part in network.modules() if isinstance(part, PackedInt8Linear)]) == 1
    one_NI, other_NI = torch.randn(2, 5, 96, dtype=torch.bfloat16)
    for name, states_NI in [(name, s) for s in (one_NI, other_NI, one_NI) for name in outputs]:
        assert torch.equal(getattr(network, name)(states_NI), each[name](states_NI))
    for states_NI in (one_NI, other_NI):
        assert torch.equal(network.q_proj(states_NI), each["q_proj"](states_NI))


@torch.inference_mode()
def test_products_on_another_device_round_the_weights_only() -> None:
    rounded = Int8Linear(layer(torch.float64))  # not packed, as on a GPU
    states_NI = torch.randn(5, 96, dtype=torch.float64)
    expected_NO = states_NI @ (rounded.weight * rounded.scale.double()).T + rounded.bias
    torch.testing.assert_close(rounded(states_NI), expected_NO)


def without_operator(packed: PackedInt8Linear, states: torch.Tensor) -> torch.Tensor:
    return torch.ops.quantized.no_such_operator(states, packed.packed)


def of_other_sign(packed: PackedInt8Linear, states: torch.Tensor) -> torch.Tensor:
    return -states @ torch.ops.quantized.linear_unpack(packed.packed)[0].dequantize().T


@pytest.mark.parametrize("changed", [without_operator, of_other_sign])
def test_layers_are_not_packed_where_the_operators_have_changed(
    changed: Callable,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setattr(PackedInt8Linear, "forward", changed)
    linear = layer(torch.bfloat16)
    network = nn.Sequential(linear)
    round_weights(network)
    states_NI = torch.randn(4, 96, dtype=torch.bfloat16)
    assert deviation(network(states_NI), linear(states_NI)) < 0.02
    assert "FBGEMM does not run here: decoding will be slower" in capsys.readouterr().err


def params(folders: TinyPair, slm_weights: str = "int8", dtype: str = "float32") -> PairParams:
    slm, llm = map(str, folders)
    placement = {"device": "cpu", "dtype": dtype, "slm_weights": slm_weights}
    return PairParams.model_validate({"slm": slm, "llm": llm, **placement})


def rounded_pair(folders: TinyPair) -> PairFolder:
    return PairFolder(ModelFolder(folders.slm, weights="int8"), folders.llm)


@pytest.fixture
def rounded(folders: TinyPair) -> Pair:
    return load_pair(rounded_pair(folders), params(folders))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_count_as_they_are_rounded(folders: TinyPair, dtype: str) -> None:
    """The tiny SLM by hand: hidden 32, ffn 64, 2 key-value heads of 8, one layer, 384 ids."""
    matrices = 32 * 32 + 2 * 16 * 32 + 32 * 32 + 3 * 32 * 64 + 384 * 32
    rows = 32 + 2 * 16 + 32 + 2 * 64 + 32 + 384
    plain = 32 + 2 * 16 + 3 * 32  # biases, norms
    expected = matrices + 4 * rows + plain * getattr(torch, dtype).itemsize
    loaded, outlined = (
        make(rounded_pair(folders), params(folders, dtype=dtype))
        for make in (load_pair, outline_pair)
    )
    assert loaded.slm.weight_bytes == outlined.slm.weight_bytes == expected
    assert loaded.slm.card == outlined.slm.card
    assert loaded.identity == outlined.identity
    size = ModelSize.of(folders.slm, dtype, "int8")
    assert size.model.weight_bytes == expected
    assert size.parameters == ModelSize.of(folders.slm, dtype).parameters


def test_only_the_slm_is_rounded_and_workers_round_it_alike(
    folders: TinyPair, rounded: Pair
) -> None:
    layers = [
        isinstance(part, Int8Linear)
        for model in (rounded.slm, rounded.local_llm)
        for part in model.network.modules()
        if isinstance(part, nn.Linear | Int8Linear)
    ]
    assert layers == [True] * 5 + [False] * 15  # three and two are multiplied at once
    ids = torch.arange(9)[None]
    plain = load_pair(PairFolder(*folders), params(folders, "stored")).slm
    hidden = [model.last_hidden(input_ids=ids) for model in (plain, rounded.slm)]
    assert 1e-3 < deviation(hidden[1], hidden[0]) < 0.2
    again = pickle.loads(pickle.dumps(outline_pair(rounded_pair(folders), params(folders)).slm))
    assert torch.equal(again.last_hidden(input_ids=ids), hidden[1])


@pytest.mark.parametrize("rule", ["risk 0.7 audit 1", "every 3 audit 1"])
def test_exact_rules_give_the_llms_own_text(rounded: Pair, rule: str) -> None:
    requests = [Request(f"q{n}", tuple(range(20 + 3 * n, 25 + 4 * n))) for n in range(6)]
    router = random_router(rounded.slm.hidden_size)
    texts = [
        {answer.key: answer.token_ids for answer in Engine(rounded, 4, 20).decode(requests, policy)}
        for policy in (routed(router, Rule.parse(rule)), LLM_ALONE)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("made", "here"), [("int8", "stored"), ("stored", "int8")])
def test_a_router_serves_only_the_weights_that_it_was_made_for(
    folders: TinyPair, tmp_path: Path, made: str, here: str
) -> None:
    bundle = tmp_path / "bundle"
    kinds = {"stored": PairFolder(*folders), "int8": rounded_pair(folders)}
    write_bundle(bundle, random_router(32), kinds[made].identity("float32"))
    rule, limits = Rule.parse("risk 0.5 audit 1"), DecodeParams(slots=2, max_new_tokens=8)
    own, other = params(folders, made), params(folders, here)
    same = served_pair(bundle, own, folders.slm)
    deployment = deploy(bundle, same, own, rule, limits)
    assert deployment.pair.identity == kinds[made].identity("float32")
    digests = [kinds[kind].slm.digest for kind in (made, here)]
    slm = folders.slm
    expected = f"{bundle}: made for the SLM {slm} ({digests[0]}), here it is {slm} ({digests[1]})"
    with pytest.raises(InputError) as caught:
        deploy(bundle, served_pair(bundle, other, folders.slm), other, rule, limits)
    assert str(caught.value) == expected
