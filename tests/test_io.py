"""Tables, JSON and digests; tests/test_io_replacing.py tests how files are replaced."""

import pyarrow as pa
import pytest

from citer.errors import InputError
from citer.storage import tables as io
from citer.storage.schema import LLM_TOKEN, VERSION, slm_token

ROWS = [
    {
        "problem_id": f"p{row}",
        "position": row,
        "gt_token": 7,
        "llm_token": 8,
        "llm_logprob_gt": -0.5,
    }
    for row in range(3)
]


def table(rows=ROWS):
    return pa.Table.from_pylist(rows, schema=LLM_TOKEN)


def test_a_table_round_trips_with_its_metadata(tmp_path):
    path = tmp_path / "deep" / "tokens.parquet"
    io.write_table(path, table(), LLM_TOKEN, {"seed": 3})
    assert io.read_table(path, LLM_TOKEN).to_pylist() == ROWS
    assert io.read_table(path, LLM_TOKEN, ["position"]).column_names == ["position"]
    assert io.table_metadata(path) == {"schema_version": VERSION, "seed": 3}


def test_the_same_content_gives_the_same_bytes(tmp_path):
    for name, metadata in (("a", {"x": 1, "y": 2}), ("b", {"y": 2, "x": 1})):
        io.write_table(tmp_path / name, table(), LLM_TOKEN, metadata)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_hidden_states_round_trip_bit_for_bit(tmp_path):
    schema = slm_token(2)
    row = {
        "problem_id": "p",
        "position": 0,
        "gt_token": 1,
        "slm_token": 1,
        "slm_logprob_gt": -1.0,
        "slm_margin": 0.0,
        "slm_entropy": 1.0,
        "slm_top_logprobs": [0.0] * 8,
        "slm_hidden": b"\x00\x3c\x00\xc0",
    }
    io.write_table(tmp_path / "t", pa.Table.from_pylist([row], schema=schema), schema, {})
    assert io.read_table(tmp_path / "t", schema).to_pylist() == [row]
    with pytest.raises(InputError, match="slm_hidden is fixed_size_binary"):
        io.read_table(tmp_path / "t", slm_token(4))


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (table().drop_columns("llm_logprob_gt"), "columns are"),
        (
            table().set_column(1, "position", pa.array([0, 1, 2])),
            "column position is int64, expected int32",
        ),
        (
            table().set_column(3, "llm_token", pa.array([1, None, 3], pa.int32())),
            "column llm_token has 1 nulls, expected none",
        ),
    ],
)
def test_a_table_of_another_schema_is_neither_written_nor_read(tmp_path, wrong, expected):
    path = tmp_path / "t"
    with pytest.raises(AssertionError, match=expected):
        io.write_table(path, wrong, LLM_TOKEN, {})
    assert not path.exists()
    io.write_table(path, wrong, wrong.schema, {})
    with pytest.raises(InputError, match=expected):
        io.read_table(path, LLM_TOKEN)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "no such file"),
        *((torn, "not a table that citer wrote") for torn in (b"", b"hello", b"PAR1 torn PAR1")),
    ],
)
def test_a_missing_or_torn_table_is_refused_in_one_line(tmp_path, content, complaint):
    path = tmp_path / "t"
    if content is not None:
        path.write_bytes(content)
    for read in (lambda: io.read_table(path, LLM_TOKEN), lambda: io.table_metadata(path)):
        with pytest.raises(InputError, match=f"^{path}: {complaint}$"):
            read()


def test_a_missing_column_is_refused_in_one_line(tmp_path):
    path = tmp_path / "t"
    io.write_table(path, pa.table({"a": [1]}), pa.schema([("a", pa.int64())]), {})
    with pytest.raises(InputError, match=r"columns are \[\], expected \['position'\]$"):
        io.read_table(path, LLM_TOKEN, ["position"])


def test_json_round_trips_and_bad_json_is_refused(tmp_path):
    path = tmp_path / "x.json"
    io.write_json(path, {"τ": [0.1, None]})
    assert io.read_json(path) == {"τ": [0.1, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        io.write_json(path, {"τ": float("nan")})
    assert io.read_json(path) == {"τ": [0.1, None]}
    path.write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        io.read_json(path)
    with pytest.raises(InputError, match="no such file"):
        io.read_json(tmp_path / "y.json")


@pytest.mark.parametrize(
    "text", ["NaN", "-Infinity", "1e999", '"nan"', '"\\ud83d"', '{"\\ud83d": 1}']
)
def test_json_with_values_that_json_cannot_hold_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(f'{{"a": {text}}}')
    with pytest.raises(InputError, match=r"x\.json: "):
        io.read_as(tmp_path / "x.json", dict[str, float | dict[str, int]])


def test_a_digest_depends_on_names_and_content_only(tmp_path):
    def folder(name, **files):
        home = tmp_path / name
        home.mkdir()
        for file, text in files.items():
            (home / file).write_text(text)
        return io.digest(home)

    assert folder("one", a="x", b="y") == folder("two", b="y", a="x")
    different = [folder("3", a="x"), folder("4", b="x"), folder("5", a="y"), folder("6", a="xb")]
    boundaries = [
        folder("7", a="b", c=""),
        folder("8", a="bc"),
        io.digest("ab"),
        io.digest("a", "b"),
    ]
    assert len({*different, *boundaries}) == 8


def test_unfinished_work_is_kept_for_the_same_inputs_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (io.partial_dir("label", "one") / "shard").write_text("done")
    other = io.partial_dir("train", "one")
    assert (io.partial_dir("label", "one") / "shard").read_text() == "done"
    assert not list(io.partial_dir("label", "two").iterdir())
    assert not list(io.partial_dir("label", "one").iterdir())
    assert other.is_dir()
