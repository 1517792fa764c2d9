"""Load and check a folder's tokenizer, and list the settings that decide a text's ids."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from citer.data.prompts import token_ids
from citer.errors import InputError

ROUND_TRIP = "Problem: (A) 3 + 14 = 17.\nSo the answer is \\boxed{17}."


def load_tokenizer(path: Path, vocab_size: int) -> PreTrainedTokenizerFast:
    """Load tokenizer.json from the folder `path`. The caller has checked the folder's files.

    `AutoTokenizer` is not used: it would replace the pre-tokenizer by that of the model family.
    Raises InputError if decoding does not restore a text, or if a text could get an id that is not
    below `vocab_size`.
    """
    if not (path / "tokenizer.json").is_file():
        raise InputError(f"{path}: no tokenizer.json, expected a fast tokenizer")
    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
        decoded = tokenizer.decode(token_ids(ROUND_TRIP, tokenizer, begins=False))
    except Exception as error:  # tokenizers raises nothing narrower
        raise InputError(f"{path}: no usable tokenizer: {error!r}") from error
    if decoded != ROUND_TRIP:
        raise InputError(f"{path}: the tokenizer turns {ROUND_TRIP!r} into {decoded!r}")
    _check_ids(path, tokenizer, vocab_size)
    return tokenizer


def _check_ids(path: Path, tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> None:
    """Raise InputError if a text could get an id for which the model has no embedding."""
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    ids = {token: n for token, n in tokenizer.get_vocab().items() if token not in special}
    last = max(ids, key=ids.__getitem__)
    if ids[last] >= vocab_size:
        raise InputError(
            f"{path}/tokenizer.json: {last!r} has the id {ids[last]}, "
            f"expected one below vocab_size {vocab_size}"
        )


def tokenizer_parts(tokenizer: PreTrainedTokenizerFast, eos_ids: Sequence[int]) -> dict[str, Any]:
    """Return everything that decides which ids a text gets and which ids end an answer.

    Truncation and padding are left out: encoding uses neither. `prompt` and `eos` are present only
    if they differ from the default, so that other tokenizers keep their digest.
    """
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    parts = {
        part: content[part] for part in ("normalizer", "pre_tokenizer", "model", "added_tokens")
    }
    plain, prompt = (token_ids(ROUND_TRIP, tokenizer, begins=begins) for begins in (False, True))
    if prompt != plain:  # the post-processor, which tokenizer_config.json may change, adds tokens
        parts["prompt"] = prompt
    if len(eos_ids) > 1:
        parts["eos"] = sorted(eos_ids)
    return parts
