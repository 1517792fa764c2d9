"""Rows of files become problems: bad rows, and files without rows."""

import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from citer.data.importing import load_problems
from citer.data.tasks import TASKS
from citer.errors import InputError

MATH = {"problem": "What is 2 + 2?", "solution": "2 + 2 = 4. The answer is \\boxed{4}."}


def test_an_unescaped_backslash_is_recognised(written):
    path = written('{"problem": "2 + 2?", "solution": "It is \\boxed{4}."}')
    with pytest.raises(InputError) as caught:
        load_problems(path, ["math"], "reference")
    assert str(caught.value) == (
        f"{path}:1: solution: a backspace before 'oxed': its backslash was not escaped in JSON; "
        "expected '\\\\boxed'"
    )


BROKEN = ["{", '{"problem": "2?"}', '{"problem": "3?"}', '{"problem": "4 \\sqrt"}', "[]"]


def test_the_first_bad_row_raises_with_file_and_line(written):
    path = written("\n".join([json.dumps(MATH), "", *BROKEN[1:3]]))
    with pytest.raises(InputError, match=f"^{path}:3: solution: missing; expected a solution"):
        load_problems(path, ["math"], "reference")
    path = written("\n".join([json.dumps(MATH), "", *BROKEN]))
    with pytest.raises(InputError, match=f"^{path}:3: row: not JSON: .*; expected one JSON object"):
        load_problems(path, ["math"], "reference")


def test_all_skipped_rows_are_reported(written):
    bad = []
    path = written("\n".join([json.dumps(MATH), *BROKEN, json.dumps(MATH | {"problem": "5?"})]))
    rows = load_problems(path, ["math"], "reference", bad.append)
    assert [(line, row.question) for line, row in rows] == [(1, MATH["problem"]), (7, "5?")]
    assert sorted(str(error).removeprefix(f"{path}:")[:16] for error in bad) == [
        "2: row: not JSON",
        "3: solution: mis",
        "4: solution: mis",
        "5: row: not JSON",
        "6: row: []; expe",
    ]


@pytest.mark.parametrize("content", ["", "\n\n", "[]"])
def test_a_file_without_rows_is_refused(written, content):
    with pytest.raises(InputError, match=r"rows\.json: no rows, expected"):
        load_problems(written(content), ["math"], "answer")


GSM8K = {"question": "What is 2 + 2?", "answer": "2 + 2 = <<2+2=4>>4\n#### 4"}
MC = {
    "question": "Which is a planet?",
    "choices": {"text": ["Mars", "the Sun"], "label": ["A", "B"]},
    "answerKey": "A",
}


def lines(*rows):
    return "\n".join(map(json.dumps, rows))


def test_the_recognised_format_is_printed_with_the_number_of_rows(written, capsys):
    path = written(lines({"id": 3}, *[GSM8K] * 1200))
    rows = load_problems(path, ["math"], "reference", on_bad_row=[].append)
    assert len(rows) == 1200
    expected = f"{path}: 1,200 gsm8k rows (recognised by `question` and `answer` with ####)\n"
    assert capsys.readouterr().out == expected


def test_each_row_of_a_file_is_read_in_its_own_format(written, capsys):
    rows = [GSM8K, MATH, MC, GSM8K | {"task": "number"}, {"task": "exact"} | GSM8K]
    read = load_problems(written(lines(*rows)), [*TASKS], "answer")
    assert [problem.task for _, problem in read] == ["math", "math", "mc", "number", "exact"]
    said = capsys.readouterr().out
    assert ": 2 gsm8k rows (recognised by `question` and `answer` with ####)" in said
    assert ": 1 mc rows (recognised by `question`)" in said


def test_fields_that_nobody_reads_are_named_once_if_no_row_has_an_answer(written, capsys):
    squad = {"id": "1", "question": "Who?", "context": "C.", "answers": {"text": ["Ann"]}}
    path = written(lines(squad, squad | {"title": "T"}))
    for answer, said in ((None, True), ("Ann", False)):
        rows = lines(squad, squad | {"title": "T", "answer": answer, "reference": "r. Ann"})
        load_problems(written(rows), ["contains"], "question")
        expected = f"{path}: no row has an answer; fields that are not read: ['answers', "
        assert (expected + "'context', 'id', 'title']" in capsys.readouterr().out) is said


def test_utf_16_is_refused(tmp_path):
    for suffix in ("csv", "jsonl"):
        path = tmp_path / f"rows.{suffix}"
        path.write_text("question,answer\n2?,#### 2\n", encoding="utf-16")
        with pytest.raises(InputError, match=f"^{path}: not UTF-8 text: invalid start byte at 0"):
            load_problems(path, ["math"], "answer")
        path.write_bytes("question,answer\n2?,#### 2\n".encode("utf-16-le"))
        with pytest.raises(InputError, match=rf"^{path}:[12]: row: "):
            load_problems(path, ["math"], "answer")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"2 + 2?"]),
        pa.array([2.5]),
        pa.array([["2 + 2?"]]),
        pa.array([pd.Timestamp("2026-01-01")]),
        pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
    ],
    ids=lambda column: str(column.type),
)
def test_a_parquet_column_of_another_type_is_refused_with_row_and_field(tmp_path, column):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"question": column, "answer": ["#### 4"]}), path)
    with pytest.raises(InputError, match=f"^{path}:1: question: .*; expected a text: the problem"):
        load_problems(path, ["math"], "reference")


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_parquet_columns_of_any_type_of_text_are_read(tmp_path, kind):
    table = pa.table({key: pa.array([text], pa.string()) for key, text in GSM8K.items()})
    table = table.set_column(0, "question", table["question"].cast(kind))
    pq.write_table(table, tmp_path / "rows.parquet")
    [(_, problem)] = load_problems(tmp_path / "rows.parquet", ["math"], "reference")
    assert problem.question == GSM8K["question"]


def test_a_list_of_answers_in_a_csv_cell_is_a_list(written):
    text = 'question,answer\nWho?,"[""Rousseau"", ""J.-J. Rousseau""]"\nWhat?,[sic]\n'
    rows = [p for _, p in load_problems(written(text, "a.csv"), ["contains"], "answer")]
    assert [problem.answer for problem in rows] == ["Rousseau\nJ.-J. Rousseau", "[sic]"]
