"""What a lane keeps."""

from citer.decoding.lane import Lane
from citer.models.pair import Pair


def test_as_many_trunks_are_kept_as_slots_those_used_last(pair: Pair) -> None:
    lane = Lane(pair.slm, slots=2)

    def computed(first: int) -> int:
        """Positions that it takes to begin with the trunk of this first token."""
        trunk, before = tuple(range(first, first + 9)), lane.total.positions
        lane.cut(0, 0)
        lane.start_from([trunk], [0], [trunk])
        return lane.total.positions - before

    assert [computed(first) for first in (1, 2, 1, 3, 1, 2)] == [9, 9, 0, 9, 0, 9]


def test_trunks_of_one_batch_share_a_forward_and_outlive_older_ones(pair: Pair) -> None:
    lane = Lane(pair.slm, slots=3)
    one, two, three, four = (tuple(range(first, first + 5)) for first in (1, 2, 3, 4))
    lane.start_from([one], [0], [one])
    for slot in range(3):
        lane.cut(slot, 0)
    lane.start_from([two, three, two], [0, 1, 2], [two, three, two])
    assert lane.total.forwards == 2
    for slot in range(3):
        lane.cut(slot, 0)
    lane.start_from([one, four, three], [0, 1, 2], [one, four, three])
    assert (lane.total.forwards, lane.total.positions) == (3, 20)
    assert lane.cache.lengths == [4, 4, 4]
