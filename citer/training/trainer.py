"""Train with trl's SFTTrainer on encoded rows, in this process or in a DeepSpeed rank."""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import transformers
from datasets import Dataset, disable_progress_bars
from peft import LoraConfig
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import SFTConfig, SFTTrainer

from citer.models.folder import ModelFolder
from citer.progress import Advance, progress
from citer.storage.tables import read_table
from citer.training.job import ROW, ROWS, Job, last_checkpoint, steps_done

LARGE = 2**26  # logits of a batch; with their gradients they take most of a gigabyte
IGNORED = -100  # label of a token outside the references
ZERO = {2: "zero2.json", 3: "zero3.json", "3-offload": "zero3_offload.json"}


def train(job: Job, base: ModelFolder, folder: Path) -> None:
    """Train `base` on the rows in `folder`, from the last checkpoint if there is one."""
    _prepare(job.device)
    tokenizer = base.tokenizer
    if not (tokenizer.pad_token or tokenizer.eos_token):  # one of both pads
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(base.eos_ids[0])
    checkpoint = last_checkpoint(folder)
    arguments = _arguments(job, folder)  # before the model: with ZeRO-3, a rank loads its part
    lora = job.params.lora
    adapter = None
    if lora:
        adapter = LoraConfig(
            r=lora.rank, lora_alpha=lora.alpha, target_modules="all-linear", task_type="CAUSAL_LM"
        )
    # Weights that are trained stay in float32.
    dtype = torch.bfloat16 if job.bf16 and lora else torch.float32
    network = AutoModelForCausalLM.from_pretrained(job.base, dtype=dtype, local_files_only=True)
    network.generation_config = GenerationConfig()  # some of a base's could not be saved
    trainer = _Trainer(
        network,
        arguments,
        train_dataset=Dataset(read_table(folder / ROWS, ROW)),
        processing_class=tokenizer,
        peft_config=adapter,
    )
    trainer.remove_callback(PrinterCallback)
    with ExitStack() as stack:
        if trainer.is_world_process_zero():
            before = steps_done(checkpoint)
            advance = stack.enter_context(progress("finetune", job.steps, "steps", before))
            trainer.add_callback(_Advance(advance))
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)


def _arguments(job: Job, folder: Path) -> SFTConfig:
    params, on_gpu = job.params, job.device == "cuda"
    return SFTConfig(
        output_dir=str(folder),
        seed=job.seed,
        max_steps=job.steps,
        per_device_train_batch_size=params.batch_size // params.processes,
        learning_rate=params.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=0.03,
        bf16=job.bf16,
        use_cpu=not on_gpu,
        activation_checkpointing=job.checkpointing,
        dataloader_pin_memory=on_gpu,
        deepspeed=str(Path(__file__).with_name(ZERO[params.zero])) if job.deepspeed else None,
        completion_only_loss=True,
        max_length=None,  # `encode_rows` refuses rows that are too long
        save_steps=job.save_steps,
        save_total_limit=2,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )


def _prepare(device: str) -> None:
    """Be quiet, and use deterministic kernels. On a GPU, warn about operations that have none."""
    os.environ.setdefault("DS_ACCELERATOR", device)  # DeepSpeed warns if unset
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    disable_progress_bars()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(device == "cuda", warn_only=True)


class _Trainer(SFTTrainer):
    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Use trl's tiled loss with checkpointing only: it saves memory, but costs time, too.

        Else large logits are computed only where some row of the batch has a reference.
        """
        if self.args.activation_checkpointing:
            return super().compute_loss(model, inputs, *args, **kwargs)
        next_BT = inputs["labels"][:, 1:]
        if next_BT.numel() * self.accelerator.unwrap_model(model).config.vocab_size > LARGE:
            kept_T = (next_BT != IGNORED).any(0).nonzero().flatten()
            inputs |= {"logits_to_keep": kept_T, "shift_labels": next_BT[:, kept_T]}
        return Trainer.compute_loss(self, model, inputs, *args, **kwargs)


class _Advance(TrainerCallback):
    def __init__(self, advance: Advance):
        self.advance = advance

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.advance(1)
