"""The field `citer.answer`: a right answer as the task's own rows give it, or one clear line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citer.data.problems import Problem
from citer.errors import InputError
from citer.serving.server.fields import Chat, read

TASKS = ["math", "number", "exact", "contains", "json"]


def asked(answer: object, task: str = "math", tasks: list[str] = TASKS) -> Problem:
    body = {"model": "m", "messages": [{"role": "user", "content": "How many?"}]}
    body["citer"] = {"task": task, "answer": answer}
    return read(Chat, json.dumps(body).encode()).problem(tasks)


@pytest.mark.parametrize(
    ("task", "given_answer", "read_as"),
    [
        ("math", " 1,080 ", "1,080"),
        ("exact", "Paris", "Paris"),
        ("contains", "Paris,  France", "Paris, France"),
        ("json", '{"a": [1,2]}', '{"a": [1, 2]}'),
    ],
)
def test_it_is_the_answer_of_the_problem(task: str, given_answer: str, read_as: str) -> None:
    found, without = asked(given_answer, task), asked(None, task)
    assert found.answer == read_as
    assert without.answer is None
    assert found.problem_id == without.problem_id


@pytest.mark.parametrize(
    ("task", "answer", "complaint"),
    [
        ("math", "", "citer.answer: missing; "),
        ("math", "   ", "citer.answer: '   '; expected a text: the final answer"),
        ("math", "2 + 2 = 4. So it is\n#### 4", "citer.answer: a whole solution, ends "),
        ("math", "9" * 401, "citer.answer: a whole solution, ends "),
        ("exact", "", "citer.answer: missing; expected a text: the answer"),
        ("json", "{", "citer.answer: '{'; expected a JSON value, or a text that is JSON"),
        ("open", "Because.", "citer.answer: not read by the task open; expected a task with"),
        ("math", 4, "citer.answer: 4: "),
        ("math", "\0", "citer.answer: "),
        ("contains", "[" * 10_001, "citer.answer: '[[["),
    ],
)
def test_a_bad_one_is_refused_in_one_line(task: str, answer: object, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        asked(answer, task, [*TASKS, "open"])
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)


@given(st.text() | st.text("0123456789\\{}^#.<>/ boxed"), st.sampled_from(TASKS))
def test_any_text_is_an_answer_or_is_refused(answer: str, task: str) -> None:
    try:
        complaint = "" if asked(answer, task).answer else "no answer"
    except InputError as error:
        complaint = str(error)
    assert not complaint or complaint.startswith("citer.answer: ")
    assert "\n" not in complaint
