"""Text in pieces: characters that several tokens make up, and stop texts across pieces."""

import json
from dataclasses import replace
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citer.models.pair import Pair
from citer.serving.server.replies import TextStream, event


def pieces(pair: Pair, parts: list[list[int]], stop: tuple[str, ...] = ()) -> list[str]:
    """Return the pieces of an answer whose tokens settle in `parts`, and its rest."""
    stream = TextStream(pair, stop)
    sent = [stream.add(part) for part in parts]
    return [*sent, stream.rest(pair.text([token for part in parts for token in part], stop))]


@given(data=st.data())
def test_pieces_make_up_the_text_wherever_they_end(pair: Pair, data: st.DataObject) -> None:
    """Any ids, also bytes that are no characters, and any stop text out of the answer."""
    ids = data.draw(st.lists(st.integers(0, pair.vocabulary.size - 1), min_size=1, max_size=30))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(ids)))) | {0, len(ids)})
    parts = [ids[begin:end] for begin, end in pairwise(cuts)]
    whole = pair.text(ids)
    begin = data.draw(st.integers(0, len(whole)))
    stop = whole[begin : begin + data.draw(st.integers(0, 4))]
    assert "".join(pieces(pair, parts)) == whole
    if stop:
        # The engine settles no token after the one that completes a stop text.
        ended = next(n for n in range(1, len(ids) + 1) if stop in pair.text(ids[:n]))
        single = [[token] for token in ids[:ended]]
        assert "".join(pieces(pair, single, (stop,))) == pair.text(ids[:ended], (stop,))


def test_half_a_character_waits_for_the_rest(pair: Pair) -> None:
    pair = replace(pair, eos_ids=pair.eos_ids[:1])  # the others are parts of characters, too
    ids = pair.tokenizer("a€b").input_ids
    assert len(ids) == 5
    assert pieces(pair, [[each] for each in ids]) == ["a", "", "", "€", "b", ""]


def test_half_a_character_at_the_end_is_sent_with_the_rest(pair: Pair) -> None:
    ids = pair.tokenizer("a€").input_ids[:-1]
    assert pieces(pair, [[each] for each in ids]) == ["a", "", "", "\ufffd"]


def test_an_event_is_one_line_for_every_client() -> None:
    """httpx ends lines as `str.splitlines` does, also at U+2028."""
    content = event({"text": "one\u2028two\u2029three\x85four"})
    line, end = httpx.Response(200, content=content).iter_lines()
    assert json.loads(line.removeprefix("data: "))["text"].splitlines()[1:] == [
        "two",
        "three",
        "four",
    ]
    assert end == ""


def test_an_eos_that_is_no_special_token_is_not_in_the_text(pair: Pair) -> None:
    ids = pair.tokenizer("1234").input_ids
    ended = replace(pair, eos_ids=(*pair.eos_ids, ids[-1]))
    assert ended.text(ids) == "123"
    assert pieces(ended, [[each] for each in ids]) == ["1", "2", "3", "", ""]


@pytest.mark.parametrize(
    ("stop", "sent", "rest"),
    [
        (("34",), ["1", "2", "", ""], ""),
        (("35",), ["1", "2", "", "34"], ""),
        (("24", "345"), ["1", "", "2", ""], "34"),
        (("99",), ["1", "2", "3", "4"], ""),
    ],
)
def test_what_may_begin_a_stop_text_waits(
    pair: Pair, stop: tuple[str, ...], sent: list[str], rest: str
) -> None:
    ids = pair.tokenizer("1234").input_ids
    assert len(ids) == 4
    assert pieces(pair, [[each] for each in ids], stop) == [*sent, rest]
