"""The registered model's own code, around a deployment that only notes what it is asked."""

import pandas as pd
import pytest

from citer.data.problems import Problem
from citer.decoding.answer import Answer
from citer.decoding.policy import SLM_ALONE
from citer.errors import InputError
from citer.serving import Reply
from flows.serving import RoutedModel

MC = {"question": "A planet?", "choices": {"text": ["Mars", "the Sun"], "label": ["A", "B"]}}


class Noting:
    def replies(self, problems: list[Problem]) -> list[Reply]:
        self.asked = problems
        answer = Answer("", SLM_ALONE, (1, 2), (0.5, 0.5), (), truncated=False)
        return [Reply(problem, answer, problem.question) for problem in problems]


@pytest.fixture
def model() -> RoutedModel:
    made = RoutedModel()
    made.deployment = Noting()
    return made


def test_rows_are_answered_in_order_whatever_their_form(model: RoutedModel) -> None:
    answers = model.predict(None, ["1 + 1?", MC, {"problem": "2 + 2?"}])
    assert answers.completion.tolist() == ["1 + 1?", "A planet?", "2 + 2?"]
    assert [problem.task for problem in model.deployment.asked] == ["math", "mc", "math"]
    framed = model.predict(None, pd.DataFrame([{"problem": "2 + 2?"}, MC]))
    assert framed.completion.tolist() == ["2 + 2?", "A planet?"]


def test_an_answer_that_is_sent_along_is_not_looked_at(model: RoutedModel) -> None:
    """Off the main thread no timeout would end a comparison with it."""
    tower = "9^{9^{9^{9}}}"
    row = {"problem": "1 + 1?", "answer": tower, "solution": f"\\boxed{{{tower} + 1}}"}
    model.predict(None, [row, MC | {"answerKey": "C", "cot": "None of these."}])
    assert all(p.answer is p.reference is None for p in model.deployment.asked)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (3, "row 2: row: 3; expected `problem` (math) or `question` (multiple choice) in it"),
        (None, "row 2: row: None; expected `problem` (math)"),
        ({}, "row 2: row: {}; expected `problem` (math)"),
        ({"problem": 3}, "row 2: problem: 3; expected a text: the problem"),
        ({"question": "Which one?"}, "row 2: choices: None; expected"),
    ],
)
def test_a_row_that_cannot_be_asked_is_told_by_its_number(
    model: RoutedModel, row: object, complaint: str
) -> None:
    with pytest.raises(InputError) as caught:
        model.predict(None, ["1 + 1?", row])
    assert str(caught.value).startswith(complaint)
    assert not hasattr(model.deployment, "asked")
