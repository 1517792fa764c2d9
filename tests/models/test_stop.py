"""Stop texts in decoded tokens: across tokens, in parts of characters, after much text."""

import pytest
from transformers import PreTrainedTokenizerFast

from citer.data.prompts import PlainPrompts, PromptSettings, token_ids
from citer.errors import InputError
from citer.models.pair import Pair
from citer.models.tokenizer import StopTexts
from tests import tiny


def first_end(stops: StopTexts, ids: list[int]) -> str | None:
    """Return the text up to the token that ends the answer."""
    for count in range(1, len(ids) + 1):
        if stops.end(ids[:count]):
            return str(stops.tokenizer.decode(ids[:count]))
    return None


@pytest.fixture(scope="module")
def tokenizer(pair: Pair) -> PreTrainedTokenizerFast:
    return pair.tokenizer


@pytest.mark.parametrize("before", ["", "x", "€", "She starts with 36. ", "é" * 300])
@pytest.mark.parametrize("text", ["€", "\n\n", "Problem:", "END", "日本", "a€"])
def test_a_stop_ends_an_answer_with_its_last_token(
    tokenizer: PreTrainedTokenizerFast, before: str, text: str
) -> None:
    if text in before:
        return
    stops = StopTexts((text, "never"), tokenizer)
    ids = token_ids(f"{before}{text} and more", tokenizer, begins=False)
    ended = first_end(stops, ids)
    assert ended is not None
    assert ended.startswith(before + text)
    assert stops.cut(ended) == before
    shorter = token_ids(before + text, tokenizer, begins=False)[:-1]
    assert first_end(stops, shorter) is None


def test_an_answer_begins_at_its_first_token(tokenizer: PreTrainedTokenizerFast) -> None:
    stops = StopTexts(("\n\n",), tokenizer)
    prompt, ids = (token_ids(text, tokenizer, begins=False) for text in ("Say it:\n", "\nYes"))
    assert not stops.end([*prompt, *ids[:1]], len(prompt))
    assert stops.end([*prompt, *ids[:1]])


def test_the_first_of_several_stops_cuts() -> None:
    stops = StopTexts(("##", "stop"), PreTrainedTokenizerFast)
    assert stops.cut("It is 7. stop ## more") == "It is 7. "
    assert stops.cut("It is 7.") == "It is 7."


def test_a_stop_that_no_answer_contains_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(InputError, match=r"pair.stop: '<\|endoftext\|>': not in the text of an"):
        PlainPrompts(PromptSettings(stop=["END", tiny.EOS]), tokenizer, [0])


def test_a_reference_with_a_stop_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(InputError, match=r"^problem math-0: reference: contains 'apples', one of"):
        PlainPrompts(PromptSettings(stop=["apples"]), tokenizer, [0]).encode_all([tiny.MATH])


def test_stops_are_part_of_the_digest(tokenizer: PreTrainedTokenizerFast) -> None:
    all_settings = [PromptSettings(stop=stop) for stop in ((), ("a",), ("a", "b"))]
    digests = {PlainPrompts(settings, tokenizer, [0]).digest for settings in all_settings}
    assert len(digests) == 3
