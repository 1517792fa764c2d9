from collections import Counter
from dataclasses import replace
from unicodedata import normalize

import pytest

from citer.data.splits import check_held_out, separate, split_by_share
from citer.errors import InputError
from tests.tiny import MATH

SHARES = {"sft": 0.5, "preference": 0.3, "validation": 0.0, "test": 0.2}


def problem(name, question):
    return replace(MATH, problem_id=name, question=question, split="")


def test_splits_follow_their_shares_and_a_share_of_0_is_empty():
    counts = Counter(split_by_share(f"question {n}", 17, SHARES) for n in range(20_000))
    assert counts["validation"] == 0
    for split, share in SHARES.items():
        assert abs(counts[split] / 20_000 - share) < 0.015  # four standard errors


def test_shares_need_not_sum_to_one():
    third = {split: share / 3 for split, share in SHARES.items()}
    questions = [f"question {n}" for n in range(500)]
    assert [split_by_share(q, 1, third) for q in questions] == [
        split_by_share(q, 1, SHARES) for q in questions
    ]


def test_a_split_depends_on_the_normalised_question_and_the_seed():
    drawn = [[split_by_share(f"Is {n} it?", seed, SHARES) for n in range(50)] for seed in (1, 2)]
    assert drawn[0] == [split_by_share(f"is {n}  IT?", 1, SHARES) for n in range(50)]
    assert drawn[0] != drawn[1]


def test_a_question_belongs_to_its_first_split():
    splits, duplicates = separate(
        [
            ("test", problem("a", "Which?")),
            ("sft", problem("b", "which ?")),
            ("sft", problem("c", "WHICH?")),
            ("test", problem("d", "which?")),
            ("test", problem("a", "Which?")),
        ]
    )
    assert [p.problem_id for p in splits["test"]] == ["a", "d"]
    assert [(p.problem_id, p.split) for p in splits["sft"]] == [("b", "sft")]
    assert [(p.problem_id, p.split) for p in duplicates] == [("c", "sft"), ("a", "test")]


def test_forms_of_accents_make_no_second_question():
    texts = [normalize(form, "Is the café open?") for form in ("NFC", "NFD")]
    splits, duplicates = separate(
        [("test", problem("a", texts[0])), ("sft", problem("b", texts[1]))]
    )
    assert [each.problem_id for each in duplicates] == ["b"]
    assert splits["sft"] == []


@pytest.mark.parametrize("ids", [["a"], ["a", "a.llm"], []])
def test_one_question_of_preference_is_too_few(ids):
    with pytest.raises(InputError, match=f"{len({*ids[:1]})} problem, expected 2 or more"):
        check_held_out([problem(each, each) for each in ids])
