"""Questions and helpers of the tests of `citer generate`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from citer.config.params import Params
from citer.data.importing import parse_row
from citer.data.problems import Problem
from citer.models.folder import PairFolder
from citer.models.pair import Pair, load_pair
from citer.rule import Rule
from citer.serving.deployment import Reply
from citer.serving.generate import generate, line
from citer.serving.log import Decode, audited_row
from citer.storage.schema import AUDITED

MATH = [
    {"problem": "What is 3 + 4?", "solution": "It is \\boxed{7}."},
    {"problem": "What is 2 * 5?"},
    {"problem": "What is 9 - 1?", "answer": "8"},
]

MC = [
    {
        "question": "Which is a planet?",
        "choices": {"text": ["Mars", "the Sun"], "label": ["1", "2"]},
        "answerKey": "1",
    }
]

RULE = Rule("score", 0.5)

MAX_NEW_TOKENS = 12


def own_pair(params: Params) -> Pair:
    return load_pair(PairFolder(Path("data/models/slm"), Path(params.pair.llm)), params.pair)


def answers(output: Path) -> list[dict]:
    return [json.loads(line) for line in output.read_text().splitlines()]


def audited(
    params: Params, bundle: Path, folder: Path, rule: Rule, asked: Sequence[dict] = MATH
) -> tuple[list[dict], list[dict]]:
    """Run `generate`; return the rows that a server would log, and the answers."""
    rows: list[dict] = []

    def noting(reply: Reply, decode: Decode) -> dict[str, Any]:
        rows.append(audited_row(reply, decode))
        return line(reply, decode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("citer.serving.generate.line", noting)
        found = answered(params, bundle, folder, rule, asked)
    return pa.Table.from_pylist(rows, AUDITED).to_pylist(), found


def answered(
    params: Params, bundle: Path, folder: Path, rule: Rule, asked: Sequence[dict] = MATH
) -> list[dict]:
    source, output = folder / "q.jsonl", folder / "out.jsonl"
    source.write_text("\n".join(json.dumps(row) for row in asked))
    generate(params, bundle, source, output, rule)
    return answers(output)


LONG = {"problem": "Why? " * 400}


def parsed(rows: list[dict]) -> list[Problem]:
    return [parse_row(row, "math", requires="question") for row in rows]
