"""What `probe` says about scripted answers."""

from dataclasses import replace

import pytest

from citer.data.problems import Choice, Problem
from citer.data.tasks import find_task
from citer.data.tasks.grading import grade
from citer.pairs.hints import hints, reason_to_stop, warnings
from citer.pairs.probe import Reply
from tests.tiny import MATH, MC

SUM = replace(MATH, question="What is 4 + 9?", answer="13")
PLANET = replace(
    MC, choices=(Choice("A", "Mars"), Choice("B", "Sun"), Choice("C", "Moon"), Choice("D", "Io"))
)
FLOOR = 0.2
RIGHT = "4 + 9 = 13. The answer is \\boxed{13}."
UNBOXED = "4 + 9 = 13. The answer is 13."


def reply(
    text: str,
    problem: Problem = SUM,
    truncated: bool = False,
    raw: str = "",
    failure: str | None = None,
) -> Reply:
    """Grade a text. Its words are the tokens."""
    words = {word: number for number, word in enumerate(dict.fromkeys(text.split()))}
    return Reply(
        problem=problem,
        text=text,
        token_ids=tuple(words[word] for word in text.split()),
        raw=raw or text,
        truncated=truncated,
        extracted=find_task(problem.task).extracted(problem, text),
        correct=None if problem.answer is None else not truncated and grade(problem, text),
        failure=failure,
        prompt_tokens=1,
        tokens=len(text.split()),
    )


def test_a_right_number_without_a_box_stops_the_run_and_names_the_task_number():
    """SmolLM2-135M-Instruct answered like this; half an hour later it was right on 0.0 %."""
    assert reason_to_stop([reply(UNBOXED)] * 20, FLOOR, "plain") == (
        "LLM right on 0.0% of 20 math questions of validation, expected at least 20.0% "
        "(evaluate.llm_floor); math: 20 of 20 answers hold the right answer, but not where the "
        "task math reads it: use the task number, or a prompt that asks for that form"
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (reply(""), "are empty"),
        (reply(" \n"), "are empty"),
        (reply("13\nuser\nWhat is 4 + 10?\nassistant\n14", truncated=True), "name of a chat role"),
        (reply("It is 13. <|im_start|>"), "contain a special token"),
        (reply("It is so.", raw="It is so.<|im_end|>"), "contain a special token"),
        (reply("I am. " * 8, truncated=True), "repeat the same tokens"),
        (reply("so " * 16), "repeat the same tokens"),
        (reply("Well, " + " ".join(map(str, range(99))), truncated=True), "cut off before EOS"),
        (reply("That makes 13.0 in all."), "use the task number"),
        (reply("1,300 of them", replace(SUM, answer="1300")), "use the task number"),
        (reply("so Paris", replace(SUM, answer="Paris")), "use the task number"),
        (
            reply("Not the moon, not Mars.", PLANET),
            "but not where the task mc reads it",
        ),
        (
            reply("It is Mars or the Sun.", PLANET),
            "but not where the task mc reads it",
        ),
        (reply("It is \\boxed{14}."), "too weak"),
        (reply("It is (B).", PLANET), "too weak"),
        (reply("It is 113 or 13.5 or 4.13."), "too weak"),
    ],
)
def test_each_fault_of_an_answer_has_its_hint(wrong, words):
    assert not wrong.correct
    assert words in hints([wrong] * 20, "plain")[0]


ASKED = replace(SUM, answer=None)


@pytest.mark.parametrize(
    ("text", "truncated", "words"),
    [
        ("", False, "are empty"),
        ("so " * 16, False, "repeat the same tokens"),
        ("Well, " + " ".join(map(str, range(99))), True, "cut off before EOS"),
        ("It is 13. <|im_start|>", False, "contain a special token"),
    ],
)
def test_a_fault_of_the_form_shows_without_an_answer(text, truncated, words):
    [hint] = hints([reply(text, ASKED, truncated)] * 20, "plain")
    assert words in hint


def test_answers_that_are_not_graded_are_neither_too_weak_nor_below_the_floor():
    asked = [reply(UNBOXED, ASKED)] * 20
    assert not hints(asked, "plain")
    assert not reason_to_stop(asked, 1.0, "plain")
    assert not list(warnings(asked, asked, 1.0, "plain"))


def test_a_task_is_judged_by_the_answers_that_are_graded():
    """13 questions without a right answer leave it open whether the LLM reaches 20 %, 14 do not."""
    for wrong, stopped in ((13, False), (14, True)):
        replies = [*[reply(UNBOXED, ASKED)] * 30, *[reply(UNBOXED)] * wrong]
        reason = reason_to_stop(replies, FLOOR, "plain")
        assert bool(reason) == stopped
        assert not stopped or reason.startswith("LLM right on 0.0% of 14 math questions")


@pytest.mark.parametrize("text", ["I am. " * 5, "so " * 15, "a b c d e f g h " * 3])
def test_a_few_equal_words_are_no_repetition(text):
    assert "repeat" not in str(hints([reply(text)] * 20, "plain"))


def test_right_answers_have_no_faults_even_if_their_text_looks_odd():
    assert not hints([reply(f"user:\n{'so ' * 20}{RIGHT}")] * 20, "plain")


def test_a_fault_of_fewer_than_a_quarter_of_the_answers_is_not_mentioned():
    def some(count):
        return hints([reply(UNBOXED)] * count + [reply(RIGHT)] * (20 - count), "plain")

    assert not some(4)
    assert len(some(5)) == 1


@pytest.mark.parametrize(
    ("problem", "right", "of", "stopped"),
    [
        (SUM, 0, 20, True),
        (SUM, 1, 20, False),  # of 20 % right, 1 or fewer of 20 happens in 7 of 100 cases
        (SUM, 0, 13, False),
        (SUM, 0, 14, True),
        (PLANET, 3, 20, True),  # the floor is 35 % with four options
        (PLANET, 4, 20, False),
    ],
)
def test_only_an_llm_that_is_certainly_below_the_floor_stops_the_run(problem, right, of, stopped):
    good, bad = ("(A)", "(B)") if problem.choices else (RIGHT, UNBOXED)
    replies = [reply(good if n < right else bad, problem) for n in range(of)]
    slm = [reply("", problem)] * of
    said = list(warnings(slm, replies, FLOOR, "plain"))
    assert bool(reason_to_stop(replies, FLOOR, "plain")) == stopped
    assert any(text.startswith("too few questions to be sure, but LLM right") for text in said) == (
        not stopped
    )
    assert not reason_to_stop(replies, 0.0, "plain")


def test_an_llm_may_be_below_a_high_floor_without_a_fault_to_name():
    replies = [reply(RIGHT)] * 10 + [reply("It is \\boxed{14}.")] * 10
    assert reason_to_stop(replies, 0.9, "plain").endswith("at least 90.0% (evaluate.llm_floor)")


def test_each_task_is_judged_alone():
    replies = [*[reply(RIGHT)] * 20, *[reply("(B)", PLANET)] * 20]
    assert reason_to_stop(replies, FLOOR, "plain").startswith(
        "LLM right on 0.0% of 20 mc questions"
    )


@pytest.mark.parametrize(("slm_right", "warned"), [(4, False), (5, True), (6, True)])
def test_an_slm_that_is_not_worse_than_the_llm_is_a_warning(slm_right, warned):
    llm = [reply(RIGHT if n < 5 else UNBOXED) for n in range(6)]
    slm = [reply(RIGHT if n < slm_right else "") for n in range(6)]
    said = list(warnings(slm, llm, FLOOR, "plain"))
    message = f"math: the SLM alone is right on {slm_right} of 6 questions, the LLM on 5: "
    assert any(text.startswith(message) for text in said) == warned
    assert not reason_to_stop(llm, FLOOR, "plain")


@pytest.mark.parametrize(
    ("prompt", "advice"),
    [("plain", "its chat template (pair.prompt: chat)"), ("chat", "variables (pair.chat)")],
)
@pytest.mark.parametrize("text", ["", "so " * 16, "user:\nWhy?"])
def test_a_chat_prompt_is_not_advised_to_use_a_chat_prompt(prompt, advice, text):
    [hint] = hints([reply(text)] * 20, prompt)
    assert advice in hint


def test_a_grader_that_fails_is_named_with_its_first_failure():
    [hint] = hints([reply("4", failure="timeout after 5 s")] * 20, "plain")
    assert hint == "20 of 20 answers made the grader of math fail: timeout after 5 s"


def test_a_single_failure_of_a_grader_is_mentioned():
    """The others may be cut off, and then nobody grades them."""
    cut = [reply("so", truncated=True)] * 19
    failed, ended = hints([reply("4", failure="NameError"), *cut], "plain")
    assert failed == "1 of 20 answers made the grader of math fail: NameError"
    assert ended.startswith("19 of 20 answers are cut off")


def test_an_answer_that_the_question_has_shows_nothing_about_the_form():
    echo = replace(SUM, question="Which number comes after 12: 13 or 14?")
    [hint] = hints([reply(UNBOXED, echo)] * 20, "plain")
    assert "nothing is odd about their form" in hint
