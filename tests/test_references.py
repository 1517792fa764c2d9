"""Whether the text of an answer is encoded as the LLM wrote it."""

from citer.decoding.answer import Answer
from citer.decoding.policy import LLM_ALONE
from citer.labelling.references import _reads_back
from citer.models.pair import Pair


def answer(pair: Pair, *token_ids: int) -> Answer:
    return Answer("key", LLM_ALONE, (*token_ids, pair.eos_ids[0]), (), (), truncated=False)


def test_a_text_is_compared_with_the_tokens_that_were_written(pair: Pair) -> None:
    text = "The answer"
    *ids, _ = pair.prompts.completion_ids(text)
    letters = [pair.prompts.completion_ids(letter)[0] for letter in text]
    assert len(ids) < len(letters)
    assert pair.text(letters) == text
    assert _reads_back(pair, text, answer(pair, *ids))
    assert not _reads_back(pair, text, answer(pair, *letters))
    assert not _reads_back(pair, text, answer(pair, *ids[:-1]))
