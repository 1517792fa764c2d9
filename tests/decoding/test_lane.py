"""The trunks that a lane keeps."""

from citer.decoding.answer import Request
from citer.decoding.lane import Held, Lane
from citer.models.pair import Pair


def start(lane: Lane, *trunks: tuple[int, ...]) -> None:
    """Empty the first slots, and start in each a sequence that equals its trunk."""
    requests = [Request("", ids, trunk_ids=ids) for ids in trunks]
    lane.prepare([Held(slot, 0, request.trunk) for slot, request in enumerate(requests)])


def test_a_lane_keeps_as_many_trunks_as_slots_and_drops_the_least_recently_used(pair: Pair) -> None:
    lane = Lane(pair.slm, slots=2)

    def computed(first: int) -> int:
        """Return the positions computed to start from the trunk with this first token."""
        before = lane.total.positions
        start(lane, tuple(range(first, first + 9)))
        return lane.total.positions - before

    assert [computed(first) for first in (1, 2, 1, 3, 1, 2)] == [9, 9, 0, 9, 0, 9]


def test_trunks_of_one_batch_share_a_forward_and_outlive_older_ones(pair: Pair) -> None:
    lane = Lane(pair.slm, slots=3)
    one, two, three, four = (tuple(range(first, first + 5)) for first in (1, 2, 3, 4))
    start(lane, one)
    start(lane, two, three, two)
    assert lane.total.forwards == 2
    start(lane, one, four, three)
    assert (lane.total.forwards, lane.total.positions) == (3, 20)
    assert lane.cache.lengths == [4, 4, 4]
