"""What happens to a unit whose worker died."""

from collections import Counter
from typing import Any

from citer.errors import TemporaryError
from citer.executors.base import Unit
from citer.progress import Advance

ATTEMPTS = 3  # a unit whose worker died so often is the likely cause


class Deaths:
    """Counts the deaths of each unit's workers, and takes back the progress of unfinished units."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._done: dict[str, float] = {}  # of unfinished units
        self._deaths: Counter[str] = Counter()

    def advance(self, unit: Unit[Any], count: float) -> None:
        """Add to the progress of a unit."""
        self._done[unit.name] = self._done.get(unit.name, 0) + count
        self._advance(count)

    def died(self, unit: Unit[Any], reason: str) -> None:
        """Take back the unit's progress. Raises TemporaryError if it may not run again."""
        self._deaths[unit.name] += 1
        if self._deaths[unit.name] == ATTEMPTS:
            raise TemporaryError(
                f"{unit.name}: {ATTEMPTS} workers died while they ran it, the last with {reason}"
            )
        self._advance(-self._done.pop(unit.name, 0))
