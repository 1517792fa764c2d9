"""Rows of files become problems: bad rows, and files without rows."""

import json

import pytest

from citer.data.importing import load_problems
from citer.errors import InputError

MATH = {"problem": "What is 2 + 2?", "solution": "2 + 2 = 4. The answer is \\boxed{4}."}


@pytest.fixture
def written(tmp_path):
    def write(text, name="rows.json"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


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
