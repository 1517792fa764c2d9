"""The code of a registered model, around a deployment that only records its questions."""

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from citer.data.problems import Problem
from citer.decoding.answer import Answer
from citer.decoding.policy import SLM_ALONE
from citer.errors import InputError
from citer.models.sampling import ALL_GREEDY
from citer.serving.deployment import Reply
from flows.tracking.serving import RoutedModel

ROOT = Path(__file__).parents[3]
MC = {"question": "A planet?", "choices": {"text": ["Mars", "the Sun"], "label": ["A", "B"]}}


COUNTED = {"tokens": 2} | dict.fromkeys(
    ("llm_tokens", "visits", "audited", "disagreed", "rejected"), 0
)


class Noting:
    tasks = ("math", "mc")

    def check(self, problem: Problem) -> None:
        if problem.question == "long":
            raise InputError("question: 9 tokens, expected at most 8")

    def replies(self, problems: list[Problem], **settings: Any) -> list[Reply]:
        self.problems_seen, self.settings = problems, settings
        answer = Answer("", SLM_ALONE, (1, 2), (0.5, 0.5), (), truncated=False)
        return [Reply(problem, answer, problem.question) for problem in problems]


@pytest.fixture
def model() -> RoutedModel:
    made = RoutedModel()
    made.deployment, made.sampler = Noting(), ALL_GREEDY
    return made


def test_rows_in_every_form_are_answered_in_order(model: RoutedModel) -> None:
    answers = model.predict(None, ["1 + 1?", MC, {"problem": "2 + 2?"}])
    assert answers.completion.tolist() == ["1 + 1?", "A planet?", "2 + 2?"]
    assert [problem.task for problem in model.deployment.problems_seen] == ["math", "mc", "math"]
    framed = model.predict(None, pd.DataFrame([{"problem": "2 + 2?"}, MC]))
    assert framed.completion.tolist() == ["2 + 2?", "A planet?"]


def test_rows_are_of_the_routers_tasks_and_a_text_is_of_the_first(model: RoutedModel) -> None:
    model.deployment.tasks = ("contains", "number")
    rows = [{"problem": "2 + 2?"}, {"question": "Who?"}, {"task": "math", "problem": "2?"}]
    answers = model.predict(None, [*rows, "1 + 1?"])
    tasks = [problem.task for problem in model.deployment.problems_seen]
    assert tasks == ["number", "contains", "contains"]
    assert answers.error[2] == "task: 'math'; expected 'contains', 'number'"


def test_a_row_that_names_a_users_task_is_answered(
    model: RoutedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data/own").mkdir(parents=True)
    shutil.copy(ROOT / "docs/examples/functions.py", "data/own")
    task = "python:data/own/functions.py:Functions"
    row = {"text": "add(a, b)"}
    model.deployment.tasks = ("math", task)
    answers = model.predict(None, [row | {"task": task}, row | {"task": f"{task}s"}, row])
    assert [problem.task for problem in model.deployment.problems_seen] == [task]
    assert answers.error[1] == f"task: '{task}s'; expected 'math', '{task}'"
    assert answers.error[2].endswith(f"an object with `task` ({task}), or a `task`")
    model.deployment.tasks = (task,)
    answers = model.predict(None, [row, "add(a, b)"])
    assert [problem.task for problem in model.deployment.problems_seen] == [task]
    assert answers.error[1].startswith("row: 'add(a, b)'; expected a JSON object")


def test_a_given_answer_is_ignored(model: RoutedModel) -> None:
    """Grading it could hang, because there is no timeout outside the main thread."""
    tower = "9^{9^{9^{9}}}"
    row = {"problem": "1 + 1?", "answer": tower, "solution": f"\\boxed{{{tower} + 1}}"}
    answers = model.predict(None, [row, MC | {"answerKey": "C", "cot": "None of these."}])
    assert answers.error.isna().all()
    assert [(p.answer, p.reference) for p in model.deployment.problems_seen] == [(None, None)] * 2


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (3, "row: 3; expected a JSON object"),
        (None, "row: None; expected a JSON object"),
        ({}, "row: {}; expected `problem` (math)"),
        ({"problem": 3}, "problem: 3; expected a text: the problem"),
        ({"question": "Which one?"}, "choices: None; expected"),
        ("\ud800", "problem: '\\ud800', half a character; expected"),
        ("long", "question: 9 tokens"),
    ],
)
def test_a_refused_row_has_its_reason_and_the_other_rows_are_answered(
    model: RoutedModel, row: object, complaint: str
) -> None:
    bad, good = model.predict(None, [row, "1 + 1?"]).to_dict("records")
    assert bad.pop("error").startswith(complaint)
    assert set(bad.values()) == {None}
    assert good == {"completion": "1 + 1?", "truncated": False, **COUNTED, "error": None}
    assert [problem.question for problem in model.deployment.problems_seen] == ["1 + 1?"]


def test_a_call_without_rows_has_no_answers(model: RoutedModel) -> None:
    assert len(model.predict(None, [])) == 0


def test_an_internal_error_is_reported_in_one_sentence_without_a_path(model: RoutedModel) -> None:
    def fail(problems: list[Problem], **settings: Any) -> list[Reply]:
        raise RuntimeError(f"at {__file__}")

    model.deployment.replies = fail
    with pytest.raises(MlflowException) as caught:
        model.predict(None, ["1 + 1?"])
    expected = "the call failed, no question was answered: RuntimeError, see the server's log"
    assert caught.value.message == expected
