"""What routing has done: the sums, and the visits of each request until somebody takes them."""

from citer.decoding.answer import Disagreement, Visit
from citer.serving.log import audited_positions
from citer.vllm.counts import Counts, Total

REJECTED = Visit(5, 5, 3, 3, (Disagreement(3, 7, 8, 0.01),))
VISITS = (Visit(0, 0, 0), REJECTED, Visit(4, 8, 8, 4, (Disagreement(6, 1, 2, 0.5),)))


def test_counts_follow_from_the_visits() -> None:
    counts = Counts(most=2)
    for visit in VISITS:
        counts.add("a", visit)
    assert counts.requests["a"] == [*VISITS]
    assert list(audited_positions(VISITS)) == [1, 2, 3, 4, 5, 6, 7]
    assert counts.total == Total(0, 0, drafted=8, accepted=6, rejected=1, audited=7, disagreed=2)


def test_untaken_requests_are_dropped_the_longest_unvisited_first() -> None:
    counts = Counts(most=2)
    for key in "abac":
        counts.add(key, VISITS[0])
    assert list(counts.requests) == ["a", "c"]
