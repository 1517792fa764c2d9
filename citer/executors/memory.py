"""What to say if memory runs out."""

import re

FULL = re.compile(r"OutOfMemoryError|can't allocate memory|not enough memory")
LOWER = {  # the settings that decide how much a command takes
    "probe": "decode.slots",
    "references": "decode.slots",
    "score_llm": "score.batch_tokens",
    "score_slm": "score.batch_tokens",
    "finetune": "finetune.batch_size or finetune.max_length",
    "router0": "train.batch_size",
    "rivals": "decode.slots",
    "label": "decode.slots",
    "train": "train.batch_size",
    "evaluate": "decode.slots",
    "generate": "answer.slots",
    "serve": "answer.slots",
}


def ran_out(error: Exception) -> bool:
    """Return whether an exception says that memory ran out: of Python, NumPy, Arrow or torch."""
    said = f"{type(error).__name__}: {error}"
    return isinstance(error, MemoryError) or bool(FULL.search(said))


def advice(command: str) -> str:
    """Return what the user of a command or stage can do, in words that end a sentence."""
    setting = LOWER.get(command.partition("@")[0])
    return f"lower {setting} in params.yaml" if setting else "expected more of it"
