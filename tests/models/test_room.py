"""The one check of the context: what fits, and the message when it does not."""

import pytest

from citer.data.prompts import Encoded
from citer.errors import InputError
from citer.models.folder import PairFolder
from citer.models.room import check_examples, check_fits, check_room
from tests.models.conftest import edit
from tests.tiny import MATH, TinyPair


def test_a_sequence_may_fill_the_context() -> None:
    check_fits("here", 8, 8)
    check_fits("here", 5, 8, new_tokens=3)


@pytest.mark.parametrize(
    ("length", "new_tokens", "tokens"),
    [(9, 0, "9 tokens"), (6, 3, r"6 tokens and up to 3 more \(max_new_tokens\)")],
)
def test_one_token_more_is_refused(length: int, new_tokens: int, tokens: str) -> None:
    with pytest.raises(InputError, match=rf"^here: {tokens}, expected at most 8, the models'"):
        check_fits("here", length, 8, new_tokens)


def test_an_example_counts_with_its_reference_or_with_an_answer() -> None:
    examples = {"a": Encoded([1, 2], [3]), "b": Encoded([1, 2], [3, 4])}
    check_examples(examples, 4, 2)
    with pytest.raises(
        InputError, match=r"^problem a: 2 tokens and up to 3 more \(decode\.max_new_tokens\), "
    ):
        check_examples(examples, 4, 3)
    with pytest.raises(InputError, match=r"^problem b: 4 tokens, expected"):
        check_examples(examples, 3)


def test_a_question_must_fit_the_smaller_context(folders: TinyPair) -> None:
    questions = [("file:1", MATH)]
    check_room(questions, PairFolder(*folders), 100)
    edit(folders.llm / "config.json", max_position_embeddings=100)
    with pytest.raises(InputError, match=r"^file:1: \d+ tokens and up to 100 more .* most 100,"):
        check_room(questions, PairFolder(*folders), 100)
