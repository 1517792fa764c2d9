from pathlib import Path

import pytest

from flows import seconds
from flows.dvc_commands import LOCK
from flows.pipeline import register
from flows.store import open_store
from tests.flows.project import STAGES, retrain


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lock("one", "one")


def lock(first: str, second: str) -> None:
    """Write a dvc.lock of two stages, each with the digest of its output."""
    entry = "  {}:\n    cmd: true\n    outs:\n    - path: out\n      md5: {}\n"
    LOCK.write_text(
        "schema: '2.0'\nstages:\n" + entry.format("a", first) + entry.format("b", second)
    )


def test_seconds_of_an_earlier_attempt_are_filled_in() -> None:
    seconds.note("a", 2.5)
    seconds.note("b", 3.5)
    assert seconds.complete({"a": None, "b": 1.0, "c": None}) == {"a": 2.5, "b": 1.0, "c": None}


def test_seconds_of_another_result_are_not_filled_in() -> None:
    seconds.note("a", 2.5)
    seconds.note("b", 3.5)
    lock("two", "one")
    assert seconds.complete({"a": None, "b": None}) == {"a": None, "b": 3.5}


def test_the_next_retraining_starts_without_seconds() -> None:
    seconds.note("a", 2.5)
    seconds.clear()
    seconds.clear()
    assert seconds.complete({"a": None}) == {"a": None}


def test_without_a_lock_file_no_seconds_are_filled_in() -> None:
    seconds.note("a", 2.5)
    LOCK.unlink()
    assert seconds.complete({"a": None}) == {"a": None}


def test_registration_logs_them_and_clears_them(project: Path) -> None:
    retrain(1)
    stages = "schema: '2.0'\nstages:\n  evaluate@1:\n    cmd: citer evaluate 1\n"
    LOCK.write_text(stages)
    seconds.note("evaluate@1", 7.5)
    register.fn(STAGES, "http://here")
    [run] = open_store("citer").runs("tags.kind = 'retraining'")
    assert run.data.metrics["seconds/evaluate_1"] == 7.5
    assert not seconds.KEPT.exists()


def test_a_damaged_file_loses_the_seconds_and_fails_no_stage() -> None:
    seconds.note("a", 2.5)
    seconds.KEPT.write_text("{")
    seconds.note("b", 3.5)
    assert seconds.complete({"a": None, "b": None}) == {"a": None, "b": 3.5}
