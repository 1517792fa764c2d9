"""A run within a budget, from the pace of a probe to params.yaml."""

import shutil
from pathlib import Path

import pytest

from citer.cli.main import call
from citer.config.params import SHIPPED, load_params
from citer.errors import InputError
from citer.pairs.budget import changed, total
from citer.stages import paths
from citer.stages.budget import PACE, SLACK, fit, keep, plan_of
from citer.storage.tables import read_json, write_json
from citer.storage.yaml_file import edited
from tests.evaluation.test_budget import PARAMS, SLOW


@pytest.fixture
def probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(SHIPPED, "params.yaml")
    paths.PROBLEMS.mkdir(parents=True)
    paths.problems("test").write_text("questions")
    keep(SLOW, load_params())
    return tmp_path / "params.yaml"


def test_a_plan_is_written_to_params_yaml_whose_comments_stay(probed: Path) -> None:
    before, minutes = probed.read_text(), 0.5 * total(SLOW, PARAMS)
    found = fit(load_params(), minutes)
    assert load_params() == changed(PARAMS, found.changes)
    after = probed.read_text()
    same = [line for line in before.splitlines() if line in after.splitlines()]
    assert len(after.splitlines()) - len(same) == len(found.changes)
    [bounds] = [line for line in after.splitlines() if line.startswith("  bounds: [] ")]
    assert bounds.endswith(" # to compare with; none of them can be deployed")
    assert "  llm_url: null # or http" in after
    assert "params.yaml: evaluate.bounds: [] (saves " in next(found.lines())
    assert fit(load_params(), minutes).cuts == []
    assert probed.read_text() == after


def test_a_budget_that_no_cut_reaches_changes_nothing_and_the_named_one_is_enough(
    probed: Path,
) -> None:
    before = probed.read_text()
    with pytest.raises(InputError, match=r"--minutes: 1: expected \d+ or more") as refused:
        fit(load_params(), 1)
    assert probed.read_text() == before
    least = float(str(refused.value).partition("expected ")[2].partition(" ")[0])
    assert SLACK * plan_of(load_params(), least).minutes <= least


@pytest.mark.parametrize(
    "change",
    [{"pair.dtype": "bfloat16"}, {"references.source": "both"}, {"evaluate.against": "llm"}],
)
def test_another_pair_or_other_questions_are_probed_again(
    probed: Path, change: dict[str, str]
) -> None:
    with pytest.raises(InputError, match="changed since the probe; run `citer probe` first"):
        plan_of(changed(load_params(), change), 600)
    paths.problems("test").write_text("other questions")
    with pytest.raises(InputError, match="changed since the probe"):
        plan_of(load_params(), 600)


def test_without_a_probe_on_this_machine_a_run_within_a_budget_is_refused(
    probed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PACE.unlink()
    assert call(["run", "--minutes", "60"]) == 2
    expected = "--minutes: this machine's pace is not known; run `citer probe` first"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("minutes", ["nan", "0"])
def test_a_budget_is_a_number_of_minutes(
    minutes: str, probed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["run", "--minutes", minutes]) == 2
    assert "Invalid value for '--minutes'" in capsys.readouterr().err


def test_a_pace_of_an_earlier_version_is_measured_again(probed: Path) -> None:
    content = read_json(PACE)
    del content["work"]["growth"]
    write_json(PACE, content)
    with pytest.raises(InputError, match=r"--minutes: .*growth: missing; run `citer probe` first"):
        plan_of(load_params(), 600)


def test_a_missing_section_of_params_yaml_is_added(tmp_path: Path) -> None:
    """Older files have no section `references`."""
    old = tmp_path / "params.yaml"
    old.write_text("seed: 1 # of all\n")
    assert edited(old, {"references.most": {"test": 5}}) == (
        "seed: 1 # of all\nreferences:\n  most: {test: 5}\n"
    )
