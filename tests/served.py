"""Tables of answers served earlier, as `citer serve --log` writes them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from citer.data.problems import problem_key
from citer.storage.schema import AUDITED
from citer.storage.tables import write_table


def served(question: str, **changes: Any) -> dict[str, Any]:
    """Return a row. The audit checked tokens 0 and 2 of 4, and rejected the SLM's token 9 at 2."""
    return {
        "problem_id": problem_key("math", question, None),
        "task": "math",
        "question": question,
        "choices": None,
        "messages": None,
        "answer": None,
        "completion": "2 + 2",
        "token_ids": [5, 6, 7, 0],
        "truncated": False,
        "audited": [0, 2],
        "disagreements": [disagreement(2, slm=9, llm=7, rejected=True)],
        "request": None,
        "user": None,
        "reference": None,
        **changes,
    }


def disagreement(
    position: int, slm: int, llm: int, rejected: bool, odds: float = 0.05
) -> dict[str, Any]:
    return {
        "position": position,
        "slm_token": slm,
        "llm_token": llm,
        "slm_text": "s",
        "llm_text": "l",
        "odds": odds,
        "rejected": rejected,
    }


def write_served(path: str, rows: Sequence[Mapping[str, Any]]) -> str:
    table = pa.Table.from_pylist(rows, AUDITED)
    write_table(Path(path), table, AUDITED, {"rule": "risk 0.8 audit 0.1"})
    return path
