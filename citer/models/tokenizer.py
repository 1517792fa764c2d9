"""Load and check a folder's tokenizer, and name what decides a text's ids and an answer's end."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from citer.data.prompts import token_ids
from citer.errors import InputError

# Llama 3, ChatML, Gemma and Phi-3 write these after a turn. A folder may not list them as EOS.
ENDS_OF_TURN = ("<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>")
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


def named_eos_ids(tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> list[int]:
    """Return the tokenizer's EOS and the known ends of turns, if they are below `vocab_size`."""
    added = tokenizer.added_tokens_decoder.items()
    ends = [number for number, token in added if token.content in ENDS_OF_TURN]
    own = tokenizer.eos_token_id
    return [end for end in (own, *ends) if end is not None and end < vocab_size]


@dataclass(frozen=True)
class StopTexts:
    """An answer ends with the first token after which its last tokens contain one of `texts`."""

    texts: tuple[str, ...]
    tokenizer: PreTrainedTokenizerFast

    @cached_property
    def window(self) -> int:
        """Tokens to decode: one a byte, three for part of a character, one for a stripped space."""
        return max(len(text.encode()) for text in self.texts) + 4

    def end(self, ids: Sequence[int], first: int = 0) -> bool:
        """Return whether a text stands at the end of an answer, which begins at index `first`."""
        tail = list(ids[max(first, len(ids) - self.window) :])
        written = self.tokenizer.decode(tail, skip_special_tokens=True)
        return any(text in written for text in self.texts)

    def cut(self, answer: str) -> str:
        """Return the part of an answer before the first stop text."""
        places = (answer.find(text) for text in self.texts)
        return answer[: min((place for place in places if place >= 0), default=len(answer))]
