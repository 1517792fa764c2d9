from dataclasses import replace
from itertools import count

import pytest

from citer.data.tasks.grading import grade
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE
from citer.evaluation.sweep import request
from citer.pairs.probe import (
    QUESTIONS,
    Pace,
    ask,
    by_task,
    choose_questions,
    examples,
    overview,
    reply_rows,
    speed,
)
from tests.tiny import MATH, MC

MANY = [
    replace(problem, problem_id=f"{problem.task}-{n}", question=f"{problem.question} {n}")
    for n in range(30)
    for problem in (MC, MATH)
]


def test_twenty_questions_of_each_task_are_chosen_by_seed():
    chosen = choose_questions(MANY, seed=1)
    assert [p.task for p in chosen] == ["math"] * QUESTIONS + ["mc"] * QUESTIONS
    assert chosen == choose_questions(MANY[::-1], seed=1)
    assert {p.problem_id for p in chosen} != {p.problem_id for p in choose_questions(MANY, seed=2)}


def test_a_new_question_replaces_at_most_one_of_the_chosen():
    chosen = choose_questions(MANY, seed=1)
    more = choose_questions([*MANY, replace(MATH, problem_id="new")], seed=1)
    assert len({*more} - {*chosen}) <= 1


def test_all_questions_of_a_small_task_are_chosen():
    chosen = choose_questions(MANY[:3], seed=1)
    assert [p.task for p in chosen] == ["math", "mc", "mc"]
    assert {*chosen} == {*MANY[:3]}


@pytest.mark.parametrize("policy", [SLM_ALONE, LLM_ALONE])
@pytest.mark.parametrize("slots", [2, 12])  # in six batches, and in one
def test_replies_are_the_graded_answers_of_single_decodes(study, policy, slots):
    pair, questions = study.pair, [*study.validation, *study.test]
    advanced: list[float] = []
    asked = ask(Engine(pair, slots, 22), questions, policy, advanced.append)
    assert [reply.problem for reply in asked.replies] == questions
    assert sum(advanced) == len(questions)
    assert {True, False} == {reply.truncated for reply in asked.replies}
    single = Engine(pair, 1, 22)
    for problem, reply in zip(questions, asked.replies, strict=True):
        (answer,) = single.decode([request(problem, pair)], policy)
        text = pair.text(answer.token_ids)
        ids = pair.prompts.completion_ids(text)
        assert (reply.text, reply.truncated) == (text, answer.truncated)
        assert (reply.tokens, reply.prompt_tokens) == (
            len(answer.token_ids),
            len(pair.prompts.prompt_ids(problem)),
        )
        assert [*reply.token_ids] == (ids[:-1] if ids[-1] in pair.eos_ids else ids)
        assert reply.correct == (not answer.truncated and grade(problem, text))
    assert min(asked.pace) > 0


def test_a_pace_is_that_of_well_filled_slots(study, monkeypatch):
    """A clock that counts calls gives each step one second, however many sequences it writes to."""
    monkeypatch.setattr("citer.pairs.probe.perf_counter", count().__next__)
    questions, slots = [*study.validation, *study.test], 5
    asked = ask(Engine(study.pair, slots, 22), questions, LLM_ALONE, lambda count: None)
    batches = [asked.replies[n : n + slots] for n in range(0, len(questions), slots)]
    assert 2 * len(batches[-1]) < slots  # its steps say nothing about a long run
    later = [sum(r.tokens > step for r in batch) for batch in batches for step in range(1, 22)]
    full = [sequences for sequences in later if 2 * sequences >= slots]
    assert len(full) < len([*filter(None, later)])
    assert asked.pace.answer == pytest.approx(len(full) / sum(full))
    read = sum(reply.prompt_tokens for reply in asked.replies)
    assert asked.pace.prompt == pytest.approx(len(batches) / read)


def test_a_table_has_two_rows_per_task_and_counts_what_both_models_wrote(study):
    questions = sorted(study.validation, key=lambda problem: problem.task)
    slm, llm = (
        ask(Engine(study.pair, 6, 40), questions, policy, lambda count: None).replies
        for policy in (SLM_ALONE, LLM_ALONE)
    )
    columns = {column.header: list(column.cells) for column in overview(slm, llm).columns}
    assert columns["task"] == ["math", "", "mc", ""]
    assert columns["model"] == ["LLM", "SLM"] * 2
    for model, replies in (("LLM", llm), ("SLM", slm)):
        row = columns["model"].index(model)
        right = sum(reply.correct for reply in by_task(replies)["math"])
        assert columns["right"][row] == f"{right} of 3"
    same = sum(one.extracted == two.extracted for one, two in zip(slm, llm, strict=True))
    assert sum(int(columns["same answer"][row]) for row in (1, 3)) == same > 0
    assert columns["same text"][1::2] == ["0", "0"]  # each model has words of its own
    assert [row["model"] for row in reply_rows("slm", slm)] == ["slm"] * 6


def test_examples_show_each_task_and_begin_with_wrong_answers(study):
    questions = sorted(study.validation, key=lambda problem: problem.task)
    replies = ask(Engine(study.pair, 6, 40), questions, LLM_ALONE, lambda count: None).replies
    heads = [text for text in examples(replies).splitlines() if text.endswith(":")]
    assert [head.partition(",")[0] for head in heads] == ["math", "math", "mc", "mc"]
    assert heads[0] == "math, wrong:"
    assert heads[1] == "math, right:"


def test_a_pace_is_printed_as_tokens_a_second():
    shown = speed(Pace(0.001, 0.0), Pace(0.01, 0.5), batch=40)
    models = "SLM 1,000 prompt and no answer tokens, LLM 100 prompt and 2 answer tokens"
    assert shown == f"{models} a second, 40 questions at once"
