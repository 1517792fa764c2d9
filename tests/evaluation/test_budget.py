"""A run within a budget: what is cut, in which order, and how it is written to params.yaml."""

import shutil
from pathlib import Path

import pytest

from citer.cli.main import call
from citer.config.params import SHIPPED, load_params
from citer.errors import InputError
from citer.pairs import budget
from citer.pairs.budget import PACE, Workload, dearest, keep, plan, plan_of, total
from citer.pairs.probe import Pace

SLOW = Workload(
    questions={"sft": 3000, "preference": 600, "validation": 600, "test": 1000},
    written={"sft": 0, "preference": 600},
    prompt=60,
    answer=50,
    slm=Pace(0.001, 0.02),
    llm=Pace(0.003, 0.06),
)
PARAMS = load_params(SHIPPED)


def test_nothing_is_cut_from_a_run_that_fits() -> None:
    found = plan(SLOW, PARAMS, total(SLOW, PARAMS) + 1)
    assert (found.cuts, found.minutes) == ([], total(SLOW, PARAMS))


@pytest.mark.parametrize("share", [0.95, 0.7, 0.4, 0.2])
def test_a_plan_fits_and_each_of_its_cuts_was_needed(share: float) -> None:
    whole = total(SLOW, PARAMS)
    found = plan(SLOW, PARAMS, share * whole)
    assert found.minutes <= share * whole
    assert found.minutes == pytest.approx(total(SLOW, budget.changed(PARAMS, found.changes)))
    assert found.minutes + sum(cut.saved for cut in found.cuts) == pytest.approx(whole)
    assert found.minutes + found.cuts[-1].saved > share * whole


def test_what_no_deployed_rule_needs_goes_first_and_validation_keeps_enough_to_certify() -> None:
    """Three times 63 questions that the LLM answers right, by the shipped promise."""
    least = plan(SLOW, PARAMS, 0.0)
    assert [*least.changes] == [
        "evaluate.bounds",
        "iterations",
        "references.most",
        "label.method",
        "evaluate.llm_fractions",
        "evaluate.risks",
    ]
    assert least.changes["references.most"] == {"test": 100, "preference": 100, "validation": 189}
    assert least.changes["evaluate.risks"] == [0.2, 0.6, 0.9, 0.95]
    coarse = [0.0, 0.04, 0.06, 0.08, 0.15, 0.3, 1.0]
    assert least.changes["evaluate.llm_fractions"] == coarse


def test_limits_of_params_yaml_are_only_lowered() -> None:
    own = budget.changed(PARAMS, {"references.most": {"sft": 50, "test": 150}})
    least = plan(SLOW, own, 0.0).changes["references.most"]
    assert (least["sft"], least["test"]) == (50, 100)
    own = budget.changed(PARAMS, {"references.most": {"test": 80}})
    assert plan(SLOW, own, 0.0).changes["references.most"]["test"] == 80


def test_the_forecast_names_what_would_save_most() -> None:
    cuts = dearest(SLOW, PARAMS)
    assert len(cuts) == 3
    assert cuts[0].saved >= cuts[1].saved >= cuts[2].saved > 0


@pytest.fixture
def probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(SHIPPED, "params.yaml")
    keep(SLOW)
    return tmp_path / "params.yaml"


def test_a_plan_is_written_to_params_yaml_whose_comments_stay(
    probed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, minutes = probed.read_text(), 0.5 * total(SLOW, PARAMS)
    found = budget.fit(load_params(), minutes)
    assert load_params() == budget.changed(PARAMS, found.changes)
    assert budget.fit(load_params(), minutes).cuts == []
    after = probed.read_text().splitlines()
    kept = [line for line in before.splitlines() if line in after]
    assert len(after) - len(kept) == len(found.changes)
    assert "  llm_url: null # or http" in "\n".join(after)
    [bounds] = [line for line in after if line.startswith("  bounds: [] ")]
    assert bounds.endswith(" # to compare with; none of them can be deployed")
    found.show()
    assert "params.yaml: evaluate.bounds: [] (saves " in capsys.readouterr().out


def test_a_budget_that_no_cut_reaches_changes_nothing(probed: Path) -> None:
    before = probed.read_text()
    with pytest.raises(InputError, match=r"--minutes: 1: expected \d+ or more, with all that"):
        budget.fit(load_params(), 1)
    assert probed.read_text() == before


def test_without_a_probe_on_this_machine_a_run_within_a_budget_is_refused(
    probed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PACE.unlink()
    with pytest.raises(InputError, match="run `dvc repro probe` first"):
        plan_of(load_params(), 60)
    assert call(["run", "--minutes", "60"]) == 2
    assert "--minutes: this machine's pace is not known" in capsys.readouterr().err
