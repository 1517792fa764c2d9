"""Whole files of GSM8K and CommonsenseQA rows, in every kind of file, and files that are refused.

The published rows are turned back into the shape in which the hub has them.
"""

import json
import re

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from citer.data.importing import load_problems
from citer.data.tasks.grading import grade
from tests.conftest import PUBLISHED

LAST = re.compile(r"\nThe final answer is: \\boxed\{(.*)\}$")


def gsm8k(row):
    """Undo what the import does to the last line of an answer."""
    return {"question": row["problem"], "answer": LAST.sub(r"\n#### \1", row["solution"])}


def commonsenseqa(row):
    return {key: row[key] for key in ("id", "question", "choices", "answerKey")} | {
        "question_concept": row["question"].split()[-1]
    }


HUB = {"gsm8k": gsm8k, "commonsenseqa": commonsenseqa}
OWN = {"gsm8k": "math", "commonsenseqa": "mc"}


def write(path, rows):
    match path.suffix:
        case ".jsonl":
            path.write_text("\n".join(map(json.dumps, rows)))
        case ".json":
            path.write_text(json.dumps(rows, indent=1))
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        case ".csv":
            pd.DataFrame(rows).to_csv(path, index=False)


def published(name, count):
    file = PUBLISHED / f"{name}.jsonl"
    if not file.exists():
        pytest.skip(f"{file} is absent: its rows are no part of this repository")
    with file.open(encoding="utf-8") as lines:
        return [HUB[name](json.loads(line)) for line, _ in zip(lines, range(count), strict=False)]


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet", "csv"])
@pytest.mark.parametrize("name", HUB)
def test_of_a_thousand_published_rows_none_is_lost(tmp_path, capsys, name, kind):
    rows = published(name, 1000)
    path = tmp_path / f"train.{kind}"
    write(path, rows)
    loaded = load_problems(path, [OWN[name]], "answer")
    assert [problem.question for _, problem in loaded] == [row["question"].strip() for row in rows]
    format = {"gsm8k": "gsm8k", "commonsenseqa": "mc"}[name]
    assert f"{path}: 1,000 {format} rows (recognised by `question" in capsys.readouterr().out
    for (_, problem), row in zip(loaded, rows, strict=True):
        if name == "gsm8k":
            assert grade(problem, problem.reference)
            assert row["answer"].endswith(f"#### {problem.answer}")
            assert not re.search("<<|>>|####", problem.reference)
        else:
            assert (problem.reference, problem.answer) == (None, row["answerKey"])
            assert grade(problem, f"The answer is ({problem.answer}).")
            assert [choice.text for choice in problem.choices] == [
                text.strip() for text in row["choices"]["text"]
            ]
