"""Make a model folder a quantised one."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TorchAoConfig
from transformers.utils.quantization_config import QuantizationConfigMixin

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def to_fp8(folder: Path) -> None:
    """Quantise the linear layers in blocks of 128 x 128, as transformers expects FP8 weights.

    No dimension may exceed 128. transformers dequantises such weights on a CPU when it loads them.
    """
    stored = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        if name.endswith("_proj.weight"):
            scale = weight.abs().max() / torch.finfo(torch.float8_e4m3fn).max
            stored[f"{name}_scale_inv"] = scale.reshape(1, 1)
            weight = (weight / scale).to(torch.float8_e4m3fn)
        stored[name] = weight
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": FP8}))


def to_int8(folder: Path) -> None:
    """Quantise the linear layers by torchao, with a scale and a zero per row."""
    from torchao.quantization import Int8WeightOnlyConfig

    _save(folder, TorchAoConfig(Int8WeightOnlyConfig(version=2)))


def to_8_bits(folder: Path) -> None:
    """Quantise the linear layers by bitsandbytes, with a scale per row."""
    _save(folder, BitsAndBytesConfig(load_in_8bit=True))


def _save(folder: Path, settings: QuantizationConfigMixin) -> None:
    AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, device_map="cpu", quantization_config=settings
    ).save_pretrained(folder)


METHODS = [
    pytest.param(
        quantise,
        id=package,
        marks=pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed"),
    )
    for package, quantise in {
        "transformers": to_fp8,
        "torchao": to_int8,
        "bitsandbytes": to_8_bits,
    }.items()
]
