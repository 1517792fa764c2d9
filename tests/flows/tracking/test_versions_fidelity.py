"""Versions whose routers are measured by fidelity: tags, gate and comparison."""

from pathlib import Path

import pytest

from citer.evaluation.measure import FIDELITY, Conditions
from flows.tracking.contents import Iteration
from flows.tracking.registry import promote, run_of
from flows.tracking.store import open_store
from tests.flows.project import register, register_new, retrain
from tests.flows.tracking.registered import compared, holder, version

FAITHFUL = Conditions(FIDELITY, "temperature 0.7, top-p 0.9", "1a2b3c4d5e")
LABELS = {"references": "llm", "outcome": "suffix", "margin": 4.0}


def test_a_version_by_fidelity_is_not_compared_with_a_champion_by_accuracy(
    registered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    retrain(2, cost=0.1, conditions=FAITHFUL, labels=LABELS)
    measured = (
        "measured by fidelity to LLM 1a2b3c4, temperature 0.7, top-p 0.9, "
        "the champion by accuracy, greedy"
    )
    assert f"version 4 kept back: {measured}, so the two cannot be compared" in register()
    assert holder("champion") == 2
    known = run_of(version(4)).data.tags
    assert FAITHFUL.fields.items() <= known.items()
    assert {"references": "llm", "outcome": "suffix", "margin": "4.0"}.items() <= known.items()
    assert version(4).tags["fidelity"] == "1"
    assert not any("accuracy" in tag for tag in [*known, *version(4).tags])
    runs = {run.info.run_id: run.data.metrics for run in open_store("citer").runs("")}
    own = runs[version(4).run_id]
    assert own["all/fidelity"] == own["math/fidelity"] == own["rivals/llm_fidelity"] == 1
    assert not any("accuracy" in name for name in own)
    shown = compared(capsys)
    for row in (
        "measure │ accuracy │ fidelity to LLM 1a2b3c4",
        "sampling │ greedy │ temperature 0.7, top-p 0.9",
        "accuracy │ 100.0% [98.1, 100.0] │",
        "fidelity │ │ 100.0% [98.1, 100.0]",
        "references │ │ llm",
        "margin of labels, nats │ │ 4.0",
    ):
        assert f"│ {row} │" in f"{shown} │".replace("│ │ │", "│ │")
    assert "The two versions cannot be compared: the challenger is measured by fidelity" in shown


def test_versions_by_the_same_fidelity_are_compared(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, correct in ((1, 198), (2, 199)):
        message = register_new(seed, correct=correct, llm_correct=200, conditions=FAITHFUL)
    assert "promoted: not worse by more than the margins: on 200 common qu" in message
    promote(2)
    shown = compared(capsys)
    assert "Fidelity, challenger minus champion, on 200 common questions: +0.0050 (at" in shown
    assert "│ fidelity │ 99.0% [96.4, 99.7] │ 99.5% [97.2, 99.9] │" in shown


def test_how_labels_were_made_does_not_make_another_router(project: Path) -> None:
    digests = []
    for labels in (None, LABELS):
        retrain(1, labels=labels)
        digests.append(Iteration(1).digest)
    assert digests[0] == digests[1]
