"""Studies: their files, and the settings of a real pair."""

import json
from pathlib import Path

import pytest

from benchmarks import study
from benchmarks.study import (
    STUDIES,
    Own,
    Rows,
    read_study,
    settings_of,
    write_rows,
)
from citer.config.params import Params
from citer.errors import InputError

COUNTS = {"test": 4, "train": 3}


@pytest.mark.parametrize("name", [path.stem for path in STUDIES.glob("*.yaml")])
def test_a_study_is_valid(name: str) -> None:
    assert read_study(name).question


def test_unknown_studies_and_keys_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="speed: no such study; expected real, regret"):
        read_study("speed")
    (tmp_path / "bad.yaml").write_text(
        "question: Why?\nregret: {seeds: [1], questions: 5, count: 5}\n"
    )
    monkeypatch.setattr(study, "STUDIES", tmp_path)
    expected = r"bad\.yaml: regret: unknown key 'count'; expected seeds, questions"
    with pytest.raises(InputError, match=expected):
        read_study("bad")


def test_the_settings_of_a_real_pair_are_valid(tmp_path: Path) -> None:
    project = read_study("real").project
    assert project
    params = Params.model_validate(
        settings_of(project, Own(tmp_path / "slm", tmp_path / "llm", []))
    )
    assert params.pair.prompt == "chat"
    assert params.pair.slm == str(tmp_path / "slm")
    files = (*params.prepare.train, *params.prepare.validation, *params.prepare.test)
    written = [name for rows in project.rows for name in rows.counts]
    assert sorted(Path(file.path).stem for file in files) == sorted(written)


def test_no_row_is_in_two_files_and_too_few_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(f"{json.dumps({'n': n})}\n" for n in range(9)))
    write_rows(source, tmp_path, Rows(counts=COUNTS))
    written = [
        json.loads(line)["n"] for name in COUNTS for line in (tmp_path / f"{name}.jsonl").open()
    ]
    assert written == [*range(7)]
    with pytest.raises(InputError, match=r"rows.jsonl: 9 rows, expected 12 or more"):
        write_rows(source, tmp_path, Rows(counts={"test": 12}))


def test_a_study_of_a_real_pair_needs_its_folders() -> None:
    with pytest.raises(InputError, match="needs --slm, --llm, --rows and --work"):
        Own.of(None, None, [])
