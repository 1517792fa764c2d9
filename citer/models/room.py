"""Whether questions leave their answers room in the models' context, before a model is loaded."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from citer.data.problems import Problem
from citer.data.prompts import check_context, encode
from citer.models.folder import context_length, eos_token_ids, load_tokenizer


def check_room(
    asked: Iterable[tuple[str, Problem]], slm: Path, llm: Path, max_new_tokens: int
) -> None:
    """Raise InputError for the first question, told by where it stands, that leaves too little."""
    tokenizer, eos_id = load_tokenizer(slm), eos_token_ids(slm)[0]
    prompts = (
        (where, encode(replace(problem, reference=None), tokenizer, eos_id))
        for where, problem in asked
    )
    context = min(context_length(slm), context_length(llm))
    check_context(prompts, context, max_new_tokens, "evaluate.max_new_tokens")
