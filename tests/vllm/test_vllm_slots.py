"""Requests are matched to slots by their tokens: rows move, requests come, go and return."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from citer.vllm.drafting import Ids, Place, Slots


def ids(*tokens: int) -> Ids:
    return np.array(tokens, np.int32)


def test_a_request_keeps_its_slot_wherever_its_row_is() -> None:
    slots = Slots(3, 9)
    first = slots.place([("a", ids(1, 2)), ("b", ids(1, 3))])
    for place, held in zip(first, ([1, 2], [1, 3]), strict=True):
        assert place
        slots.hold(place, held)
    moved = slots.place([("b", ids(1, 3, 5)), ("a", ids(1, 2, 4))])
    assert moved == [Place(1, 2), Place(0, 2)]


def test_rejected_drafts_are_cut() -> None:
    slots = Slots(1, 9)
    slots.hold(Place(0, 0), [1, 2, 7, 8, 9])
    assert slots.place([("a", ids(1, 2, 7, 3, 9))]) == [Place(0, 3)]


def test_a_new_request_takes_the_free_slot_with_the_longest_common_prefix() -> None:
    slots = Slots(3, 9)
    slots.place([(key, ids(0)) for key in "abc"])
    for slot, held in enumerate(([1, 2, 3], [1, 2, 4, 5], [9])):
        slots.hold(Place(slot, 0), held)
    assert slots.place([("d", ids(1, 2, 4, 6)), ("c", ids(9, 9))]) == [Place(1, 3), Place(2, 1)]


def test_among_equals_the_slot_used_longest_ago_is_taken() -> None:
    slots = Slots(3, 9)
    slots.place([("a", ids(1)), ("b", ids(2)), ("c", ids(3))])
    slots.place([("a", ids(1))])
    assert slots.place([("d", ids(4))]) == [Place(1, 0)]


def test_a_request_beyond_the_slots_gets_none() -> None:
    slots = Slots(1, 9)
    assert slots.place([("a", ids(1)), ("b", ids(2))]) == [Place(0, 0), None]


TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=6)


@given(st.lists(st.dictionaries(st.sampled_from("abcde"), TOKENS, max_size=3), max_size=12))
def test_what_is_shared_is_what_the_slot_holds(steps: list[dict[str, list[int]]]) -> None:
    slots = Slots(3, 6)
    held: dict[int, list[int]] = {n: [] for n in range(3)}
    for step in steps:
        places = slots.place([(key, ids(*tokens)) for key, tokens in step.items()])
        assert len({place.slot for place in places if place}) == len(step)
        for place, tokens in zip(places, step.values(), strict=True):
            assert place
            assert held[place.slot][: place.shared] == tokens[: place.shared]
            after = place.shared
            longest = min(len(held[place.slot]), len(tokens))
            assert after == longest or held[place.slot][after] != tokens[after]
            slots.hold(place, tokens)
            held[place.slot] = tokens
