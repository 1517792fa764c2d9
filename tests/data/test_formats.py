"""Rows of the published benchmarks, as their authors shape them."""

import pytest

from citer.data.importing import parse_row, recognised
from citer.data.problems import Choice
from citer.data.tasks import TASKS
from citer.data.tasks.grading import grade
from citer.data.tasks.rows import RowError

GSM8K = {
    "question": "Weng earns $12 an hour. How much for 90 hours?",
    "answer": "She earns 12 * 90 = $<<12*90=1080>>1,080.\nThat is all.\n#### 1,080",
}
MATH = {
    "problem": "What is $\\frac{1}{2}$ of $3$?",
    "level": "Level 2",
    "type": "Prealgebra",
    "solution": "Multiply: $\\frac{1}{2} \\cdot 3 = \\boxed{\\frac{3}{2}}$.",
}
COMMONSENSEQA = {
    "id": "1afa02df02c908a558b4036e80242fac",
    "question": "A revolving door serves as a security measure at a what?",
    "question_concept": "revolving door",
    "choices": {
        "label": ["A", "B", "C", "D", "E"],
        "text": ["bank", "library", "department store", "mall", "new york"],
    },
    "answerKey": "A",
}
ARC = {
    "id": "MCAS_2004_8_27",
    "question": "Which of these is a gas?",
    "choices": {"text": ["ice", "steam", "snow"], "label": ["1", "2", "3"]},
    "answerKey": "2",
}
MMLU = {
    "question": "Which text is the motto?",
    "subject": "world_religions",
    "choices": ['"Know thyself"', "it's 'so'", "first line\nsecond line", "[a, b]"],
    "answer": 2,
}
NAMED = {"gsm8k": GSM8K, "math": MATH, "commonsenseqa": COMMONSENSEQA, "arc": ARC, "mmlu": MMLU}
FORMAT = {"commonsenseqa": "mc", "arc": "mc"}  # of those whose rows are in a task's own format
HUB = [pytest.param(name, row, id=name) for name, row in NAMED.items()]


def read(row, task=None, requires="reference"):
    kind = recognised(row, [task] if task else [*TASKS])
    return parse_row(row, kind.task, requires, format=kind.format)


def complaint(row, task=None, requires="reference"):
    with pytest.raises(RowError) as caught:
        read(row, task, requires)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("name", "row"), HUB)
def test_each_benchmark_is_recognised_by_its_fields(name, row):
    task, format = recognised(row, [*TASKS])
    assert format.name == FORMAT.get(name, name)
    assert task == ("math" if name in ("gsm8k", "math") else "mc")


@pytest.mark.parametrize(("name", "row"), HUB)
def test_a_named_and_a_recognised_task_give_the_same_problem(name, row):
    problem = read(row, requires="answer")
    assert problem == read(row, problem.task, requires="answer")


def test_rows_in_the_tasks_own_format_are_the_same_with_and_without_a_format():
    for task in TASKS.values():
        assert read(task.example, task.name) == parse_row(task.example, task.name, "reference")


def test_gsm8k_loses_its_calculator_marks_and_gets_a_box():
    problem = read(GSM8K)
    assert problem.question == GSM8K["question"]
    assert problem.answer == "1,080"
    assert problem.reference == (
        "She earns 12 * 90 = $1,080.\nThat is all.\nThe final answer is: \\boxed{1,080}"
    )
    assert grade(problem, "So \\boxed{1080}")
    assert read({"question": "2?", "answer": "#### -3"}).reference.endswith("\\boxed{-3}")


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("So $x = \\boxed{\\text{Monday}}$.", "\\text{Monday}"),
        ("It takes $\\boxed{12\\text{ cm}^2}$.", "12\\text{ cm}^2"),
        ("Thus $\\boxed 9$ is it.", "9"),
        ("Thus $\\boxed3$.", "3"),
        ("Thus $\\fbox{\\frac{1}{7}}$.", "\\frac{1}{7}"),
        ("$\\boxed{1}$, or rather $\\boxed{\\dfrac{1}{\\sqrt{2}}}$", "\\dfrac{1}{\\sqrt{2}}"),
    ],
)
def test_math_has_its_answer_in_its_last_box(solution, answer):
    problem = read(MATH | {"solution": solution})
    assert problem.answer == answer
    assert read(MATH | {"solution": solution, "answer": answer}).answer == answer


@pytest.mark.parametrize(("row", "key"), [(COMMONSENSEQA, "A"), (ARC, "2"), (MMLU, "C")])
def test_options_without_a_rationale_have_an_answer_alone(row, key):
    problem = read(row, requires="question")
    assert (problem.reference, problem.answer) == (None, key)
    assert grade(problem, f"The answer is ({key}).")
    assert complaint(row) == "cot: missing; expected a rationale in training files"
    assert read(row | {"cot": f"See. ({key})"}).reference == f"See. ({key})"


@pytest.mark.parametrize("answer", [2, "2", "C"])
def test_the_answer_of_mmlu_is_an_index_or_a_letter(answer):
    problem = read(MMLU | {"answer": answer}, requires="answer")
    assert problem.answer == "C"
    assert problem.choices == tuple(map(Choice, "ABCD", MMLU["choices"]))
    assert grade(problem, "The answer is first line\nsecond line.")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (GSM8K | {"answer": "#### 4\nor 5"}, "answer: ends '#### 4\\nor 5'; expected a solution w"),
        (COMMONSENSEQA | {"answerKey": ""}, "answerKey: missing; expected the right opt"),
        (MMLU | {"answer": 4}, "answer: 4; expected an index 0-3 or a letter A-D"),
        (MMLU | {"answer": True}, "answer: True; expected an index 0-3 or a lett"),
        (MMLU | {"answer": None}, "answer: missing; expected the right option's"),
        (MMLU | {"choices": ["4"]}, "choices: ['4']; expected a list of 2 to 5 texts"),
        (
            MMLU | {"choices": "['4' '5']"},  # as numpy writes it
            "choices: ['45']; expected a list of 2 to 5 texts, with commas between them",
        ),
        (
            ARC | {"choices": "{'text': array(['4']), 'label': array(['A'])}"},
            "choices: \"{'text': array(['4']), 'label': array(['A'])}\"; expected JSON or a Python "
            "literal, no numpy array(...)",
        ),
        (MMLU | {"choices": ["a", "b", "", "d"]}, "choices: the text at index 2 is empty; "),
        (MMLU | {"choices": ["4", 5]}, "choices: ['4', 5]; expected a list of 2 to 5"),
        (ARC | {"question": "One\0"}, "question: a NUL character at 3; expected text"),
    ],
)
def test_bad_rows_name_the_field_of_their_own_format(row, expected):
    assert complaint(row).startswith(expected)


def test_an_answer_of_thousands_of_digits_is_no_gsm8k_row() -> None:
    row = {"question": "9^9^9?", "answer": 10**5000}
    assert recognised(row, [*TASKS]).task == "mc"


def test_a_question_with_a_plain_answer_is_no_gsm8k_row():
    row = {"question": "The capital of France?", "answer": "Paris"}
    assert complaint(row).startswith("choices: None; expected")
    expected = "expected `problem` (math) or `question` and `answer` with #### (gsm8k)"
    assert complaint(row, "math").endswith(expected)


def test_a_huge_row_is_named_in_one_short_line():
    for row in ({"text": "x" * 100_000}, GSM8K | {"answer": "9" * 100_000}):
        assert len(complaint(row, "math")) < 600
    assert read(GSM8K | {"question": "x" * 100_000}).answer == "1,080"


def test_a_conversation_stands_for_the_question_of_the_tasks_own_format():
    messages = [{"role": "user", "content": "2 + 2?"}]
    assert read({"messages": messages, "solution": "\\boxed{4}"}, "math").question == "2 + 2?"
    row = {key: ARC[key] for key in ("id", "choices", "answerKey")} | {"messages": messages}
    plain = read(ARC | {"question": "2 + 2?"}, requires="answer")
    assert read(row, requires="answer") == read(row, "mc", "answer") == plain
