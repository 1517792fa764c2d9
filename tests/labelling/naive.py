"""The labels of the published code: a whole forward of both models for every prefix.

It finishes every contested answer with whole forwards. The truth table and the tie rule are ours.
"""

from collections.abc import Sequence

import torch

from citer.data.problems import Problem
from citer.data.prompts import Encoded
from citer.data.tasks.grading import grade
from citer.models.pair import LanguageModel, Pair
from citer.models.vocabulary import Vocabulary


def label_naively(pair: Pair, problem: Problem, example: Encoded, new_tokens: int) -> list[int]:
    """Return one label per token of the reference. If both branches end wrong, it is 1."""
    prompt_ids, reference_ids = example
    labels = []
    for position, truth in enumerate(reference_ids):
        before = reference_ids[:position]
        slm_token, llm_token = (
            _predict(model, [*prompt_ids, *before], pair.vocabulary)
            for model in (pair.slm, pair.local_llm)
        )
        if truth in (slm_token, llm_token) or slm_token == llm_token:
            labels.append(int(truth == slm_token or truth != llm_token))
        else:
            labels.append(
                int(
                    _ends_right(pair, problem, prompt_ids, [*before, slm_token], new_tokens)
                    or not _ends_right(pair, problem, prompt_ids, [*before, llm_token], new_tokens)
                )
            )
    return labels


def _ends_right(
    pair: Pair, problem: Problem, prompt_ids: list[int], written: list[int], new_tokens: int
) -> bool:
    """Let the SLM finish the answer, as router 0 does, and grade it."""
    for _ in range(new_tokens):
        if written[-1] in pair.eos_ids:
            return grade(problem, pair.text(written))
        written = [*written, _predict(pair.slm, [*prompt_ids, *written], pair.vocabulary)]
    return written[-1] in pair.eos_ids and grade(problem, pair.text(written))


@torch.inference_mode()
def _predict(model: LanguageModel, ids: Sequence[int], vocabulary: Vocabulary) -> int:
    """Return the model's next token, from a forward over all ids."""
    ids_1T = torch.tensor([ids], device=model.device)
    hidden_1TH = model.network.base_model(input_ids=ids_1T, use_cache=False).last_hidden_state
    return int(vocabulary.choices(model.logits(hidden_1TH[:, -1])).argmax())
