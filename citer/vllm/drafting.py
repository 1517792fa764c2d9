"""Draft for a batch of requests: the SLM writes until each one's own rule calls for the LLM.

All requests draft side by side, one token of each per step of the SLM, and one forward of the LLM
then serves them all (*lockstep drafting*). A request that is done leaves the SLM's batch.
"""

from collections import OrderedDict
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from citer.decoding.policy import scorer_for
from citer.decoding.runner import Drafts, Held, ModelRunner
from citer.errors import InputError
from citer.models import batch
from citer.models.cache import SlotCache
from citer.models.pair import Pair
from citer.models.router import Router
from citer.models.sampling import Sampling, noise
from citer.rule import Rule

Ids = NDArray[np.int32]


class Row(NamedTuple):
    """A request in one step.

    ids: prompt and answer so far
    room: the largest number of drafts
    stops: the ids that end this request
    sampling: how the SLM samples, None if greedily
    """

    key: str
    ids: Ids
    rule: Rule
    room: int
    stops: Container[int]
    sampling: Sampling | None = None


class Drafted(NamedTuple):
    """The drafts of a request, and how often the SLM ran for them."""

    ids: list[int]
    steps: int


NONE = Drafted([], 0)


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


@dataclass
class _Writer:
    """A request while the SLM drafts for it. `ids` grows by the drafts."""

    row: Row
    place: Place
    column: int  # of the rule's scorer
    eos: int
    ids: list[int]
    risk: float = 1.0
    steps: int = 0

    @property
    def pending(self) -> int:
        return len(self.ids) - len(self.row.ids)

    @property
    def unread(self) -> batch.Row:
        own = noise(self.row.sampling, [len(self.ids)])
        return batch.Row(self.place.slot, self.ids, [(0, 0)], own)

    def take(self, token: int, scores: Sequence[float]) -> bool:
        """Take the SLM's next token, unless the LLM must write it. Return whether to go on."""
        rule, score = self.row.rule, scores[self.column]
        self.steps += 1
        ends = token == self.eos
        # vLLM would go on after an EOS at which it does not stop, so the LLM decides.
        if score < rule.least_score or (ends and token not in self.row.stops):
            return False
        self.ids.append(token)
        self.risk *= score
        ends = ends or token in self.row.stops
        return not ends and self.pending < self.row.room and not rule.due(self.risk, self.pending)


class Drafter:
    """The SLM with its cache of `slots` sequences of at most `width` tokens, and the router."""

    def __init__(self, pair: Pair, router: Router, slots: int, width: int) -> None:
        self.pair = pair
        self.router = router
        self.runner = ModelRunner(pair.slm, slots)
        self._slots = Slots(slots, width)
        self._drafts = Drafts(pair, ())  # reads the scorers that requests have asked for

    def reserve(self) -> None:
        """On a GPU, allocate the whole cache. Raises InputError if the free memory is too small."""
        slm, cache = self.pair.slm, self.runner.cache
        if slm.device.type != "cuda" or not isinstance(cache, SlotCache):
            return
        needed = len(cache.lengths) * self._slots.width * slm.kv_bytes
        free, _ = torch.cuda.mem_get_info(slm.device)
        if needed > free:
            raise InputError(
                f"the SLM's cache: {needed / 1e9:.1f} GB, expected at most {free / 1e9:.1f} GB; "
                "lower --max-num-seqs or --max-model-len"
            )
        cache.reserve(self._slots.width)

    @torch.inference_mode()
    def draft(self, rows: Sequence[Row]) -> list[Drafted]:
        """Draft for each row.

        Rows without room, those whose rule does not ask the SLM, and those with an id that only the
        LLM has, get no drafts.
        """
        known = self.pair.slm.vocab_size  # the LLM may pad its embeddings to a larger size
        able = [r for r in rows if r.room > 0 and r.rule.asks_slm and r.ids.max() < known]
        writers = self._writers(able)
        self._write(writers)
        drafted = {
            each.row.key: Drafted(each.ids[len(each.row.ids) :], each.steps) for each in writers
        }
        return [drafted.get(row.key, NONE) for row in rows]

    def _writers(self, rows: Sequence[Row]) -> list[_Writer]:
        places = self._slots.place([(row.key, row.ids) for row in rows])
        eos = self.pair.eos_ids[0]
        writers = [
            _Writer(row, place, self._column(row.rule), eos, row.ids.tolist())
            for row, place in zip(rows, places, strict=True)
            if place
        ]
        return sorted(writers, key=lambda each: each.place.slot)  # neighbours need no copy

    def _column(self, rule: Rule) -> int:
        """Return the place of a rule's scorer in `Draft.scores`."""
        scorer, read = scorer_for(self.router, rule), self._drafts.scorers
        if scorer not in read:
            self._drafts = self._drafts.reading([*read, scorer])
        return self._drafts.scorers.index(scorer)

    def _write(self, writers: Sequence[_Writer]) -> None:
        # At least one token must be new: its state gives the next one.
        kept = [min(each.place.shared, len(each.row.ids) - 1) for each in writers]
        slots = [each.place.slot for each in writers]
        self.runner.prepare([Held(*pair) for pair in zip(slots, kept, strict=True)])
        active = list(writers)
        while active:
            results = self.runner.consume([each.unread for each in active], self._drafts)
            active = [
                each
                for each, [(token, *scores)] in zip(active, results, strict=True)
                if each.take(int(token), scores)
            ]
        for each in writers:
            held = self.runner.cache.lengths[each.place.slot]
            self._slots.hold(each.place, each.ids[:held])
