"""Finetuning of a low-rank adapter instead of all weights."""

from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from citer.config.params import LoraParams
from citer.errors import InputError
from citer.models.folder import ModelFolder, outline

if TYPE_CHECKING:  # takes seconds to import
    from peft import LoraConfig


def check_adapter(base: Path, lora: LoraParams) -> None:
    """Raise InputError if the model lacks a target layer or has one that is smaller than the rank.

    Reads no weights.
    """
    network = outline(base)
    layers = {
        path.rpartition(".")[2]: layer
        for path, layer in network.named_modules()
        if isinstance(layer, nn.Linear) and layer is not network.get_output_embeddings()
    }
    for name in lora.targets or layers:
        if name not in layers:
            expected = f"expected some of {', '.join(layers)}"
            raise InputError(f"finetune.lora.targets: {name!r}: not in {base}, {expected}")
        if lora.rank > (size := min(layers[name].weight.shape)):
            expected = f"expected at most {size}, the smaller dimension of {name}"
            raise InputError(f"finetune.lora.rank: {lora.rank}: {expected}")


def peft_config(lora: LoraParams) -> "LoraConfig":
    from peft import LoraConfig  # takes seconds

    return LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.targets) if lora.targets else "all-linear",
        task_type="CAUSAL_LM",
    )


def merge(base: Path, checkpoint: Path) -> ModelFolder:
    """Write `base` with the adapter of `checkpoint` added to its weights, beside the adapter.

    The sum is computed in float32 and rounded once, to the precision of `base`.
    """
    from peft import PeftModel

    disable_progress_bar()
    network = AutoModelForCausalLM.from_pretrained(base, dtype="auto", local_files_only=True)
    merged = PeftModel.from_pretrained(network, checkpoint).merge_and_unload()
    merged.save_pretrained(checkpoint / "merged")
    return ModelFolder(checkpoint / "merged")
