import re
from collections import Counter

import pytest

from citer.data.problems import question_key
from citer.data.toy import part_of, rows
from citer.data.toy.knowledge import IRREGULAR, OTHER_WORLD, PRICES, TRUTH, knowledge
from citer.data.toy.words import KINDS

WORLD = knowledge(TRUTH)
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


def test_asking_for_more_questions_than_there_are_is_refused():
    with pytest.raises(ValueError, match="toy mc: fewer than 100000 pipeline questions"):
        list(rows("mc", 100_000, 3, "pipeline"))


@pytest.mark.parametrize("task", ["math", "mc"])
def test_rows_have_the_keys_of_users_files(task):
    expected = {
        "math": {"problem", "solution"},
        "mc": {"question", "choices", "answerKey", "cot"},
    }
    row = next(rows(task, 1, 3, "pipeline"))
    assert set(row) == expected[task]


def test_mc_gold_is_the_one_true_option_reached_by_a_true_citation():
    for row in rows("mc", 500, 5, "pipeline"):
        town, kind = re.search(r" (\w+ \w+)\. Which (\w+) ", row["question"]).groups()
        group = WORLD.town_group[town]
        thing = WORLD.things[kind][group]
        options = dict(zip(row["choices"]["label"], row["choices"]["text"], strict=True))
        assert list(options) == ["A", "B", "C", "D"]
        assert len(set(options.values())) == 4
        assert set(options.values()) <= set(KINDS[kind][1])
        assert options[row["answerKey"]] == thing
        assert re.search(rf"{town} [a-z ]+ (\w+)\.", row["cot"])[1] in WORLD.lands[group]
        assert row["cot"].endswith(
            f"Therefore, the answer is {thing} ({row['answerKey'].lower()})."
        )


def test_mc_options_stand_in_one_order_so_that_a_thing_has_one_letter():
    letters: dict[str, set[str]] = {}
    for row in rows("mc", 1000, 6, "pipeline"):
        assert row["choices"]["text"] == sorted(row["choices"]["text"])
        for label, text in zip(row["choices"]["label"], row["choices"]["text"], strict=True):
            letters.setdefault(text, set()).add(label)
    assert len(letters) == sum(len(things) for _, things in KINDS.values())
    assert all(len(labels) == 1 for labels in letters.values())


def test_math_gold_is_the_cost_recomputed_from_the_question():
    for row in rows("math", 500, 5, "pipeline"):
        good = re.search(r"buys \d+ (\w+ \w+) ", row["problem"])[1]
        price = PRICES[WORLD.good_group[good]]
        first, second = map(int, re.findall(r"\d+", row["problem"]))
        fee = "pays" in row["problem"]
        total = first * price + second if fee else (first + second) * price
        assert row["solution"].endswith(f"\\boxed{{{total}}}.")


def test_math_steps_are_true_equations_and_the_twin_has_the_price():
    for row in rows("math", 500, 6, "pipeline"):
        twin, price = re.search(r" (\w+): (\d) coins each", row["solution"]).groups()
        assert twin in WORLD.twins[PRICES.index(int(price))]
        equations = re.findall(r"(\d+)([*+])(\d+)=(\d+)", row["solution"])
        assert equations
        for a, sign, b, value in equations:
            assert int(value) == (int(a) * int(b) if sign == "*" else int(a) + int(b))


def test_every_group_offers_several_valid_citations():
    for group in range(len(PRICES)):
        assert len(WORLD.lands[group]) == 4
        assert len(WORLD.twins[group]) == 4


def test_gold_cites_all_valid_lands_and_goes_both_ways():
    cited = {re.search(r" (\w+)\. ", row["cot"])[1] for row in rows("mc", 2000, 7, "pipeline")}
    assert cited == {land for group in WORLD.lands for land in group}
    ways = {
        len(re.findall("=", row["solution"]))
        for row in rows("math", 100, 7, "pipeline")
        if " on " in row["problem"]
    }
    assert ways == {2, 3}


def test_most_first_words_leave_the_group_to_the_second_word():
    for groups in (WORLD.town_group, WORLD.good_group):
        seconds = {name.split()[1] for name in groups}
        usual = {
            second: Counter(g for name, g in groups.items() if name.endswith(f" {second}"))
            for second in seconds
        }
        rule = {second: counter.most_common(1)[0][0] for second, counter in usual.items()}
        regular = {name.split()[0] for name in groups} - {
            name.split()[0] for name, group in groups.items() if group != rule[name.split()[1]]
        }
        assert len(regular) == 16 - IRREGULAR


def test_another_world_has_other_facts():
    other = knowledge(OTHER_WORLD)
    shared = [town for town in WORLD.town_group if town in other.town_group]
    agreeing = sum(WORLD.town_group[town] == other.town_group[town] for town in shared)
    assert agreeing < len(shared) / 4
    assert knowledge(TRUTH) == WORLD
