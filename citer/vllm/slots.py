"""Match the requests of a step to the slots of the SLM's cache, by request and by tokens."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


class Place(NamedTuple):
    """A slot, and how many of its first tokens are also the first ones of the request."""

    slot: int
    shared: int


class Slots:
    """What each slot holds: the request that used it last, and its tokens.

    A request keeps its slot. A new one, or one that lost its slot, gets the slot whose tokens have
    the longest common prefix with its own, among those of no request in the step; of equals, the
    one that was used longest ago. In any case the tokens decide how much of a slot is kept.
    """

    def __init__(self, count: int, width: int) -> None:
        self._ids_SP = np.zeros((count, width), np.int32)
        self.width = width
        self._lengths = [0] * count
        self._owners: OrderedDict[int, str | None] = OrderedDict.fromkeys(range(count))

    @property
    def size(self) -> int:
        """Positions of all slots."""
        return self._ids_SP.size

    def place(self, requests: Sequence[tuple[str, Ids]]) -> list[Place | None]:
        """Return a place for each request, by its key and its tokens; None if no slot is left."""
        own = {key: slot for slot, key in self._owners.items() if key is not None}
        taken = {key: own[key] for key, _ in requests if key in own}
        busy = set(taken.values())
        free = [slot for slot in self._owners if slot not in busy]
        places: list[Place | None] = []
        for key, ids in requests:
            slot = taken[key] if key in taken else self._best(free, ids)
            places.append(None if slot is None else Place(slot, self._shared(slot, ids)))
            if slot is not None:
                self._owners[slot] = key
                self._owners.move_to_end(slot)
        return places

    def hold(self, place: Place, ids: Sequence[int]) -> None:
        """Store which tokens a slot holds after a forward. It already had the shared ones."""
        slot, shared = place
        self._ids_SP[slot, shared : len(ids)] = ids[shared:]
        self._lengths[slot] = len(ids)

    def _best(self, free: list[int], ids: Ids) -> int | None:
        if not free:
            return None
        best = max(free, key=lambda slot: self._shared(slot, ids))  # the first of equals
        free.remove(best)
        return best

    def _shared(self, slot: int, ids: Ids) -> int:
        length = min(self._lengths[slot], len(ids))
        differs = self._ids_SP[slot, :length] != ids[:length]
        return int(differs.argmax()) if differs.any() else length
