"""Bad input leaves the earlier output of a stage unchanged, byte for byte."""

import shutil
from pathlib import Path

import pytest

from citer.cli import main as cli
from citer.stages import paths
from citer.storage.tables import digest
from tests.drills.project import make_project


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_project()
    return folder


@pytest.mark.parametrize(
    ("command", "damaged", "kept"),
    [
        (["prepare"], "data/own/test.jsonl", paths.PROBLEMS),
        (["probe"], "data/problems/validation.parquet", paths.PROBED),
        (["finetune"], "data/references/sft.parquet", paths.SLM),
        (["rivals"], "data/references/test.parquet", paths.RIVALS),
        (["label", "1"], "data/routers/0/router.json", paths.preferences(1)),
        (["train", "1"], "data/preferences/1/preferences.parquet", paths.router(1)),
        (["evaluate", "1"], "data/reports/rivals/outcomes.parquet", paths.answers(1)),
        (["choose", "1"], "data/answers/1/outcomes.parquet", paths.report(1)),
        (["transcribe", "1"], "data/reports/1/deployed.json", paths.transcript(1).parent),
        (["report"], "data/reports/1/chosen.json", paths.SUMMARY),
    ],
)
def test_bad_input_leaves_earlier_output_unchanged(
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    damaged: str,
    kept: Path,
) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    before = digest(kept)
    Path(damaged).write_bytes(Path(damaged).read_bytes()[:-9])
    files = sorted(kept.parent.iterdir())
    assert cli.call(command) == 2
    assert f"citer: {damaged}" in capsys.readouterr().err.splitlines()[-1]
    assert digest(kept) == before
    assert sorted(kept.parent.iterdir()) == files
