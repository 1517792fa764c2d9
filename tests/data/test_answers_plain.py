"""The tasks `exact`, `contains` and `json`."""

import json
from typing import Any

import pytest

from citer.data.importing import parse_row, recognised
from citer.data.problems import Problem
from citer.data.tasks import TASKS
from citer.data.tasks.grading import Grade, assess, grade
from citer.data.tasks.rows import RowError
from tests.tasks import prompt_text


def asked(task: str, answer: Any, **more: Any) -> Problem:
    return parse_row({"question": "Which?", "answer": answer} | more, task, "reference")


SAME = ["New York", " new\n york. ", "NEW YORK.", "New York ."]
OTHERS = ["", "NewYork", "It is New York", "New York..", "New York!"]


@pytest.mark.parametrize("completion", [*SAME, *OTHERS])
def test_exact_ignores_case_white_space_and_a_final_full_stop_alone(completion: str) -> None:
    assert grade(asked("exact", "New York"), completion) is (completion in SAME)


@pytest.mark.parametrize(
    ("answer", "completion", "right"),
    [
        ("don't", "don\u2019t", True),
        ('a "b"', "a \u201cb\u201d", True),
        ("\u00e9", "e\u0301", True),
        ("-3", "\u22123", True),
        ("e", "\u00e9", False),
        ("1914-1918", "1914\u20131918", True),
        ("T-shirt", "T\u2010shirt", True),
        ("10\u00b2", "102", False),
    ],
)
@pytest.mark.parametrize("task", ["exact", "contains"])
def test_quotes_and_accents_have_several_forms(
    task: str, answer: str, completion: str, right: bool
) -> None:
    assert grade(asked(task, answer), completion) is right
    assert grade(asked(task, completion), answer) is right


@pytest.mark.parametrize(
    ("answer", "completion", "right"),
    [
        ("Paris", "It is PARIS, not Rome.", True),
        ("Paris", "Parisian", False),
        ("New York", "in new\nyork.", True),
        ("New York", "New and York", False),
        ("3", "It is 3.", True),
        ("3", "13", False),
        ("3", "3.5", False),
        ("3", "1,003 or 3rd", False),
        ("3.5", "about 3.5%", True),
        ("C++", "I use C++.", True),
        (["Rousseau", "J. J. Rousseau"], "rousseau", True),
        (["red", "blue"], "It is blue", True),
        (["red", "blue"], "red-ish? No, green.", True),
        (["red", "blue"], "reddish", False),
        ("3", "It is -3.", False),
        ("3", "It is \u22123.", False),
        ("3", "-$3", False),
        ("-3", "It is -3.", True),
        ("3", "- 3", True),
        ("3", "7-3", True),
        ("3", "3/4", False),
        ("3/4", "about 3/4 of it", True),
        ("3", "3:30", False),
        ("3", "3kg", False),
        ("5", ".5", False),
        ("C", "I use C++.", False),
        ("C", "C#", False),
        ("C", "C or C++", True),
        ("C++", "C++17", True),
        ("can", "It can't.", False),
        ("can't", "It can\u2019t.", True),
        ("Paris", "Paris's streets", True),
        ("Hamlet", "It is _Hamlet_.", True),
        ("Hamlet", "__Hamlet__, of course", True),
        ("New York", "New **York**", True),
        ("New York", "(**New** York)", True),
        ("U.S. president", "a **U.S.** president", True),
        ("size", "max_size", False),
        ("23", "2*3 or 2**3", False),
        ("2 3", "2 * 3", False),
        ("_", "", False),
        ("1918", "1914\u20131918", True),
        ("1000", "about $1,000, or so", True),
        ("1,000", "**1000**", True),
        ("1,234,567.50", "1234567.50", True),
        ("1000", "1,000,5", False),
        ("125", "0,125", False),
        ("003", "1,003", False),
        ("中国", "我在中国", True),
        ("中国", "我在中央国家", False),
        ("2020", "2020年", True),
        ("アメリカ", "アメリカに", True),
        ("한국", "한국에서", True),
    ],
)
def test_contains_finds_whole_words(answer: str | list[str], completion: str, right: bool) -> None:
    assert grade(asked("contains", answer), completion) is right


@pytest.mark.parametrize(
    ("answer", "completion", "share"),
    [
        ({"a": 1, "b": [2]}, '{"b": [2.0], "a": 1}', 1),
        ({"a": 1, "b": [2]}, 'So:\n```json\n{"a": 1, "b": [2]}\n```\nDone {x}.', 1),
        ({"a": 1, "b": 2}, 'First {"a": 9}, then {"a": 1, "b": 2}.', 1),
        ({"a": 1, "b": 2}, '{"a": 1, "b": 3}', 1 / 2),
        ({"a": 1}, '{"a": 1, "b": 3}', 1 / 2),
        ({"a": 1, "b": 2}, '{"a": 1, "b": 2', 0),
        ({"a": True}, '{"a": 1}', 0),
        ({}, "{}", 1),
        ({}, '{"a": 1}', 0),
        ([1, 2], "[2, 1]", 0),
        ([1, 2], "{1} is [1, 2]", 1),
        ("5", "5", 1),
        ("5", "It is 5.", 0),
        ("5", "It is\n```json\n5\n```", 1),
        ('"red"', '"red"', 1),
        ({"a": 1}, '{"a": NaN}', 0),
        ({"a": 1}, '{"a": 2, "a": 1}', 1),
        ({"a": 1}, '{"a": 1} {a: 2}', 0),
        ({"a": 1}, '{"a": 1}. No: {"a": 2', 0),
        ({"a": 1}, '{"a": 1} (see [2])', 0),
        ({"a": 1}, 'See [x]: {"a": 1} (sure)', 1),
        ({"a": 1}, '```json\n{"a": 1}\n```\nRun:\n```bash\nls [1]\n```', 1),
        ({"a": 1}, '```json\n{"a": 1}\n```\n```python\nprint([1])\n```\n', 1),
        ({"a": 1}, '```json\n{"a": 1}\n```\n```json\n{"a": 2}\n```', 0),
        ({"a": 1}, '```json\n{"a": 1}\n```\n```\n{"a": 2}\n```', 1),
        ({"a": 1}, '```json\n{"a": 1}\n```\nNo:\n```json\n{"a": 2', 0),
        ({"a": 1}, '```JSON\n{"a": 1}', 1),
        ({"a": 1}, '```{"a": 1}```', 1),
        ({"\u00e9": "\u00e9"}, '{"e\u0301": "e\u0301"}', 1),
    ],
)
def test_json_is_compared_by_value(answer: Any, completion: str, share: float) -> None:
    assert assess(asked("json", answer), completion) == Grade(share == 1, share)


def test_the_reference_is_the_answer_unless_the_row_has_another() -> None:
    assert asked("exact", " Rome ").reference == "Rome"
    assert asked("contains", ["Rome", "Roma"]).reference == "Rome"
    assert asked("json", {"b": 1, "a": "é"}).reference == '{"b": 1, "a": "é"}'
    assert asked("contains", "Rome", reference="I say Rome.").reference == "I say Rome."


@pytest.mark.parametrize(
    ("task", "row", "complaint"),
    [
        ("exact", {"answer": True}, "answer: True; expected a text: the answer"),
        ("exact", {"answer": 10**5000}, "answer: int too long to print; expected a text"),
        ("exact", {}, "answer: missing; expected a text: the answer"),
        ("exact", {"answer": " "}, "answer: ' '; expected a text: the answer"),
        ("contains", {"answer": []}, "answer: []; expected a text, or a list of texts"),
        ("contains", {"answer": ["a", ""]}, "answer: ['a', '']; expected a text, or a list"),
        ("json", {"answer": "red"}, "answer: 'red'; expected a JSON value, or a text that is"),
        ("json", {"answer": "[" * 10**5}, "answer: '[[["),
        ("json", {"answer": float("nan")}, "answer: nan; expected a JSON value"),
        ("json", {"answer": {"a": b"x"}}, "answer: {'a': b'x'}; expected a JSON value"),
        ("exact", {"answer": "a", "reference": "b"}, "reference: ends 'b'; expected a text that"),
        ("exact", {"question": "", "answer": "b"}, "question: ''; expected a text"),
    ],
)
def test_a_wrong_row_is_refused_with_its_field(task: str, row: dict, complaint: str) -> None:
    with pytest.raises(RowError) as caught:
        parse_row({"question": "Which?"} | row, task, "reference")
    assert str(caught.value).startswith(complaint)


def test_a_question_alone_can_be_answered() -> None:
    row = {"question": "Say hello.", "task": "contains"}
    problem = parse_row(row, recognised(row, [*TASKS]).task, "question")
    assert (problem.task, problem.answer, problem.reference) == ("contains", None, None)
    assert prompt_text(problem) == "Say hello.\n"


def test_a_row_names_its_task() -> None:
    row = json.loads('{"problem": "2 + 2?", "question": "?"}')
    assert [
        recognised(row, [*TASKS]).task,
        recognised(row | {"task": "number"}, [*TASKS]).task,
    ] == ["math", "number"]
    for wrong in ("maths", 3, ["mc"]):
        with pytest.raises(RowError, match=r"^task: .*expected 'math', "):
            recognised(row | {"task": wrong}, [*TASKS])
