"""Which version becomes the champion: by the gate, and by hand."""

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from flows.tracking import registry
from flows.tracking.registry import promote
from tests.flows.project import RULE, change_params, register, register_new, retrain
from tests.flows.tracking.registered import DATE, NAME, compared, holder, version


@pytest.mark.parametrize(
    "flaw",
    [{"certified": False}, {"cost": 1.5}, {"correct": 180, "llm_correct": 200}],
    ids=str,
)
def test_a_first_router_without_bound_or_gain_or_right_answers_is_kept_back(
    project: Path, flaw: dict
) -> None:
    said = register_new(1, **flaw)
    assert "kept back" in said
    assert said.endswith("; there is no champion")
    assert holder("champion") is None
    assert holder("challenger") == 2
    assert version(2).tags["decision"] == "kept back"


def test_a_champion_of_another_place_is_set_aside(registered: Path) -> None:
    change_params("serve", engine="vllm", cap=4)
    dearer = {"cost": 0.6, "rule": replace(RULE, cap=4)}
    place = "was certified for another place (its rule: `risk 0.75 audit 0.1"
    assert f"{place}`)" in register_new(2, **dearer)
    assert holder("champion") == 4
    change_params("serve", engine="citer")
    assert f"{place} cap" in register_new(3, **dearer)


@pytest.mark.parametrize(
    ("change", "champion", "reason"),
    [
        ({"correct": 150, "cost": 0.4}, 4, "not worse by more than the margins"),
        ({"correct": 148, "cost": 0.4}, 2, "may be less accurate"),
        ({"correct": 150, "cost": 0.6}, 2, "moves more bytes"),
    ],
)
def test_a_challenger_replaces_the_champion_only_if_as_accurate_and_as_cheap(
    project: Path, change: dict, champion: int, reason: str
) -> None:
    register_new(1, correct=150, cost=0.5)
    register_new(2, **change)
    assert holder("challenger") == 4
    assert holder("champion") == champion
    assert version(4).tags["reason"].startswith(reason)


def test_a_challenger_without_common_questions_is_only_promoted_by_hand(project: Path) -> None:
    register_new(1, correct=150)
    message = register_new(2, questions="own", cost=0.1)
    assert "version 4 kept back: no test question in common with the champion's" in message
    assert "run `citer promote VERSION`; the champion is version 2" in message
    promote(4)
    assert holder("champion") == 4


def test_a_promotion_by_hand_keeps_the_decision_of_the_gate(project: Path) -> None:
    register_new(1, certified=False)
    for _ in range(2):
        promote(2)
    assert holder("champion") == 2
    assert version(2).tags["decision"] == "kept back"
    assert version(2).tags["reason"].startswith("no rule cheaper ")
    assert re.fullmatch(f"{DATE} made the champion by hand", version(2).tags["history"])


def test_a_replaced_champions_history_names_the_version_that_replaced_it(
    registered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register_new(2)
    promote(2)
    events = f"{DATE} made the champion by the gate; {DATE} replaced by version "
    assert re.fullmatch(events + "2", version(4).tags["history"])
    assert re.fullmatch(events + f"4; {DATE} made the champion by hand", version(2).tags["history"])
    shown = compared(capsys)
    for number in (2, 4):
        assert f"Since then: {version(number).tags['history']}." in shown


@pytest.mark.parametrize("hook", ["judge", "_crown"])
def test_the_gate_decides_again_if_the_champion_has_changed_meanwhile(
    project: Path, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    """Another machine or a person was faster: while it judged, or after a kill."""
    register_new(1, cost=0.3)
    client, real = MlflowClient(), getattr(registry, hook)
    client.delete_registered_model_alias(NAME, "champion")

    def meanwhile(*given: Any) -> Any:
        client.set_registered_model_alias(NAME, "champion", "2")
        if hook == "_crown":
            raise KeyboardInterrupt
        return real(*given)

    retrain(2, cost=0.4)
    monkeypatch.setattr(registry, hook, meanwhile)
    with suppress(KeyboardInterrupt):
        register()
    monkeypatch.setattr(registry, hook, real)
    register()
    assert holder("champion") == 2
    assert version(4).tags["decision"] == "kept back"
    assert version(4).tags["judged_against"] == "2"
