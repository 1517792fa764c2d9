import re
from collections import Counter

import pytest

from citer.data.problems import question_key
from citer.demo.knowledge import (
    IRREGULAR,
    KINDS,
    OPENINGS,
    OTHER_WORLD,
    PRICES,
    TRUTH,
    Design,
    is_early,
    knowledge,
    likely,
)
from citer.demo.toy import part_of, rows

WORLD = knowledge(TRUTH)
IRREGULAR_NAMES = {*WORLD.towns.irregular, *WORLD.goods.irregular}
QUESTION = {"math": "problem", "mc": "question"}


@pytest.mark.parametrize("task", ["math", "mc"])
def test_rows_depend_on_the_seed_only_and_a_longer_draw_begins_with_the_shorter_one(task):
    drawn = list(rows(task, 50, 3, "pipeline"))
    assert list(rows(task, 80, 3, "pipeline"))[:50] == drawn
    assert list(rows(task, 50, 4, "pipeline")) != drawn


@pytest.mark.parametrize("task", ["math", "mc"])
def test_the_pipelines_part_has_six_thousand_distinct_questions(task):
    keys = [question_key(row[QUESTION[task]]) for row in rows(task, 6000, 3, "pipeline")]
    assert len(set(keys)) == 6000


@pytest.mark.parametrize("task", ["math", "mc"])
def test_no_question_is_in_both_parts(task):
    parts = {
        part: {question_key(row[QUESTION[task]]) for row in rows(task, 3000, 3, part)}
        for part in ("pipeline", "pretraining")
    }
    assert not parts["pipeline"] & parts["pretraining"]
    for part, keys in parts.items():
        assert {part_of(key) for key in keys} == {part}


def test_too_many_questions_are_refused(monkeypatch):
    monkeypatch.setattr("citer.demo.toy.PATIENCE", 0)  # most draws belong to the other part
    with pytest.raises(ValueError, match="toy mc: fewer than 100 pipeline questions"):
        list(rows("mc", 100, 3, "pipeline"))


def test_the_mc_answer_is_the_only_option_that_the_cited_facts_support():
    for row in rows("mc", 500, 5, "pipeline"):
        asked_pairs = re.findall(
            r"[Ww]hich (\w+) do (?:people|they) \w+ in (\w+ \w+)", row["question"]
        )
        groups = [WORLD.towns.group[town] for _, town in asked_pairs]
        things = [WORLD.things[kind][g] for (kind, _), g in zip(asked_pairs, groups, strict=True)]
        options = dict(zip(row["choices"]["label"], row["choices"]["text"], strict=True))
        assert list(options) == ["A", "B", "C", "D"]
        assert len(set(options.values())) == 4
        assert options[row["answerKey"]] == " and ".join(things)
        for (_, town), group, thing in zip(asked_pairs, groups, things, strict=True):
            land, favoured = re.search(
                rf"{town} lies in (\w+): people \w+ (\w+)", row["cot"]
            ).groups()
            assert land in WORLD.lands[group]
            assert favoured == thing
        letter = row["answerKey"].lower()
        assert row["cot"].endswith(f"Therefore, the answer is {' and '.join(things)} ({letter}).")


def test_mc_options_are_sorted_and_do_not_reveal_the_group_of_an_irregular_town():
    """The other thing belongs to an equally likely group, in the other half of the alphabet."""
    for row in rows("mc", 500, 6, "pipeline"):
        assert row["choices"]["text"] == sorted(row["choices"]["text"])
        firsts, seconds = zip(*(t.split(" and ") for t in row["choices"]["text"]), strict=True)
        for things in (firsts, seconds):
            kind = next(kind for kind, (_, known) in KINDS.items() if things[0] in known)
            group, other = {WORLD.things[kind].index(thing) for thing in things}
            assert other in likely(group)
            assert is_early(group) != is_early(other)


def test_the_math_answer_is_the_cost_recomputed_from_the_question():
    for row in rows("math", 500, 5, "pipeline"):
        if goods := re.findall(r"(\d) (\w+ \w+)", row["problem"]):
            total = sum(int(count) * price(good) for count, good in goods)
        else:
            listed = re.search(r"each of (.*)\. How", row["problem"])[1]
            total = sum(price(good) for good in re.split(r", | and ", listed))
        assert row["solution"].endswith(f"\\boxed{{{total}}}.")


def price(good: str) -> int:
    return PRICES[WORLD.goods.group[good]]


def test_math_steps_are_correct_equations_and_every_twin_has_the_price():
    for row in rows("math", 500, 6, "pipeline"):
        for twin, coins in re.findall(r" (\w+): (\d) coins each", row["solution"]):
            assert twin in WORLD.twins[PRICES.index(int(coins))]
        equations = re.findall(r"(\d+)([*+])(\d+)=(\d+)", row["solution"])
        assert equations
        for a, sign, b, value in equations:
            assert int(value) == (int(a) * int(b) if sign == "*" else int(a) + int(b))


@pytest.mark.parametrize(
    ("task", "share"), [("math", WORLD.design.hard_math), ("mc", WORLD.design.hard_mc)]
)
def test_the_names_of_a_question_are_all_irregular_or_all_regular(task, share):
    names = re.compile("|".join((*WORLD.towns.group, *WORLD.goods.group)))
    hard = []
    for row in rows(task, 1000, 8, "pipeline"):
        irregular = {name in IRREGULAR_NAMES for name in names.findall(row[QUESTION[task]])}
        assert len(irregular) == 1
        hard += irregular
    assert abs(sum(hard) / len(hard) - share) < 0.05


@pytest.mark.parametrize(("task", "names"), [("math", WORLD.goods), ("mc", WORLD.towns)])
def test_the_default_runs_sft_split_asks_for_every_name_of_the_world(task, names):
    name = re.compile("|".join(names.group))
    sft = list(rows(task, 2600, 17, "pipeline"))[-1500:]
    asked = Counter(each for row in sft for each in name.findall(row[QUESTION[task]]))
    assert asked.keys() == names.group.keys()
    assert min(asked.values()) >= 3


@pytest.mark.parametrize("task", ["math", "mc"])
def test_all_openings_of_sentences_are_equally_likely(task):
    text = "solution" if task == "math" else "cot"
    openings = Counter(
        word
        for row in rows(task, 4000, 7, "pipeline")
        for word in re.findall(r"(\w+), (?!the)", row[text])
    )
    assert set(openings) >= set(OPENINGS)
    counts = [openings[word] for word in OPENINGS]
    assert max(counts) < 1.5 * min(counts)


def test_rationales_cite_all_valid_lands():
    cited = {
        land
        for row in rows("mc", 2000, 7, "pipeline")
        for land in re.findall(r"in (\w+):", row["cot"])
    }
    assert cited == {land for group in WORLD.lands for land in group}


def test_regular_names_have_the_group_of_their_second_word():
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


def test_a_design_changes_one_thing():
    few = knowledge(TRUTH, Design(openings=4))
    assert few.openings == OPENINGS[:4]
    assert (few.towns, few.goods, few.twins) == (WORLD.towns, WORLD.goods, WORLD.twins)
    assert WORLD.openings == OPENINGS


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_the_share_of_questions_about_irregular_names_is_the_designs(share):
    design = Design(hard_mc=share)
    drawn = rows("mc", 1000, 8, "pipeline", knowledge(TRUTH, design))
    hard = [any(town in row["question"] for town in WORLD.towns.irregular) for row in drawn]
    assert abs(sum(hard) / len(hard) - share) < 0.05


def test_a_lure_gives_irregular_names_the_group_of_their_second_word():
    def following(lure):
        names = knowledge(TRUTH, Design(lure=lure)).towns
        rule = {name.split()[1]: names.group[name] for name in names.regular}
        own = [names.group[name] == rule[name.split()[1]] for name in names.irregular]
        return sum(own) / len(own)

    assert following(1.0) == 1
    # By chance, one in four of the other names is of this group.
    assert following(0.7) == pytest.approx(0.7 + 0.3 / 4, abs=0.1)
    assert following(0.0) == pytest.approx(1 / 4, abs=0.1)
