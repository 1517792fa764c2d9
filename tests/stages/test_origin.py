"""A row that a stage refuses is named by the user's file and line."""

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from citer.cli.main import call
from tests.tiny import make_tiny_pair

SHIPPED = Path(__file__).parents[2] / "citer/config/params.yaml"
ROWS = 60
LONG = 37  # the line of the row that is too long


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project with a tiny pair."""
    make_tiny_pair(tmp_path / "pair")
    (tmp_path / "data/own").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)


def prepare(rows: list[dict[str, Any]], **share: float) -> None:
    """Write params.yaml and a file with the rows, and run `prepare`."""
    Path("data/own/rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    params = YAML().load(SHIPPED)
    params["pair"] |= {"slm": "pair/slm", "llm": "pair/llm"}
    file = {"path": "data/own/rows.jsonl", "task": "math"}
    shares = dict.fromkeys(("sft", "preference", "validation", "test"), 0.1) | share
    params["prepare"] |= {"toy": None, "train": [file], "shares": shares}
    YAML().dump(params, Path("params.yaml"))
    assert call(["prepare"]) == 0


def row(number: int, question: str = "", solution: str = "") -> dict[str, Any]:
    text = f"What is {number} + 1? {question}"
    answer = str(number + 1)
    return {"problem": text, "solution": f"{solution}\\boxed{{{answer}}}", "answer": answer}


@pytest.mark.parametrize("split", ["sft", "preference", "validation", "test"])
def test_a_row_that_is_too_long_is_named_by_file_and_line(
    split: str, capsys: pytest.CaptureFixture[str]
) -> None:
    long = {"solution": "so " * 2000} if split in ("sft", "preference") else {}
    rows = [row(number) for number in range(ROWS)]
    rows[LONG - 1] = row(LONG, **long or {"question": "x " * 2000})
    prepare(rows, **{split: 0.7})
    capsys.readouterr()
    assert call(["probe"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"citer: data/own/rows.jsonl:{LONG}: ")
    assert " tokens" in last
