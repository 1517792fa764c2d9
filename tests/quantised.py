"""Make a model folder a quantised one."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

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
