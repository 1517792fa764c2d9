"""The deadline of a run within minutes, by a clock that the test sets."""

import pytest

from citer.errors import InputError
from flows.deadline import Deadline

FORECAST = {"rivals": 40, "label": 20, "evaluate": 60}  # of two iterations: 10 and 30 each
FIRST = ["rivals", "label@1", "train@1", "evaluate@1"]
SECOND = ["label@2", "train@2", "evaluate@2"]


class Clock:
    minutes = 0.0

    def __call__(self) -> float:
        return 60 * self.minutes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("flows.deadline.monotonic", clock)
    return clock


def begin(deadline: Deadline, stage: str) -> None:
    stages = [*FIRST, *SECOND]
    deadline.begin(stage, stages[stages.index(stage) + 1 :])


def test_a_run_as_forecast_is_not_stopped(clock: Clock) -> None:
    deadline = Deadline(120, FORECAST, 2)
    ends = dict(zip([*FIRST, *SECOND], [40, 50, 50, 80, 90, 90, 120], strict=True))
    for stage, end in ends.items():
        begin(deadline, stage)
        clock.minutes = end


@pytest.mark.parametrize(("rivals", "fits"), [(69, True), (71, False)])
def test_an_iteration_begins_if_it_ends_in_time_as_much_later_as_the_stages_before(
    clock: Clock, rivals: float, fits: bool
) -> None:
    """After 70 of 40 minutes, the 40 of the iteration take 70 more: 140, a sixth after 120."""
    deadline = Deadline(120, FORECAST, 2)
    begin(deadline, "rivals")
    clock.minutes = rivals
    if fits:
        begin(deadline, "label@1")
        return
    with pytest.raises(InputError, match=r"120: stopped before label@1, since router 1 .* 142 min"):
        begin(deadline, "label@1")


def test_an_iteration_does_not_go_on_after_labels_that_took_too_long(clock: Clock) -> None:
    deadline = Deadline(120, FORECAST, 2)
    for stage, end in (("rivals", 40), ("label@1", 90)):
        begin(deadline, stage)
        clock.minutes = end
    with pytest.raises(InputError, match=r"stopped before train@1, since router 1 .* 144 minutes"):
        begin(deadline, "train@1")


def test_stages_before_the_first_choice_always_run(clock: Clock) -> None:
    """Otherwise nothing would be registered."""
    deadline = Deadline(1, FORECAST, 2)
    clock.minutes = 10
    begin(deadline, "rivals")


def test_what_has_run_before_does_not_count(clock: Clock) -> None:
    deadline = Deadline(36, FORECAST, 2)
    deadline.begin("evaluate@1", ["label@2", "evaluate@2"])
    clock.minutes = 30
    with pytest.raises(InputError, match=r"before label@2, since router 2 would come after 70 min"):
        deadline.begin("label@2", ["evaluate@2"])


def test_a_late_run_still_chooses_and_reports_what_it_has_evaluated(clock: Clock) -> None:
    """Previously, it stopped before `choose@1`, and the router was never registered."""
    deadline = Deadline(60, FORECAST, 1)
    deadline.begin("evaluate@1", ["choose@1", "transcribe@1"])
    clock.minutes = 100
    deadline.begin("choose@1", ["transcribe@1"])
    deadline.begin("transcribe@1")
