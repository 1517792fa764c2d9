"""Packed layers against the layers that they replace."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Phi3Config

from citer.models import rounding
from citer.models.cache import SlotCache
from citer.models.forward import wanted_hidden
from citer.models.pair import LanguageModel
from citer.models.rounding import BLOCK, LARGE, MANY, BlockedLinear, PackedLinear, pack


def layer(dtype: torch.dtype, outputs: int = 1024, bias: bool = True) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(768, outputs, bias, dtype=dtype).requires_grad_(False)


@pytest.fixture(autouse=True)
def with_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operators also run on a CPU without instructions for bfloat16."""
    monkeypatch.setattr(rounding, "BFLOAT16", True)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (4,), (9,), (1, 1), (2, 3), (5, 40)])
def test_a_packed_layer_computes_the_same(
    dtype: torch.dtype, bias: bool, shape: tuple[int, ...]
) -> None:
    linear = layer(dtype, bias=bias)
    network = nn.Sequential(linear)
    pack(network)
    assert isinstance(network[0], PackedLinear)
    states = torch.randn(*shape, 768).to(dtype)
    torch.testing.assert_close(network(states), linear(states), rtol=1e-2, atol=1e-3)
    if dtype == torch.float32:
        torch.testing.assert_close(network(states), linear(states), rtol=1e-5, atol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("outputs", [2 * (BLOCK // 768), 1500])  # two blocks, and a third begun
@pytest.mark.parametrize("shape", [(MANY - 1,), (MANY,), (1, 1), (3, MANY), (2, 5, 40)])
def test_without_bfloat16_instructions_many_tokens_are_multiplied_in_float32(
    bias: bool, outputs: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounding, "BFLOAT16", False)
    linear = layer(torch.bfloat16, outputs, bias)
    network = nn.Sequential(linear)
    pack(network)
    assert isinstance(network[0], BlockedLinear)
    states = torch.randn(*shape, 768).bfloat16()
    found = network(states)
    assert (found.shape, found.dtype) == ((*shape, outputs), torch.bfloat16)
    torch.testing.assert_close(found, linear(states), rtol=1e-2, atol=1e-3)
    if states[..., 0].numel() >= MANY:  # rounded once
        torch.testing.assert_close(
            found, linear.float()(states.float()).bfloat16(), rtol=8e-3, atol=0
        )


def test_float32_layers_are_packed_by_onednn_on_every_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounding, "BFLOAT16", False)
    network = nn.Sequential(layer(torch.float32))
    pack(network)
    assert isinstance(network[0], PackedLinear)


def without_operator(packed: PackedLinear, states: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._no_such_operator(states)


def of_other_arguments(packed: PackedLinear, states: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(states, packed.weight)


def without_bias(packed: PackedLinear, states: torch.Tensor) -> torch.Tensor:
    return states @ packed.weight.to_dense().T


@pytest.mark.parametrize("changed", [without_operator, of_other_arguments, without_bias])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_are_not_packed_if_the_operators_of_onednn_have_changed(
    changed: Callable,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setattr(PackedLinear, "forward", changed)
    network = nn.Sequential(layer(dtype), layer(dtype))
    layers = list(network)
    pack(network)
    assert list(network) == layers
    assert "oneDNN's operators have changed: decoding will be slower" in capsys.readouterr().err


def test_a_packed_layer_has_the_same_sizes_of_weights() -> None:
    network = nn.Sequential(layer(torch.float32))
    before = [(weight.nbytes, weight.shape, weight.dtype) for weight in network.parameters()]
    pack(network)
    assert [(w.nbytes, w.shape, w.dtype) for w in network.parameters()] == before


def test_small_and_float64_layers_are_not_packed() -> None:
    small, exact = layer(torch.float32, outputs=8), layer(torch.float64)
    assert small.weight.nbytes < LARGE <= exact.weight.nbytes
    network = nn.ModuleList([small, exact])
    pack(network)
    assert list(network) == [small, exact]


def test_packing_a_tied_head_does_not_change_the_bytes_that_it_reads(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=256,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=True,
    )
    network = LlamaForCausalLM(config).eval()
    before, packed = (LanguageModel("slm", tmp_path, "", network) for _ in range(2))
    read = before.weight_bytes
    hidden_NH = torch.randn(3, 256)
    logits_NV = before.logits(hidden_NH)
    pack(network)
    assert isinstance(network.get_output_embeddings(), PackedLinear)
    assert packed.weight_bytes == read
    torch.testing.assert_close(packed.logits(hidden_NH), logits_NV)


@torch.inference_mode()
def test_fused_projections_are_packed_and_divided_as_before() -> None:
    network = AutoModelForCausalLM.from_config(
        Phi3Config(
            vocab_size=512,
            hidden_size=512,
            intermediate_size=768,
            num_hidden_layers=1,
            num_attention_heads=8,
            num_key_value_heads=2,
            pad_token_id=0,
        )
    ).eval()
    ids_M = torch.arange(9)
    expected_MH = network.base_model(ids_M[None]).last_hidden_state[0]
    pack(network)
    assert isinstance(network.base_model.layers[0].self_attn.qkv_proj, PackedLinear)
    cache = SlotCache(network, slots=1)
    hidden_MH = wanted_hidden(network, ids_M, cache.begin([0], [9], [9]), cache)
    torch.testing.assert_close(hidden_MH, expected_MH, rtol=1e-4, atol=1e-4)
