"""`citer compare`: champion and challenger side by side."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from mlflow import MlflowClient

from citer.errors import InputError
from citer.evaluation.gate import least_difference
from citer.rule import Rule
from flows.tracking.compare import compare
from flows.tracking.registry import promote
from tests.flows.project import change_params, register_new
from tests.flows.tracking.registered import NAME, compared, holder, version


def test_champion_and_challenger_are_shown_side_by_side(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register_new(1, correct=150)
    register_new(2, correct=190, cost=0.4, rule=Rule("score", 0.5))
    promote(2)
    shown = compared(capsys)
    assert "│ version │ 2 │ 4 │" in shown
    made = datetime.fromtimestamp(version(2).creation_timestamp / 1000, UTC)
    assert f"│ registered │ {made:%Y-%m-%d %H:%M} UTC │" in shown
    assert "│ rule │ risk 0.75 audit 0.1 │ score 0.5 │" in shown
    assert "│ accuracy │ 75.0% [68.6, 80.5] │ 95.0% [91.0, 97.3] │" in shown
    low, high = least_difference(40, 0, 200, 0.05), -least_difference(0, 40, 200, 0.05)
    message = f"+0.2000 (at least {low:+.4f}, at most {high:+.4f}, each at confidence 0.95)"
    assert f"on 200 common questions: {message}; 40 gained, 0 lost" in shown
    assert "Version 2. The gate's decision at registration: promoted: no champion yet: " in shown
    assert f"(at least {low:+.4f} at confidence 0.95" in version(4).tags["reason"]


def test_a_champion_that_breaks_the_promise_now_asked_is_replaced(project: Path) -> None:
    """3 of 200 lost on validation: bound .038. The challenger lost none, for more bytes."""
    register_new(1, discordant=3)
    change_params("evaluate", epsilon=0.02)
    why = "does not keep the promise that is asked now (bound 0.038 at confidence 0.95, expected"
    assert f"version 4 promoted: the champion {why}" in register_new(2, cost=0.64)
    assert holder("champion") == 4


def test_compare_is_refused_without_champion_and_challenger(registered: Path) -> None:
    MlflowClient().delete_model_version(NAME, "2")
    with pytest.raises(InputError, match="no champion and no challenger; make one with `citer"):
        compare()
