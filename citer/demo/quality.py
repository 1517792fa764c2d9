"""The accuracy of one model of the embedded pair, alone and greedy."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from citer.data.importing import parse_row
from citer.data.problems import Problem
from citer.data.prompts import PlainPrompts
from citer.data.tasks.grading import grade
from citer.demo.toy import rows

MAX_NEW_TOKENS = 72
BATCH = 100


@torch.inference_mode()
def accuracy(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, task: str, count: int, seed: int
) -> float:
    """Return the share of right answers to `count` questions of the pipeline's part."""
    problems = [parse_row(row, task, "reference") for row in rows(task, count, seed, "pipeline")]
    right = 0
    for start in range(0, count, BATCH):
        batch = problems[start : start + BATCH]
        written = _generate(model, tokenizer, batch)
        right += sum(map(grade, batch, written))
    return right / count


def _generate(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, problems: Sequence[Problem]
) -> list[str]:
    prompts = PlainPrompts(tokenizer, tokenizer.eos_token_id)
    ids = [prompts.prompt_ids(problem) for problem in problems]
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
