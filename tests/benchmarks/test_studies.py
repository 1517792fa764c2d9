"""The files of studies."""

from pathlib import Path

import pytest

from benchmarks import study
from benchmarks.study import STUDIES, read_study
from citer.config.params import Params, load_params
from citer.errors import InputError
from citer.storage.yaml_file import edited

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [path.stem for path in STUDIES.glob("*.yaml")])
def test_a_study_is_valid_and_so_are_its_settings(name: str, tmp_path: Path) -> None:
    content = read_study(name)
    settings = tmp_path / "params.yaml"
    settings.write_text(edited(PROJECT / "params.yaml", content.params))
    assert isinstance(load_params(settings), Params)


def test_unknown_studies_and_keys_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"studies/speed\.yaml: no such file$"):
        read_study("speed")
    (tmp_path / "bad.yaml").write_text("question: Why?\nrows: {}\ncount: 5\n")
    monkeypatch.setattr(study, "STUDIES", tmp_path)
    expected = r"bad\.yaml: top level: unknown key 'count'; expected question, rows, params"
    with pytest.raises(InputError, match=expected):
        read_study("bad")
