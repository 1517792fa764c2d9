"""The accuracy of one model of the embedded pair, alone and greedy."""

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from citer.config import Task
from citer.data.answers import grade
from citer.data.importing import parse_row
from citer.data.prompts import prompt, token_ids
from citer.data.toy import rows

MAX_NEW_TOKENS = 72
BATCH = 100


@torch.inference_mode()
def accuracy(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, task: Task, count: int, seed: int
) -> float:
    """Return the share of right answers to `count` questions of the pipeline's part."""
    problems = [parse_row(row, task, "reference") for row in rows(task, count, seed, "pipeline")]
    right = 0
    for start in range(0, count, BATCH):
        batch = problems[start : start + BATCH]
        written = _generate(model, tokenizer, [prompt(problem) for problem in batch])
        right += sum(map(grade, batch, written))
    return right / count


def _generate(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, prompts: list[str]
) -> list[str]:
    ids = [token_ids(text, tokenizer, begins=True) for text in prompts]
    encoded = tokenizer.pad({"input_ids": ids}, padding_side="left", return_tensors="pt")
    ids_BT: Tensor = model.generate(  # type: ignore[operator]  # its mixin is untyped
        input_ids=encoded["input_ids"],
        attention_mask=encoded["attention_mask"],
        max_new_tokens=MAX_NEW_TOKENS,
        do_sample=False,
        pad_token_id=tokenizer.eos_token_id,
    )
    width = encoded["input_ids"].shape[1]
    return tokenizer.batch_decode(ids_BT[:, width:], skip_special_tokens=True)
