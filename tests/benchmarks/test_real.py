"""The study of a real pair: its settings, its rows and its break-even ratio."""

import json
from pathlib import Path

import pytest

from benchmarks import real
from citer.config.params import Params
from citer.errors import InputError


def test_the_settings_are_valid(tmp_path: Path) -> None:
    params = Params.model_validate(real.merged(tmp_path / "slm", tmp_path / "llm", [real.SETTINGS]))
    assert params.pair.prompt == "chat"
    assert params.pair.slm == str(tmp_path / "slm")
    assert list(params.iterations) == [str(real.ITERATION)]
    assert {Path(file.path).stem for file in params.prepare.test} <= real.ROWS.keys()


def test_no_row_is_in_two_files(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    numbers = range(sum(real.ROWS.values()) + 5)
    source.write_text("".join(f"{json.dumps({'n': n})}\n" for n in numbers))
    real.write_rows(source, tmp_path, real.ROWS)
    written = {
        name: [json.loads(line)["n"] for line in (tmp_path / f"{name}.jsonl").open()]
        for name in real.ROWS
    }
    assert {name: len(rows) for name, rows in written.items()} == real.ROWS
    assert len(set().union(*written.values())) == sum(real.ROWS.values())


def test_too_few_rows(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("{}\n" * 9)
    with pytest.raises(
        InputError, match=rf"rows.jsonl: 9 rows, expected {sum(real.ROWS.values())}"
    ):
        real.write_rows(source, tmp_path, real.ROWS)


def test_break_even_is_where_routing_moves_as_many_bytes() -> None:
    measured = {"visits_per_token": 0.2, "slm_steps_per_token": 1.6}
    ratio = real.break_even(measured)
    assert ratio * measured["slm_steps_per_token"] + measured["visits_per_token"] == pytest.approx(
        1
    )
    assert real.break_even({"visits_per_token": 1.3, "slm_steps_per_token": 1}) == 0
