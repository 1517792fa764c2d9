import re
from collections import Counter

import pytest

from citer.data.problems import question_key
from citer.data.toy import math, mc, part_of, rows
from citer.data.toy.knowledge import (
    IRREGULAR,
    OTHER_WORLD,
    PRICES,
    TRUTH,
    is_early,
    knowledge,
    likely,
)
from citer.data.toy.words import KINDS, OPENINGS

WORLD = knowledge(TRUTH)
IRREGULAR_NAMES = {*WORLD.towns.irregular, *WORLD.goods.irregular}
QUESTION = {"math": "problem", "mc": "question"}


@pytest.mark.parametrize("task", ["math", "mc"])
def test_same_seed_gives_same_rows_and_another_seed_others(task):
    assert list(rows(task, 50, 3, "pipeline")) == list(rows(task, 50, 3, "pipeline"))
    assert list(rows(task, 50, 3, "pipeline")) != list(rows(task, 50, 4, "pipeline"))


@pytest.mark.parametrize("task", ["math", "mc"])
def test_a_longer_draw_begins_with_the_shorter_one(task):
    assert list(rows(task, 80, 3, "pipeline"))[:30] == list(rows(task, 30, 3, "pipeline"))


@pytest.mark.parametrize("task", ["math", "mc"])
def test_pipeline_holds_six_thousand_distinct_questions(task):
    keys = [question_key(row[QUESTION[task]]) for row in rows(task, 6000, 3, "pipeline")]
    assert len(set(keys)) == 6000


@pytest.mark.parametrize("task", ["math", "mc"])
def test_the_parts_share_no_question(task):
    parts = {
        part: {question_key(row[QUESTION[task]]) for row in rows(task, 3000, 3, part)}
        for part in ("pipeline", "pretraining")
    }
    assert not parts["pipeline"] & parts["pretraining"]
    for part, keys in parts.items():
        assert {part_of(key) for key in keys} == {part}


def test_asking_for_more_questions_than_there_are_is_refused(monkeypatch):
    monkeypatch.setattr("citer.data.toy.PATIENCE", 0)  # half of them and more are the other part's
    with pytest.raises(ValueError, match="toy mc: fewer than 100 pipeline questions"):
        list(rows("mc", 100, 3, "pipeline"))


@pytest.mark.parametrize("task", ["math", "mc"])
def test_rows_have_the_keys_of_users_files(task):
    expected = {
        "math": {"problem", "solution"},
        "mc": {"question", "choices", "answerKey", "cot"},
    }
    row = next(rows(task, 1, 3, "pipeline"))
    assert set(row) == expected[task]


def test_mc_gold_is_the_one_true_option_reached_by_true_citations():
    for row in rows("mc", 500, 5, "pipeline"):
        asked = re.findall(r"[Ww]hich (\w+) do (?:people|they) \w+ in (\w+ \w+)", row["question"])
        groups = [WORLD.towns.group[town] for _, town in asked]
        things = [WORLD.things[kind][g] for (kind, _), g in zip(asked, groups, strict=True)]
        options = dict(zip(row["choices"]["label"], row["choices"]["text"], strict=True))
        assert list(options) == ["A", "B", "C", "D"]
        assert len(set(options.values())) == 4
        assert options[row["answerKey"]] == " and ".join(things)
        for (_, town), group, thing in zip(asked, groups, things, strict=True):
            land, favoured = re.search(
                rf"{town} lies in (\w+): people \w+ (\w+)", row["cot"]
            ).groups()
            assert land in WORLD.lands[group]
            assert favoured == thing
        letter = row["answerKey"].lower()
        assert row["cot"].endswith(f"Therefore, the answer is {' and '.join(things)} ({letter}).")


def test_mc_options_do_not_tell_which_group_an_irregular_town_is_of():
    """They pair each thing with that of a group that is as likely, one of each alphabet's half."""
    for row in rows("mc", 500, 6, "pipeline"):
        firsts, seconds = zip(*(t.split(" and ") for t in row["choices"]["text"]), strict=True)
        for things in (firsts, seconds):
            kind = next(kind for kind, (_, known) in KINDS.items() if things[0] in known)
            group, other = {WORLD.things[kind].index(thing) for thing in things}
            assert other in likely(group)
            assert is_early(group) != is_early(other)


def test_mc_options_stand_in_alphabetical_order_so_that_the_things_decide_the_letter():
    for row in rows("mc", 500, 6, "pipeline"):
        assert row["choices"]["text"] == sorted(row["choices"]["text"])


def test_math_gold_is_the_cost_recomputed_from_the_question():
    for row in rows("math", 500, 5, "pipeline"):
        if goods := re.findall(r"(\d) (\w+ \w+)", row["problem"]):
            total = sum(int(count) * price(good) for count, good in goods)
        else:
            listed = re.search(r"each of (.*)\. How", row["problem"])[1]
            total = sum(price(good) for good in re.split(r", | and ", listed))
        assert row["solution"].endswith(f"\\boxed{{{total}}}.")


def price(good: str) -> int:
    return PRICES[WORLD.goods.group[good]]


def test_math_steps_are_true_equations_and_every_twin_has_the_price():
    for row in rows("math", 500, 6, "pipeline"):
        for twin, coins in re.findall(r" (\w+): (\d) coins each", row["solution"]):
            assert twin in WORLD.twins[PRICES.index(int(coins))]
        equations = re.findall(r"(\d+)([*+])(\d+)=(\d+)", row["solution"])
        assert equations
        for a, sign, b, value in equations:
            assert int(value) == (int(a) * int(b) if sign == "*" else int(a) + int(b))


@pytest.mark.parametrize(("task", "share"), [("math", math.HARD), ("mc", mc.HARD)])
def test_a_question_is_about_irregular_names_alone_or_about_none(task, share):
    names = re.compile("|".join((*WORLD.towns.group, *WORLD.goods.group)))
    hard = []
    for row in rows(task, 1000, 8, "pipeline"):
        irregular = {name in IRREGULAR_NAMES for name in names.findall(row[QUESTION[task]])}
        assert len(irregular) == 1
        hard += irregular
    assert abs(sum(hard) / len(hard) - share) < 0.05


@pytest.mark.parametrize("task", ["math", "mc"])
def test_no_word_that_opens_a_sentence_is_likelier_than_another(task):
    text = "solution" if task == "math" else "cot"
    openings = Counter(
        word
        for row in rows(task, 4000, 7, "pipeline")
        for word in re.findall(r"(\w+), (?!the)", row[text])
    )
    assert set(openings) >= set(OPENINGS)
    counts = [openings[word] for word in OPENINGS]
    assert max(counts) < 1.5 * min(counts)


def test_every_group_offers_several_valid_citations():
    for group in range(len(PRICES)):
        assert len(WORLD.lands[group]) == 4
        assert len(WORLD.twins[group]) == 4


def test_gold_cites_all_valid_lands():
    cited = {
        land
        for row in rows("mc", 2000, 7, "pipeline")
        for land in re.findall(r"in (\w+):", row["cot"])
    }
    assert cited == {land for group in WORLD.lands for land in group}


def test_half_of_the_first_words_leave_the_group_to_the_second_word():
    for groups in (WORLD.towns.group, WORLD.goods.group):
        regular = {name: group for name, group in groups.items() if name not in IRREGULAR_NAMES}
        assert len(regular) == len(groups) * (16 - IRREGULAR) // 16
        rule = {name.split()[1]: group for name, group in regular.items()}
        assert all(rule[name.split()[1]] == group for name, group in regular.items())
        for name, group in groups.items():
            assert group in likely(rule[name.split()[1]])


def test_another_world_has_other_facts():
    other = knowledge(OTHER_WORLD)
    agreeing = sum(WORLD.towns.group[town] == other.towns.group[town] for town in WORLD.towns.group)
    assert agreeing < len(WORLD.towns.group) / 4
    assert knowledge(TRUTH) == WORLD
