"""Outcomes of four questions, two of each task, for statistics computed by hand."""

import pyarrow as pa

from citer.evaluation.points import rule_columns
from citer.rule import LLM, SLM, Rule
from citer.storage.schema import OUTCOME


def answered(method: str, rule: Rule, correct: str, moved: int, llm_tokens: int = 0) -> pa.Table:
    """Make four answers of ten tokens, with a digit of `correct` for each."""
    rows = [
        {
            "split": "test",
            "method": method,
            **rule_columns(rule),
            "problem_id": str(n),
            "task": "math" if n < 2 else "mc",
            "correct": right == "1",
            "tokens": 10,
            "llm_tokens": llm_tokens,
            "bytes": moved,
        }
        for n, right in enumerate(correct)
    ]
    return pa.Table.from_pylist(rows, OUTCOME)


def alone(slm: str, llm: str) -> pa.Table:
    both = answered("slm", SLM, slm, 10), answered("llm", LLM, llm, 100, llm_tokens=10)
    return pa.concat_tables(both)
