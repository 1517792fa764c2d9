"""Supervised finetuning of the SLM: of all weights, or of a low-rank adapter.

The loss is computed on the references, not the prompts.
"""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from citer.config.params import FinetuneParams, PairParams
from citer.data.problems import Problem
from citer.errors import InputError
from citer.models.device import resolve_device
from citer.models.folder import ModelFolder
from citer.models.room import check_longest
from citer.storage.code import code_digest
from citer.storage.tables import digest, partial_dir, remove, replacing, write_table, writing
from citer.training.job import ROW, ROWS, Job, last_checkpoint, losses, steps_done
from citer.training.launch import launch

Row = dict[str, list[int]]
OFTEN = 75  # steps between checkpoints, which are three times as large as the model, at least


def finetune(
    base: ModelFolder,
    problems: Sequence[Problem],
    output: Path,
    pair: PairParams,
    params: FinetuneParams,
    seed: int,
) -> list[float]:
    """Finetune the model `base` on the problems' references and write it to `output`.

    With 0 epochs, the model is copied. A killed run resumes from its last checkpoint and ends with
    the same weights. Returns the loss of every step, in nats per completion token. Raises
    InputError if a setting or a row does not fit, or if the loss diverged.
    """
    steps = params.steps(len(problems))
    if not steps:
        _publish(base.path, base, output)
        return []
    job = plan(base.path, pair, params, seed, steps)
    rows = encode_rows(base, problems, params.max_length)
    settings = job.model_dump_json(), code_digest("finetune")
    folder = partial_dir("finetune", digest(base.path, *settings, *map(str, rows)))
    if steps_done(last_checkpoint(folder)) < steps:
        write_table(folder / ROWS, pa.Table.from_pylist(rows, schema=ROW), ROW, {})
        with writing(folder):
            if job.deepspeed:
                launch(job, folder)
            else:
                from citer.training.trainer import train  # takes seconds to import

                train(job, base, folder)
    checkpoint = last_checkpoint(folder)
    assert checkpoint is not None
    history = losses(checkpoint)
    if not all(map(math.isfinite, history)):
        raise InputError(f"finetune.learning_rate: {params.learning_rate:g}: the loss diverged")
    trained = merge(base.path, checkpoint) if params.lora else ModelFolder(checkpoint)
    _publish(base.path, trained, output)
    remove(folder)
    return history


def plan(base: Path, pair: PairParams, params: FinetuneParams, seed: int, steps: int) -> Job:
    """Choose the device and the precision. Decide what "auto" stands for: "on" on a GPU.

    Raises InputError if `zero`, `processes` or `deepspeed` do not fit the machine or each other.
    """
    on_gpu = resolve_device(pair.device).type == "cuda"
    choice = {"on": True, "off": False, "auto": on_gpu}
    deepspeed = choice[params.deepspeed]
    setting = f"finetune.processes: {params.processes}"
    if params.processes > 1 and not deepspeed:
        raise InputError(f"{setting}: needs DeepSpeed, expected 1 or finetune.deepspeed: on")
    if params.zero != 2 and not deepspeed:
        expected = "expected 2 or finetune.deepspeed: on"
        raise InputError(f"finetune.zero: {params.zero}: needs DeepSpeed, {expected}")
    if on_gpu and not deepspeed and torch.cuda.device_count() > 1:
        several = f"off: {torch.cuda.device_count()} GPUs are visible"
        expected = "expected auto, on, or CUDA_VISIBLE_DEVICES with one of them"
        raise InputError(f"finetune.deepspeed: {several}; {expected}")
    if on_gpu and params.processes > torch.cuda.device_count():
        raise InputError(f"{setting}: expected at most {torch.cuda.device_count()}, one per GPU")
    return Job(
        base=base,
        params=params,
        seed=seed,
        steps=steps,
        save_steps=max(OFTEN, steps // 20),
        device="cuda" if on_gpu else "cpu",
        bf16=_bf16(pair.dtype, on_gpu),
        checkpointing=choice[params.gradient_checkpointing],
        deepspeed=deepspeed,
    )


def _bf16(dtype: str, on_gpu: bool) -> bool:
    """Return whether to train in bfloat16. It replaces float16, whose gradients would overflow."""
    if on_gpu:
        return dtype in ("bfloat16", "float16") and torch.cuda.is_bf16_supported()
    return dtype == "bfloat16"


def encode_rows(base: ModelFolder, problems: Sequence[Problem], max_length: int) -> list[Row]:
    """Return the ids of every problem, with mask 1 for the reference and its EOS.

    Raises InputError with the longest problem if it has more than `max_length` tokens.
    """
    examples = [base.prompts.encode(problem) for problem in problems]
    check_longest(problems, examples, max_length)
    return [
        {
            "input_ids": [*prompt_ids, *reference_ids],
            "completion_mask": [0] * len(prompt_ids) + [1] * len(reference_ids),
        }
        for prompt_ids, reference_ids in examples
    ]


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


def _publish(base: Path, checkpoint: ModelFolder, output: Path) -> None:
    """Write trained weights in the precision of `base`, its own unchanged. Copy its other files.

    The trainer rewrites tokenizer and EOS settings, which must stay equal for both models.
    """
    dtype = AutoConfig.from_pretrained(base, local_files_only=True).dtype or torch.float32
    with replacing(output) as aside:
        aside.mkdir()
        for file in checkpoint.weight_files:
            weights = load_file(file)
            if checkpoint.path != base:
                weights = {name: weight.to(dtype) for name, weight in weights.items()}
            save_file(weights, aside / file.name, {"format": "pt"})
        texts = [file for file in base.iterdir() if file.suffix in (".json", ".jinja", ".txt")]
        settings = [file for file in texts if not file.match("*.index.json")]
        for file in [*settings, *checkpoint.path.glob("*.index.json")]:
            shutil.copyfile(file, aside / file.name)
