"""Rows of each task, and the errors of bad ones."""

import pytest

from citer.data.importing import parse_row
from citer.data.problems import Choice, problem_key
from citer.data.tasks.rows import RowError

MATH = {"problem": "What is 2 + 2?", "solution": "2 + 2 = 4. The answer is \\boxed{4}."}

MC = {
    "question": "Which one is a planet?",
    "choices": {"text": ["Mars", "the Sun"], "label": ["A", "B"]},
    "answerKey": "A",
    "cot": "It goes round the Sun. The answer is Mars (a).",
}

FORMS = (
    'expected {"text": [texts], "label": [labels]} or a list of 2 to 5 texts; `options` is not read'
)
NOT_EMPTY = "expected a text for each option"
ONE_EACH = "expected one label per text, at least 2"
LABELS = "expected different labels of A-E or of 1-4"


def options(*texts, labels="AB"):
    return {"choices": {"text": [*texts], "label": [*labels]}}


def complaint(row, task, requires="reference"):
    with pytest.raises(RowError) as caught:
        parse_row(row, task, requires)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_math_row_becomes_a_problem():
    problem = parse_row(MATH, "math", "reference", source="file")
    assert problem.problem_id == problem_key("math", MATH["problem"], None)
    assert (problem.task, problem.question, problem.choices) == ("math", "What is 2 + 2?", None)
    assert (problem.reference, problem.answer) == (MATH["solution"], "4")
    assert (problem.source, problem.split) == ("file", "")


def test_mc_row_becomes_a_problem():
    problem = parse_row(MC, "mc", "reference", source="file")
    assert problem.choices == (Choice("A", "Mars"), Choice("B", "the Sun"))
    assert (problem.reference, problem.answer) == (MC["cot"], "A")
    digits = MC | {"choices": {"text": ["Mars", "the Sun"], "label": ["1", "2"]}, "answerKey": "1"}
    assert parse_row(digits | {"cot": "(1)"}, "mc", "reference").answer == "1"


@pytest.mark.parametrize("marks", ["\u0315\u0300", "\u0f73", "\u0300\u302e"])
def test_a_heap_of_accents_is_refused_before_it_is_put_in_order(marks):
    """That would take minutes for the longest text that a server takes, and hold up all others."""
    heap = "a" + marks * 10_000
    for row in ({"problem": heap}, {"messages": [{"role": "user", "content": heap}]}):
        assert complaint(row, "math", "question").endswith(
            ": over 100 accents in a row; expected text"
        )
    few = f"Is {marks * (100 // len(marks))} an accent?"
    assert parse_row({"problem": few}, "math", "question").question == few


def test_a_final_answer_may_hold_braces():
    row = MATH | {"solution": "first \\boxed{3}, then \\boxed{\\frac{1}{\\sqrt{2}}}"}
    assert parse_row(row, "math", "reference").answer == "\\frac{1}{\\sqrt{2}}"


@pytest.mark.parametrize(
    ("row", "task"),
    [
        ({"problem": "2 + 2?", "answer": "4"}, "math"),
        ({"problem": "2 + 2?", "solution": None, "answer": "4"}, "math"),
        ({key: MC[key] for key in ("question", "choices", "answerKey")}, "mc"),
        (MC | {"cot": ""}, "mc"),
    ],
)
def test_a_row_without_reference_can_be_graded_but_not_trained_on(row, task):
    problem = parse_row(row, task, "answer")
    assert problem.reference is None
    assert problem.answer in ("4", "A")
    assert "in training files" in complaint(row, task)


@pytest.mark.parametrize(
    ("row", "task", "field"),
    [
        ({"problem": "2 + 2?"}, "math", "solution"),
        ({"question": "?", "choices": MC["choices"]}, "mc", "answerKey"),
    ],
)
def test_a_row_without_answer_can_be_decoded_but_not_graded(row, task, field):
    problem = parse_row(row, task, "question")
    assert problem.reference is problem.answer is None
    assert complaint(row, task, "answer").startswith(f"{field}: missing")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"problem": None}, "problem: missing; expected the problem"),
        ({"problem": " "}, "problem: ' '; expected a text: the problem"),
        ({"problem": 7}, "problem: 7; expected a text: the problem"),
        ({"answer": True}, "answer: True; expected a text: the final answer"),
        ({"answer": float("nan")}, "answer: nan; expected a text: the final answer"),
        ({"answer": [4]}, "answer: [4]; expected a text: the final answer"),
        (
            {"problem": "2 + 2? \ud83d"},
            "problem: '\\ud83d', half a character; expected whole Unicode text",
        ),
        (
            {"solution": None},
            "solution: missing; expected a solution in training files, "
            "or elsewhere an `answer` to grade against",
        ),
        ({"solution": ["4"]}, "solution: ['4']; expected a text: a solution in training files"),
        (
            {"solution": "It is 4."},
            "solution: no complete \\boxed{}, ends 'It is 4.'; "
            "expected the final answer in its last \\boxed{}",
        ),
        (
            {"answer": "5", "solution": "It is \\boxed{4}."},
            "solution: ends 'It is \\\\boxed{4}.'; expected a text that the grader reads as '5'",
        ),
    ],
)
def test_bad_math_rows_name_field_value_and_expectation(change, expected):
    assert complaint(MATH | change, "math") == expected


@pytest.mark.parametrize(
    "answer", ["4", "4.0", "\\boxed{4}", "$4$", "4 apples", "(3, 4)", "St. Louis", "3 p.m. Monday"]
)
def test_an_answer_alone_is_not_changed(answer):
    assert parse_row({"problem": "2 + 2?", "answer": answer}, "math", "answer").answer == answer


@pytest.mark.parametrize(
    ("number", "text"), [(4, "4"), (4.0, "4"), (0, "0"), (-2.5, "-2.5"), (10**20, "1" + 20 * "0")]
)
def test_a_number_is_an_answer_as_its_text_is(number, text):
    assert parse_row({"problem": "2 + 2?", "answer": number}, "math", "answer").answer == text
    for task in ("exact", "contains"):
        assert parse_row({"question": "?", "answer": number}, task, "answer").answer == text
    assert parse_row({"question": "?", "answer": [number, "x"]}, "contains", "answer").answer == (
        f"{text}\nx"
    )


@pytest.mark.parametrize("requires", ["reference", "answer", "question"])
@pytest.mark.parametrize(
    "answer",
    ["2 + 2 = <<2+2=4>>4\n#### 4", "2 and 2 are 4. The answer is 4", "So \\boxed{4}"],
)
def test_a_whole_solution_in_the_answer_field_is_refused(answer, requires):
    assert complaint(MATH | {"answer": answer}, "math", requires) == (
        f"answer: a whole solution, ends {answer!r}; "
        "expected the final answer alone, and the rest in `solution`"
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"question": None}, "question: missing; expected the question"),
        ({"choices": None}, f"choices: None; {FORMS}"),
        (options("Mars", " "), f"choices: the text at index 1 is empty; {NOT_EMPTY}"),
        (options("Mars", 4), f"choices: {{'label': ['A', 'B'], 'text': ['Mars', 4]}}; {FORMS}"),
        (options("Mars"), f"choices: 2 labels, 1 texts; {ONE_EACH}"),
        (options("Mars", labels="A"), f"choices: 1 labels, 1 texts; {ONE_EACH}"),
        (options("Mars", "Sun", labels="AA"), f"choices.label: ['A', 'A']; {LABELS}"),
        (options("Mars", "Sun", labels="A2"), f"choices.label: ['A', '2']; {LABELS}"),
        (
            options("Mars", "\frac"),
            "choices.text: a form feed before 'rac': its backslash was not escaped in JSON; "
            "expected '\\\\frac'",
        ),
        ({"answerKey": "a"}, "answerKey: 'a'; expected one of A, B"),
        ({"answerKey": None}, "answerKey: missing; expected the right option's label"),
        ({"cot": None}, "cot: missing; expected a rationale in training files"),
        (
            {"cot": "The answer is the Sun (b)."},
            "cot: ends 'The answer is the Sun (b).'; expected a text that the grader reads as 'A'",
        ),
    ],
)
def test_bad_mc_rows_name_field_value_and_expectation(change, expected):
    assert complaint(MC | change, "mc") == expected
