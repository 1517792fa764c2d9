"""`citer compare`: champion and challenger side by side."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from citer.errors import InputError
from citer.evaluation.gate import least_difference
from citer.rule import Rule
from flows.compare import compare
from flows.registry import promote
from tests.flows.project import register, retrain
from tests.flows.registered import NAME, version


def test_champion_and_challenger_are_shown_side_by_side(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    retrain(1, correct=150)
    register()
    retrain(2, correct=190, cost=0.4, rule=Rule("score", 0.5))
    register()
    promote(2)
    capsys.readouterr()
    compare()
    shown = " ".join(capsys.readouterr().out.split())
    assert "│ version │ 2 │ 4 │" in shown
    assert "│ rule │ risk 0.75 audit 0.1 │ score 0.5 │" in shown
    assert "│ accuracy │ 75.0% [68.6, 80.5] │ 95.0% [91.0, 97.3] │" in shown
    low, high = least_difference(40, 0, 200, 0.05), -least_difference(0, 40, 200, 0.05)
    message = f"+0.2000 (at least {low:+.4f}, at most {high:+.4f}, each at confidence 0.95)"
    assert f"on 200 common questions: {message}; 40 gained, 0 lost" in shown
    assert f"McNemar's exact test p = {2 * 0.5**40:.3g}" in shown
    assert "Version 2. The gate's decision at registration: promoted: no champion yet: " in shown
    assert f"(at least {low:+.4f} at confidence 0.95" in version(4).tags["reason"]


def test_versions_with_different_tags_are_compared(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their batch sizes may differ. A version of an older citer has no interval."""
    retrain(1)
    register()
    for tag in ("cost_b32", "accuracy_low", "accuracy_high", "questions", "preferences"):
        MlflowClient().delete_model_version_tag(NAME, "2", tag)
    retrain(2, cost=0.6)
    register()
    compare()
    shown = " ".join(capsys.readouterr().out.split())
    assert "│ accuracy │ 100.0% │ 100.0% [98.1, 100.0] │" in shown
    assert "│ cost at batch 32 │ │ 0.6 │" in shown


def test_a_version_with_missing_or_damaged_tags_is_shown_with_the_rest(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    retrain(1)
    register()
    tags = version(2).tags
    for tag in tags.keys() - {"rule", "decision", "accuracy", "tokens_per_answer"}:
        MlflowClient().delete_model_version_tag(NAME, "2", tag)
    MlflowClient().set_model_version_tag(NAME, "2", "accuracy", "high")
    compare()
    shown = " ".join(capsys.readouterr().out.split())
    assert "┃ champion and challenger ┃" in shown
    assert "│ accuracy │ high │" in shown
    assert "│ tokens per answer │ 50 │" in shown
    assert "high │ high" not in shown


def test_compare_is_refused_without_champion_and_challenger(project: Path) -> None:
    retrain(1)
    register()
    MlflowClient().delete_model_version(NAME, "2")
    with pytest.raises(InputError, match="no champion and no challenger; make one with `citer"):
        compare()
