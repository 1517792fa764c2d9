"""The trunks that a runner keeps."""

from citer.decoding.answer import Request
from citer.decoding.runner import Held, ModelRunner
from citer.models.pair import Pair


def start(runner: ModelRunner, *trunks: tuple[int, ...]) -> None:
    """Empty the first slots, and start in each a sequence that equals its trunk."""
    requests = [Request("", ids, trunk_ids=ids) for ids in trunks]
    runner.prepare([Held(slot, 0, request.trunk) for slot, request in enumerate(requests)])


def test_a_lane_keeps_as_many_trunks_as_slots_and_drops_the_least_recently_used(pair: Pair) -> None:
    runner = ModelRunner(pair.slm, slots=2)

    def computed(first: int) -> int:
        """Return the positions computed to start from the trunk with this first token."""
        before = runner.total.positions
        start(runner, tuple(range(first, first + 9)))
        return runner.total.positions - before

    assert [computed(first) for first in (1, 2, 1, 3, 1, 2)] == [9, 9, 0, 9, 0, 9]


def test_trunks_of_one_batch_share_a_forward_and_outlive_older_ones(pair: Pair) -> None:
    runner = ModelRunner(pair.slm, slots=3)
    one, two, three, four = (tuple(range(first, first + 5)) for first in (1, 2, 3, 4))
    start(runner, one)
    start(runner, two, three, two)
    assert runner.total.forwards == 2
    start(runner, one, four, three)
    assert (runner.total.forwards, runner.total.positions) == (3, 20)
    assert runner.cache.lengths == [4, 4, 4]
