"""Files of rows: formats, line numbers, and files that cannot be read."""

import json
import os

import pytest

from citer.data.importing import load_problems, read_rows
from citer.errors import InputError

MATH = {"problem": "What is 2 + 2?", "solution": "2 + 2 = 4. The answer is \\boxed{4}."}


@pytest.fixture
def written(tmp_path):
    def write(text, name="rows.json"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl", "rows.txt", "rows"])
@pytest.mark.parametrize("as_array", [True, False])
def test_the_format_is_recognised_by_content_and_not_by_file_name(written, name, as_array):
    rows = [MATH, MATH | {"problem": "What is 3 + 1? τ"}]
    text = json.dumps(rows) if as_array else "\n".join(json.dumps(row) for row in rows)
    assert [row for _, row in read_rows(written(text, name))] == rows


def test_each_row_has_the_number_of_its_first_line(written):
    assert list(read_rows(written('\ufeff{"a": 1}\r\n\n{"a": 2}\n'))) == [
        (1, {"a": 1}),
        (3, {"a": 2}),
    ]
    array = '\n[ {"a":\n1}, {"a": 2}\n,\n{"a":\n[3\n]}\n]\n'
    assert list(read_rows(written(array))) == [(2, {"a": 1}), (3, {"a": 2}), (5, {"a": [3]})]
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


def test_an_unescaped_backslash_is_recognised(written):
    path = written('{"problem": "2 + 2?", "solution": "It is \\boxed{4}."}')
    with pytest.raises(InputError) as caught:
        load_problems(path, "math", "reference")
    assert str(caught.value) == (
        f"{path}:1: solution: a backspace before 'oxed': its backslash was not escaped in JSON; "
        "expected '\\\\boxed'"
    )


BROKEN = ["{", '{"problem": "2?"}', '{"problem": "3?"}', '{"problem": "4 \\sqrt"}', "[]"]


def test_the_first_bad_row_raises_with_file_and_line(written):
    path = written("\n".join([json.dumps(MATH), "", *BROKEN[1:3]]))
    with pytest.raises(InputError, match=f"^{path}:3: solution: missing; expected a solution"):
        load_problems(path, "math", "reference")
    path = written("\n".join([json.dumps(MATH), "", *BROKEN]))
    with pytest.raises(InputError, match=f"^{path}:3: row: not JSON: .*; expected one JSON object"):
        load_problems(path, "math", "reference")


def test_all_skipped_rows_are_reported(written):
    bad = []
    path = written("\n".join([json.dumps(MATH), *BROKEN, json.dumps(MATH | {"problem": "5?"})]))
    rows = load_problems(path, "math", "reference", bad.append)
    assert [(line, row.question) for line, row in rows] == [(1, MATH["problem"]), (7, "5?")]
    assert sorted(str(error).removeprefix(f"{path}:")[:16] for error in bad) == [
        "2: row: not JSON",
        "3: solution: mis",
        "4: solution: mis",
        "5: row: not JSON",
        "6: row: []; expe",
    ]


@pytest.mark.parametrize("content", ["", "\n\n", "[]"])
def test_a_file_without_rows_is_refused(tmp_path, content):
    path = tmp_path / "rows.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"rows\.json: no rows, expected"):
        load_problems(path, "math", "answer")
