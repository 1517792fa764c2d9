"""The stage `prepare`, with rows that have no reference or no answer."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from citer.config.params import Params
from citer.config.sources import SourceFile
from citer.data.tasks.own import own_task
from citer.errors import InputError
from citer.stages import prepare
from tests.stages.sections import with_section
from tests.stages.test_prepare import SHIPPED, prepared, with_settings

SOLUTION = {"solution": "It is \\boxed{4}."}
ARC = {"id": "a", "choices": {"text": ["x", "y"], "label": ["A", "B"]}}
OWN = """
class Own:
    def problem(self, row):
        return {"question": row["q"], "answer": row.get("a"), "reference": row.get("r")}

    def prompt(self, problem):
        return problem.question
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data/own").mkdir(parents=True)
    own_task.cache_clear()


def file(name: str, rows: Sequence[dict], task: str = "math") -> SourceFile:
    path = Path("data/own") / name
    path.write_text("\n".join(map(json.dumps, rows)))
    return SourceFile(path=path.as_posix(), task=task)


def numbered(field: str, count: int, **fields: object) -> list[dict]:
    return [{field: f"Question {n}?"} | fields for n in range(count)]


def params(source: str, against: str, **files: Sequence[SourceFile]) -> Params:
    return with_settings(with_section(SHIPPED, "prepare", toy=None, **files), source, against)


@pytest.mark.parametrize("source", ["llm", "auto", "both"])
@pytest.mark.parametrize("against", ["llm", "auto"])
def test_rows_with_a_question_alone_fill_every_split(source: str, against: str) -> None:
    prepare.run(params(source, against, train=(file("t", numbered("problem", 60)),)))
    rows = [problem for split in prepared().values() for problem in split]
    assert len(rows) == 60
    assert {(p.reference, p.answer) for p in rows} == {(None, None)}


MISSING = r"^data/own/t:\d+: solution: missing; expected a solution in training files$"
UNGRADED = MISSING.replace("$", ", or elsewhere an `answer` to grade against$")


@pytest.mark.parametrize(
    ("source", "against", "field", "complaint"),
    [
        ("given", "llm", {}, UNGRADED),
        ("given", "auto", {"answer": "4"}, MISSING),
        ("llm", "answers", {}, UNGRADED),
        ("auto", "answers", {}, UNGRADED),
    ],
)
def test_a_dealt_row_needs_what_its_split_needs(
    source: str, against: str, field: dict, complaint: str
) -> None:
    settings = params(source, against, train=(file("t", numbered("problem", 60, **field)),))
    with pytest.raises(InputError, match=complaint):
        prepare.run(settings)
    with pytest.raises(InputError, match="no problem in ") as caught:
        prepare.run(with_section(settings, "prepare", on_bad_row="skip"))
    learning = "sft, preference" in str(caught.value)
    assert learning == (source == "given")
    assert ("validation, test" in str(caught.value)) == (not learning)


def test_a_file_of_test_questions_needs_answers_if_they_are_what_is_compared() -> None:
    train, test = file("t", numbered("problem", 40, **SOLUTION)), file("x", [{"problem": "2?"}])
    with pytest.raises(InputError, match=r"^data/own/x:1: solution: missing; .* elsewhere an `"):
        prepare.run(params("auto", "answers", train=(train,), test=(test,)))
    prepare.run(params("auto", "auto", train=(train,), test=(test,)))
    assert [p.answer for p in prepared()["test"]] == [None]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"problem": "2?", "solution": "It is 4."}, "solution: no complete"),
        ({"problem": "2?", "answer": True}, "answer: True; expected a text"),
        ({"problem": "2?", "solution": "\\boxed{4}", "answer": "5"}, "solution: ends"),
    ],
)
def test_what_a_row_has_is_checked_even_if_it_needs_nothing(row: dict, complaint: str) -> None:
    with pytest.raises(InputError, match=f"^data/own/t:1: {complaint}"):
        prepare.run(params("llm", "llm", train=(file("t", [row]),)))


def test_the_table_counts_what_is_missing_and_a_line_says_what_follows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bare, whole = numbered("problem", 3), [{"problem": "2 + 2?"} | SOLUTION]
    train = file("t", numbered("problem", 40, answer="4"))
    validation, test = file("v", [*bare, *whole]), file("x", [{"problem": "3?", "answer": "3"}])
    prepare.run(params("llm", "auto", train=(train,), validation=(validation,), test=(test,)))
    shown = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    assert ["validation", "math", "v", "4", "3", "3"] in rows
    assert ["test", "math", "x", "1", "1", "0"] in rows
    assert (
        "3 of 5 questions have no answer; an answer will count as right if it is the LLM's" in shown
    )


def test_with_every_answer_nothing_is_said_of_the_llms(capsys: pytest.CaptureFixture[str]) -> None:
    prepare.run(params("auto", "auto", train=(file("t", numbered("problem", 60, **SOLUTION)),)))
    assert "is the LLM's" not in capsys.readouterr().out


def test_open_questions_have_a_reference_or_none(capsys: pytest.CaptureFixture[str]) -> None:
    rows = numbered("question", 60)
    rows[::2] = [row | {"reference": "Because."} for row in rows[::2]]
    prepare.run(params("auto", "auto", train=(file("t", rows, "open"),)))
    made = [problem for split in prepared().values() for problem in split]
    assert {p.task for p in made} == {"open"}
    assert sum(p.reference == "Because." for p in made) == 30
    assert {p.answer for p in made} == {None}
    with pytest.raises(InputError, match=r"^data/own/t:\d+: answer: not read by the task open; "):
        prepare.run(params("auto", "answers", train=(file("t", rows, "open"),)))
    with pytest.raises(InputError, match=r"^data/own/t:\d+: reference: missing; expected a right "):
        prepare.run(params("given", "auto", train=(file("t", rows, "open"),)))


def test_a_task_of_the_user_needs_no_grader() -> None:
    Path("data/own/own.py").write_text(OWN)
    task = "python:data/own/own.py:Own"
    prepare.run(params("given", "llm", train=(file("t", numbered("q", 60, r="R"), task),)))
    assert {p.reference for p in prepared()["sft"]} == {"R"}
    with pytest.raises(
        InputError, match=r"^data/own/t:1: answer: problem\(\) made 'A'; expected a me"
    ):
        prepare.run(params("given", "llm", train=(file("t", numbered("q", 60, a="A"), task),)))
    rows = numbered("q", 60, r="R")
    with pytest.raises(
        InputError,
        match=r"^data/own/t:\d+: answer: not read by the task Own; expected a task .* llm$",
    ):
        prepare.run(params("given", "answers", train=(file("t", rows, task),)))


def test_too_few_questions_for_a_promise_of_fidelity_are_not_said_to_be_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepare.run(params("auto", "auto", train=(file("t", numbered("problem", 60)),)))
    (warning,) = (each for each in capsys.readouterr().out.splitlines() if "certify" in each)
    assert warning.endswith("needs 63")
    assert "right" not in warning
