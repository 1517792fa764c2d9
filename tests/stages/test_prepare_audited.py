"""`prepare` makes training rows of answers served earlier."""

import json
import re
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from citer.config.params import Params
from citer.config.sources import SourceFile, ToyParams
from citer.data.problems import Audit, Choice, Message, Problem, read_problems
from citer.errors import InputError
from citer.stages import paths, prepare
from citer.storage.schema import SPLITS
from citer.storage.tables import write_table
from tests.served import disagreement, served, write_served
from tests.stages.test_prepare import SHIPPED, project  # noqa: F401

TOY = ToyParams(tasks=("math",), sft=3, preference=0, validation=3, test=3)
WEEK = "data/own/week.parquet"


def params(**changes: object) -> Params:
    settings = {"toy": TOY, "audited": (WEEK,), **changes}
    return SHIPPED.model_copy(update={"prepare": SHIPPED.prepare.model_copy(update=settings)})


def preference(**changes: object) -> list[Problem]:
    prepare.run(params(**changes))
    return read_problems(paths.problems("preference"))


def test_an_answer_becomes_a_problem_of_the_preference_split() -> None:
    write_served(WEEK, [served("Why?", answer="4")])
    [problem] = preference()
    assert (problem.question, problem.reference, problem.answer) == ("Why?", "2 + 2", "4")
    assert problem.audits == (Audit(0, 5, True), Audit(2, 9, False))
    assert problem.token_ids == (5, 6, 7, 0)
    assert (problem.written_by, problem.source) == (None, "week.parquet")


@pytest.mark.parametrize("rejected", [True, False])
@pytest.mark.parametrize(("odds", "kept"), [(0.0999, False), (0.1, True), (0.9, True)])
def test_the_odds_decide_whatever_the_rule_decided(odds: float, kept: bool, rejected: bool) -> None:
    """A rule with another β may have rejected a token that counts as kept, and the other way."""
    found = [disagreement(2, slm=9, llm=8, rejected=rejected, odds=odds)]
    written = [5, 6, 8 if rejected else 9, 0]
    write_served(WEEK, [served("Why?", disagreements=found, token_ids=written)])
    [problem] = preference()
    assert problem.audits == (Audit(0, 5, True), Audit(2, 9, kept))


def test_conversations_and_options_return_as_they_were() -> None:
    choices = [{"label": "A", "text": "yes"}, {"label": "B", "text": "no"}]
    messages = [{"role": "user", "content": "Hello."}]
    write_served(WEEK, [served("Why?", choices=choices, messages=messages)])
    [problem] = preference()
    assert problem.choices == (Choice("A", "yes"), Choice("B", "no"))
    assert problem.messages == (Message("user", "Hello."),)


def test_truncated_answers_and_those_without_audits_are_left_out_and_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cut = [served(f"Cut {n}?", truncated=True) for n in range(2)]
    write_served(WEEK, [served("Why?"), *cut, served("Bare?", audited=[], disagreements=[])])
    assert [problem.question for problem in preference()] == ["Why?"]
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{WEEK}: 1 answers; left out: 2 truncated, 1 without audits" in printed


def test_two_answers_to_a_question_both_train_and_the_same_answer_trains_once() -> None:
    other = write_served("data/own/other.parquet", [served("Why?", token_ids=[5, 6, 8, 0])])
    write_served(WEEK, [served("Why?"), served("Why?")])
    both = preference(audited=(WEEK, other))
    assert [problem.token_ids for problem in both] == [(5, 6, 7, 0), (5, 6, 8, 0)]
    assert len({problem.problem_id for problem in both}) == 2


def test_a_question_of_another_split_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """The test split keeps its questions, so that no router is trained on them."""
    write_served(WEEK, [served("Why?")])
    preference()
    kept = {split: paths.problems(split).read_bytes() for split in SPLITS}
    taken = [
        problem.question for split in SPLITS for problem in read_problems(paths.problems(split))
    ]
    write_served(WEEK, [*map(served, taken)])
    assert [problem.question for problem in preference()] == ["Why?"]
    assert {split: paths.problems(split).read_bytes() for split in SPLITS} == kept
    assert "week.parquet: 9 duplicates left out" in " ".join(capsys.readouterr().out.split())


def test_a_split_without_questions_is_refused_as_before() -> None:
    with pytest.raises(InputError, match=r"^prepare: no problem in preference; expected one in"):
        preference(audited=())


def test_shares_without_preference_suffice_with_audited_answers() -> None:
    rows = [{"problem": f"Question {n}?", "solution": "\\boxed{4}"} for n in range(60)]
    Path("data/own/rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    shares = SHIPPED.prepare.shares.model_copy(update={"sft": 0.8, "preference": 0.0})
    write_served(WEEK, [served("Why?")])
    train = (SourceFile(path="data/own/rows.jsonl", task="math"),)
    assert [p.question for p in preference(toy=None, train=train, shares=shares)] == ["Why?"]


def test_a_task_without_other_rows_is_refused_with_its_row() -> None:
    write_served(WEEK, [served("Why?"), served("Which?", task="mc")])
    with pytest.raises(
        InputError, match=rf"^{WEEK}: row 2: task 'mc': expected math, the tasks of the other sour"
    ):
        preference()
    assert not paths.PROBLEMS.exists()


def test_other_tables_are_refused_in_one_line() -> None:
    """Among them the flat table that earlier versions wrote."""
    old = pa.table({"problem_id": ["a"], "position": pa.array([3], pa.int32())})
    write_table(Path(WEEK), old, old.schema, {})
    with pytest.raises(InputError) as caught:
        preference()
    assert re.fullmatch(
        rf"{WEEK}: columns are \['problem_id', 'position'\], expected \['problem_id', .*\] "
        r"\(a table of `citer generate --disagreements`\)",
        str(caught.value),
    )
    pd.DataFrame([served("Why?")]).to_parquet(WEEK)
    with pytest.raises(InputError, match=rf"^{WEEK}: not a table that citer wrote \(a table of"):
        preference()
    Path(WEEK).unlink()
    with pytest.raises(InputError, match=rf"^{WEEK}: no such file"):
        preference()
