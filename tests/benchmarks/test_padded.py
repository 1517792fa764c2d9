"""A padded model computes the same logits."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.padded import Shape, pad, pad_router
from citer.errors import InputError
from citer.models.router import EXTRAS, Head, Router, RouterMLP

SLM, LLM = Path("data/pair/slm"), Path("data/pair/llm")
SHAPES = {
    "wider heads": Shape(953, 64, 128, 2, 4, 4, 32),
    "all": Shape(1_200, 192, 400, 5, 16, 8, 64),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_padded_model_gives_the_same_logits(tmp_path: Path, name: str) -> None:
    pad(SLM, tmp_path, SHAPES[name])
    assert Shape.of(tmp_path) == SHAPES[name]
    small, padded = (AutoModelForCausalLM.from_pretrained(path) for path in (SLM, tmp_path))
    sizes = {name: weight.shape for name, weight in padded.named_parameters()}
    width = SHAPES[name].num_key_value_heads * SHAPES[name].head_dim
    assert sizes["model.layers.0.self_attn.k_proj.weight"][0] == width
    ids = torch.randint(900, (3, 40), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        wanted, given = small(ids).logits, padded(ids).logits
    torch.testing.assert_close(given[..., :953], wanted, atol=2e-3, rtol=1e-3)
    assert (given[..., 953:] < wanted.min() - 30).all()


def test_the_states_are_the_same_in_the_first_dimensions(tmp_path: Path) -> None:
    pad(LLM, tmp_path, SHAPES["all"])
    small, padded = (AutoModelForCausalLM.from_pretrained(path) for path in (LLM, tmp_path))
    ids = torch.arange(1, 41)[None]
    with torch.inference_mode():
        wanted, given = (model.model(ids).last_hidden_state for model in (small, padded))
    torch.testing.assert_close(given[..., :128], wanted, atol=2e-3, rtol=1e-3)
    assert (given[..., 128:-1] == 0).all()


def test_a_padded_router_gives_the_same_scores() -> None:
    heads = {"wide": Head(RouterMLP(8, 0.1, 24 + EXTRAS)), "logistic": Head(RouterMLP(0, 0.0))}
    router = Router(heads)
    for head in heads.values():
        head.mlp.eval()
    padded = pad_router(router, 40)
    generator = torch.Generator().manual_seed(0)
    hidden_NH, extra_NE = (torch.rand(5, n, generator=generator) for n in (24, EXTRAS))
    feature_NF = torch.cat([hidden_NH, extra_NE], 1)
    wide_NF = torch.cat([hidden_NH, torch.ones(5, 16), extra_NE], 1)
    for name, head in heads.items():
        torch.testing.assert_close(padded.heads[name].score(wide_NF), head.score(feature_NF))


@pytest.mark.parametrize(
    "shape",
    [SHAPES["all"]._replace(num_hidden_layers=1), SHAPES["all"]._replace(head_dim=40)],
)
def test_a_model_that_does_not_fit_is_refused(tmp_path: Path, shape: Shape) -> None:
    with pytest.raises(InputError, match="data/pair/slm: expected a Qwen2 model"):
        pad(SLM, tmp_path / "out", shape)
    assert not (tmp_path / "out").exists()
