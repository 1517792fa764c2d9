"""Files of rows: JSON, JSON Lines, Parquet and CSV; line numbers; files that cannot be read."""

import json
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from citer.data.files import read_rows
from citer.data.tasks.rows import nested
from citer.errors import InputError

MATH = {"problem": "What is 2 + 2?", "solution": "2 + 2 = 4. The answer is \\boxed{4}."}


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl", "rows.txt", "rows"])
@pytest.mark.parametrize("as_array", [True, False])
def test_the_format_is_recognised_by_content_and_not_by_file_name(written, name, as_array):
    rows = [MATH, MATH | {"problem": "What is 3 + 1? τ"}]
    text = json.dumps(rows) if as_array else "\n".join(json.dumps(row) for row in rows)
    assert [row for _, row in read_rows(written(text, name))] == rows


def test_each_row_has_the_number_of_its_first_line_or_its_place_in_an_array(written):
    assert list(read_rows(written('\ufeff{"a": 1}\r\n\n{"a": 2}\n'))) == [
        (1, {"a": 1}),
        (3, {"a": 2}),
    ]
    array = '\n[ {"a":\n1}, {"a": 2}\n,\n{"a":\n[3\n]}\n]\n'
    assert list(read_rows(written(array))) == [(1, {"a": 1}), (2, {"a": 2}), (3, {"a": [3]})]
    assert list(read_rows(written("[]"))) == list(read_rows(written(""))) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[{"a": 1},\n{"a" 2}]', "not a JSON array: Expecting ':' delimiter: line 2"),
        ('[{"a": 1}', "not a JSON array: Expecting ',' delimiter: line 1"),
        ('[{"a": 1}] {}', "not a JSON array: Extra data: line 1"),
    ],
)
def test_a_broken_array_is_refused_as_a_whole(written, text, expected):
    path = written(text)
    with pytest.raises(InputError) as caught:
        list(read_rows(path))
    assert str(caught.value).startswith(f"{path}: {expected}")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_brackets_nested_too_deeply_are_refused(written, text):
    path = written(text)
    with pytest.raises(InputError, match=r"not (a JSON array|JSON): maximum recursion depth"):
        list(read_rows(path))


def test_a_fifo_is_refused_without_waiting_for_it(tmp_path):
    os.mkfifo(tmp_path / "rows.json")
    with pytest.raises(InputError, match="not a file, expected one"):
        list(read_rows(tmp_path / "rows.json"))


def test_a_missing_or_binary_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        list(read_rows(tmp_path / "none.json"))
    with pytest.raises(InputError, match="not a file, expected one"):
        list(read_rows(tmp_path))
    (tmp_path / "latin.json").write_bytes(b'[{"a": "\xe9"}]')
    with pytest.raises(InputError, match="not UTF-8 text: invalid continuation byte at 8"):
        list(read_rows(tmp_path / "latin.json"))


def test_a_csv_file_has_a_text_for_each_column_and_the_line_of_each_rows_first_cell(written):
    text = '\ufeffquestion,answer\r\n"a ""b"",\n\nc",1\n\nd,\n'
    assert list(read_rows(written(text, "rows.CSV"))) == [
        (2, {"question": 'a "b",\n\nc', "answer": "1"}),
        (6, {"question": "d", "answer": ""}),
    ]


def test_json_in_a_file_named_csv_is_read_as_json(written):
    for text in (json.dumps(MATH), json.dumps([MATH])):
        assert list(read_rows(written(text, "rows.csv"))) == [(1, MATH)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b,a\n1,2,3\n", ":1: column 'a': 2 times, expected once"),
        ("a,b\n1,2\n3\n", ":3: row: 1 cells; expected 2, one for each column of the header"),
        ("a,b\n1,2,3\n", ":2: row: 3 cells; expected 2, one for each column of the header"),
        ('a,b\n1,2\n"3\n4,5\n', ":3: not CSV: unexpected end of data"),
        ('a,b\n1,2\n"3"x,4\n', ":3: not CSV: ',' expected after '\"'"),
    ],
)
def test_a_broken_csv_file_is_refused_with_its_line(written, text, expected):
    path = written(text, "rows.csv")
    with pytest.raises(InputError) as caught:
        list(read_rows(path))
    assert str(caught.value) == f"{path}{expected}"


def test_a_cell_may_be_as_long_in_csv_as_in_json(written):
    long = "x" * 200_000
    assert list(read_rows(written(f"a\n{long}\n", "rows.csv"))) == [(2, {"a": long})]


def test_csv_rows_of_the_wrong_length_can_be_skipped(written):
    bad = []
    rows = read_rows(written("a,b\n1\n2,3\n4,5,6\n", "rows.csv"), bad.append)
    assert [line for line, _ in rows] == [3]
    assert [error.found for error in bad] == ["1 cells", "3 cells"]


@pytest.mark.parametrize("name", ["rows.parquet", "rows.json", "rows"])
def test_parquet_rows_are_numbered_from_one(tmp_path, name):
    rows = [{"question": f"{n}?", "choices": {"text": ["a"], "label": ["A"]}} for n in range(9000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / name)
    assert list(read_rows(tmp_path / name)) == list(enumerate(rows, start=1))


UNREADABLE = "Parquet, cannot be read after row 0: "


def damaged(content, how):
    middle = len(content) // 2
    return {
        "cut": content[:middle],
        "empty": b"",
        "text": b"question,answer\n",
        "bytes": content[: middle - 99] + b"\x5a" * 198 + content[middle + 99 :],
        "footer": content[:-200] + b"\xff" * 192 + content[-8:],
    }[how]


TWICE = pa.table([[1], [2]], names=["a", "a"])
IN_FOO = pa.table({"at": pa.array([0], pa.timestamp("us", tz="Foo/Bar"))})
TOO_LATE = pa.table({"day": pa.array([2**40], pa.int64()).cast(pa.timestamp("s"))})


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        pytest.param(TWICE, "column 'a': 2 times, expected once$", id="a column twice"),
        pytest.param(IN_FOO, f"{UNREADABLE}.*Foo/Bar", id="an unknown time zone"),
        pytest.param(TOO_LATE, f"{UNREADABLE}.", id="a year that Python cannot hold"),
    ],
)
def test_parquet_values_that_no_row_can_hold_are_refused(tmp_path, table, complaint):
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path)
    with pytest.raises(InputError, match=f"^{path}: {complaint}"):
        list(read_rows(path))


@pytest.mark.parametrize("how", ["cut", "empty", "text", "bytes", "footer"])
def test_damaged_parquet_is_refused_in_one_line(tmp_path, how):
    path = tmp_path / "rows.parquet"
    noise = np.random.default_rng(0).integers(0, 2**62, 3000).astype(str)
    pq.write_table(pa.table({"question": noise}), path)
    path.write_bytes(damaged(path.read_bytes(), how))
    with pytest.raises(InputError, match=f"^{path}: {UNREADABLE}."):
        list(read_rows(path))


TEXTS = ["it's", 'a "b"', "two\nlines", "[x], {y}: z", "back\\slash", "1", "\u00e9\u2028"]


@pytest.mark.parametrize("cell", [json.dumps(TEXTS), repr(TEXTS), f" {TEXTS} "])
def test_a_cell_with_a_list_is_read_as_json_and_python_write_it(cell):
    assert nested(cell) == TEXTS


def test_a_cell_with_a_struct_is_read_as_pandas_writes_it(tmp_path):
    struct = {"text": TEXTS, "label": list("ABCDEFG")}
    pd.DataFrame({"choices": [struct]}).to_csv(tmp_path / "rows.csv", index=False)
    [(_, row)] = read_rows(tmp_path / "rows.csv")
    assert nested(row["choices"]) == struct


@pytest.mark.parametrize(
    "cell",
    [
        "",
        "['a'",
        "['a' ... 'b']",
        "['a', nan]",
        "{'a': array(['b'], dtype=object)}",
        "array(['a', 'b'])",
        "['a'] + ['b']",
        "[open('x')]",
        "['\\x1']",
        "['\\u12']",
        "[" * 100_000,
        "'" * 100_001,
        "['" + "\\" * 100_001,
    ],
)
def test_a_cell_with_anything_else_stays_a_text(cell):
    assert nested(cell) is cell
