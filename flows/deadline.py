"""The deadline of `citer run --minutes`: no stage of an iteration begins that would end late."""

from collections.abc import Iterable, Mapping
from time import monotonic

from citer.errors import InputError

LATE = 7 / 6  # of the minutes: when a run must have ended


class Deadline:
    """Measures a run from now on, and corrects its forecast by the stages that have run.

    `forecast` has the minutes of each stage over all `iterations`.
    """

    def __init__(self, minutes: float, forecast: Mapping[str, float], iterations: int) -> None:
        self._minutes, self._forecast, self._iterations = minutes, forecast, iterations
        self._start, self._begun = monotonic(), 0.0  # minutes of what has begun, by forecast

    def begin(self, stage: str, later: Iterable[str] = ()) -> None:
        """Count a stage that will run, and the `later` ones if it is one of an iteration.

        Raises InputError if the iteration would end late. What no forecast counts always begins.
        """
        iteration, used = stage.partition("@")[2], (monotonic() - self._start) / 60
        left = sum(self._of(each) for each in [stage, *later] if each.endswith(f"@{iteration}"))
        end = used + left * max(1.0, used / self._begun if self._begun else 1.0)
        if left and end > LATE * self._minutes:
            raise InputError(
                f"--minutes: {self._minutes:g}: stopped before {stage}, since router {iteration} "
                f"would come after {end:,.0f} minutes; what is registered stays, and `citer run` "
                "goes on from here"
            )
        self._begun += self._of(stage)

    def _of(self, stage: str) -> float:
        """Minutes by forecast."""
        kind, at, _ = stage.partition("@")
        return self._forecast.get(kind, 0.0) / (self._iterations if at else 1)
