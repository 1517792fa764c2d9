"""The study of transfer on a real pair: its settings and its rows of mathematics."""

import json
from pathlib import Path

from benchmarks import real_transfer
from benchmarks.real import SETTINGS, merged
from citer.config.params import Params


def test_the_settings_are_valid_and_name_the_files_that_are_written(tmp_path: Path) -> None:
    settings = merged(tmp_path / "slm", tmp_path / "llm", [SETTINGS, real_transfer.CHANGES])
    prepare = Params.model_validate(settings).prepare
    named = {Path(each.path).stem for each in (*prepare.train, *prepare.validation, *prepare.test)}
    assert named == real_transfer.MC_ROWS.keys() | real_transfer.MATH_ROWS.keys()


def test_a_row_of_mathematics_asks_its_problem_and_keeps_its_solution() -> None:
    row = json.loads(real_transfer.with_system('{"problem": "2 + 2?", "solution": "4"}'))
    assert row == {
        "messages": [
            {"role": "system", "content": real_transfer.SYSTEM},
            {"role": "user", "content": "2 + 2?"},
        ],
        "solution": "4",
    }
