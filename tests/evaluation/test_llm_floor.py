from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import MagicMock

import pytest

from citer.config.params import SHIPPED, load_params
from citer.data.problems import Choice, Problem
from citer.decoding.answer import Counts
from citer.errors import InputError
from citer.evaluation.cost import Trace
from citer.evaluation.measure import ACCURACY
from citer.evaluation.sweep import Result
from citer.pairs.hints import Shortfall, floor, reason_to_stop, shortfalls, warnings
from citer.pairs.probe import Reply, shown
from citer.stages import rivals
from tests.tiny import MATH, MC


def with_options(count: int) -> Problem:
    return replace(MC, choices=tuple(Choice(label, label) for label in "ABCDE"[:count]))


def answered(problem: Problem, right: int, of: int) -> list[Result]:
    counts = Counts(1, 1, 1, 0, 0, 0)
    return [
        Result(problem, Trace.of(1, 1, []), (), number < right, False, counts)
        for number in range(of)
    ]


@pytest.mark.parametrize(
    ("problems", "llm_floor", "expected"),
    [
        ([MATH], 0.2, 0.2),
        ([with_options(4)], 0.2, 0.35),
        ([with_options(2)], 0.2, 0.6),
        ([with_options(4)], 0.5, 0.5),
        ([with_options(2), with_options(4)], 0.2, (1 / 2 + 1 / 4) / 2 + 0.1),
        ([with_options(4)], 0.0, 0.0),
    ],
)
def test_the_floor_is_above_the_accuracy_of_guessing(problems, llm_floor, expected):
    assert floor(problems, llm_floor) == pytest.approx(expected)


@pytest.mark.parametrize(("right", "short"), [(0, True), (3, True), (4, False), (20, False)])
def test_a_share_of_just_the_floor_is_enough(right, short):
    assert bool(list(shortfalls(answered(MATH, right, 20), 0.2))) == short


def test_each_task_has_its_own_floor():
    results = [*answered(MATH, 19, 20), *answered(with_options(4), 6, 20)]
    (only,) = shortfalls(results, 0.2)
    assert only == Shortfall("mc", 20, 0.3, 0.35)
    message = "LLM right on 30.0% of 20 mc questions of validation, expected at least 35.0%"
    assert str(only) == message
    assert not list(shortfalls(results, 0.0))


def test_an_answer_is_shown_in_short_lines_without_control_characters():
    long = replace(MATH, question="Why?\n" + "so " * 100 + "there?")
    question, llm, read, expected = shown(long, "one\n\ntwo \x1b[2J [bold]", True).splitlines()
    assert question == f"question: {('Why? ' + 'so ' * 24)}s … {'so ' * 24 + 'there?'}"
    assert llm == "     LLM: one two \\x1b[2J [bold] (cut off)"
    assert read == "    read: nothing"
    assert expected == "expected: 31"


@pytest.mark.parametrize(("right", "stops"), [(0, True), (3, True), (4, False), (6, False)])
def test_probe_and_rivals_judge_the_same_questions_alike(right, stops, capsys):
    """Both see all questions of a task that has at most 20."""
    results = answered(with_options(4), right, 20)
    replies = [Reply(r.problem, "", (), "", False, None, r.correct, None, 5, 9) for r in results]
    study = MagicMock()
    study.alone_on.return_value.llm.results = results
    study.params, study.measure = load_params(SHIPPED), ACCURACY
    assert bool(reason_to_stop(replies, 0.2, "plain")) == stops
    with pytest.raises(InputError, match=r"llm_floor\)$") if stops else nullcontext():
        rivals._check(study)
    doubt = f"too few questions to be sure, but LLM right on {right / 20:.1%} of 20 mc questions"
    warned = [line for line in warnings(replies, replies, 0.2, "plain") if doubt in line]
    assert (doubt in capsys.readouterr().out) == bool(warned) == (not stops)
