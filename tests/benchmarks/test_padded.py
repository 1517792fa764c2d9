"""A model with wider heads computes the same logits."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from benchmarks.vllm import widen
from citer.storage.tables import read_json

SLM = Path("data/pair/slm")


def test_wider_heads_give_the_same_logits(tmp_path: Path) -> None:
    widen(SLM, tmp_path)
    narrow, wide = (AutoModelForCausalLM.from_pretrained(path) for path in (SLM, tmp_path))
    assert read_json(tmp_path / "config.json")["head_dim"] == 32
    assert wide.model.layers[0].self_attn.k_proj.weight.shape[0] == 2 * 64
    ids = torch.randint(900, (3, 40), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(wide(ids).logits, narrow(ids).logits, atol=1e-4, rtol=1e-4)
