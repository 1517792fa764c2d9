"""The registry counts how often the same questions decided, and what confidence is left."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from citer.storage.tables import digest
from flows.tracking import uses
from flows.tracking.registry import run_of
from flows.tracking.uses import spent
from tests.flows.project import change_params, register, register_new
from tests.flows.tracking.registered import NAME, compared, version


def used(number: int) -> tuple[float | None, float | None]:
    own = run_of(version(number)).data.metrics
    return own.get("validation_use"), own.get("test_use")


def test_each_router_uses_validation_and_each_decision_of_the_gate_uses_test(
    project: Path,
) -> None:
    for seed in (1, 2):
        register_new(seed, cost=0.5 - seed / 10)
        register()  # the same again uses nothing
    assert [used(number) for number in (1, 2, 3, 4)] == [(1, None), (2, 1), (3, None), (4, 2)]


def test_two_machines_that_gave_one_number_are_counted_twice(registered: Path) -> None:
    client = MlflowClient()
    client.log_metric(run_of(version(2)).info.run_id, "validation_use", 1)
    register_new(2, cost=0.4)
    assert used(3) == (3, None)


def test_other_questions_are_counted_by_themselves(registered: Path) -> None:
    register_new(2, questions="fresh")
    assert (used(2), used(4)) == ((2, 1), (2, 1))


def test_questions_that_are_added_begin_no_new_count(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set that grows by a tenth each time shares most of its questions with the one before."""
    sizes = iter(range(200, 1000, 20))
    grown = lambda run_id, split: {f"{split}-{n}" for n in range(next(sizes))}  # noqa: E731
    monkeypatch.setattr(uses, "questions", grown)
    for seed in (1, 2):
        register_new(seed, cost=0.5 - seed / 10)
    assert [used(number)[0] for number in (1, 2, 3, 4)] == [1, 2, 3, 4]


def test_a_deleted_version_is_not_forgotten_by_later_ones(registered: Path) -> None:
    MlflowClient().delete_model_version(NAME, "1")
    register_new(2, cost=0.4)
    assert used(4) == (4, 2)


def test_compare_and_the_description_say_how_much_confidence_is_left(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four promises and two decisions at 0.95 each: 1 - 4 * 0.05 and 1 - 2 * 0.05."""
    for seed in (1, 2):
        register_new(seed, cost=0.5 - seed / 10)
    shown = compared(capsys)
    asked = min(digest(f"test-{n}") for n in range(200))[:7]
    validation = f"Validation questions {asked}: used 4 times; all promises from them hold together"
    assert f"{validation} at confidence 0.8." in shown
    decisions = f"Test questions {asked}: used 2 times; all decisions of the gate from them hold"
    assert f"{decisions} together at confidence 0.9." in shown
    assert f"{validation} at confidence 0.8." in version(4).description
    assert "used 2 times; all promises from them" in version(2).description


def test_a_use_spent_the_delta_of_its_time(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Version 1 chose its rule at a larger delta than params.yaml has now: 1 - 2 * 0.2."""
    change_params("evaluate", delta=0.2)
    register_new(1)
    change_params("evaluate", delta=0.05)
    said = "used 2 times; all promises from them hold together at confidence 0.6."
    assert said in compared(capsys)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (1, "used once; all promises from them hold together at confidence 0.95."),
        (19, "used 19 times; all promises from them hold together at confidence 0.05."),
        (20, "used 20 times; all promises from them hold together at no confidence any more."),
    ],
)
def test_the_union_bound_spends_delta_at_each_use(times: int, said: str) -> None:
    assert spent("validation", "1a2b3c4d", times, 0.05) == f"Validation questions 1a2b3c4: {said}"
