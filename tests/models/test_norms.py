"""The fused norm computes what each model type's own norm does."""

import copy

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from citer.models.norms import FusedNorm, fuse_norms, fusible
from citer.models.pair import Pair
from citer.models.rounding import deviation


def states(*size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0)).bfloat16()


def norm(kind: type = LlamaRMSNorm) -> nn.Module:
    made = kind(48).bfloat16()
    made.weight.data = states(48)
    return made


def test_a_fused_norm_deviates_by_a_rounding() -> None:
    own, states_MKH = norm(), states(5, 3, 48)
    assert deviation(FusedNorm(own)(states_MKH), own(states_MKH)) < 4e-3
    assert fusible(own)


def test_other_precisions_and_other_norms_are_left_alone() -> None:
    assert not fusible(norm().float())
    assert not hasattr(norm(Gemma3RMSNorm), "variance_epsilon")
    other = norm()
    other.forward = lambda states_H: states_H * (1 + other.weight)
    assert not fusible(other)


def test_a_network_on_a_cpu_keeps_its_norms(pair: Pair) -> None:
    network = copy.deepcopy(pair.slm.network).bfloat16()
    fuse_norms(network)
    assert not any(isinstance(each, FusedNorm) for each in network.modules())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_network_on_a_gpu_gets_fused_norms(pair: Pair) -> None:
    plain = copy.deepcopy(pair.slm.network).bfloat16().cuda()
    fused = copy.deepcopy(plain)
    fuse_norms(fused)
    layers = plain.config.num_hidden_layers
    assert sum(isinstance(each, FusedNorm) for each in fused.modules()) == 2 * layers + 1
    ids = torch.arange(1, 9, device="cuda")[None]
    with torch.inference_mode():
        theirs, ours = (each.base_model(ids).last_hidden_state for each in (plain, fused))
    assert deviation(ours, theirs) < 2e-2
