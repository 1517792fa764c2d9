"""What routing has done: the sums, and the visits of each request until somebody takes them."""

from citer.decoding.answer import Disagreement, Visit
from citer.rule import Rule
from citer.serving.log import audited_positions
from citer.vllm.counts import Counts, Total

RULE = Rule.parse("risk 0.8 audit 0.1")
REJECTED = Visit(5, 5, 3, 3, (Disagreement(3, 7, 8, 0.01),))
VISITS = (Visit(0, 0, 0), REJECTED, Visit(4, 8, 8, 4, (Disagreement(6, 1, 2, 0.5),)))


def test_counts_follow_from_the_visits() -> None:
    counts = Counts(most=2)
    for visit in VISITS:
        counts.add("a", RULE, visit)
    routed = counts.take("a")
    assert routed
    assert (routed.llm_steps, routed.drafted, routed.accepted, routed.rejected) == (3, 8, 6, 1)
    assert list(audited_positions(routed.visits)) == [1, 2, 3, 4, 5, 6, 7]
    assert counts.total == Total(0, 0, drafted=8, accepted=6, rejected=1, audited=7, disagreed=2)
    assert counts.take("a") is None


def test_untaken_requests_are_dropped_the_longest_unvisited_first() -> None:
    counts = Counts(most=2)
    for key in "abac":
        counts.add(key, RULE, VISITS[0])
    assert list(counts.requests) == ["a", "c"]
