"""Questions of traffic that no stage can use."""

from dataclasses import replace

import pytest

from citer.config.params import SHIPPED, Params, load_params
from citer.data.problems import Message, Problem
from citer.errors import InputError
from citer.stages.traffic import usable
from tests.stages.conftest import ROOT
from tests.tiny import MATH


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> Params:
    monkeypatch.chdir(ROOT)
    return load_params(SHIPPED)


def asked(key: str, split: str, question: str, **changes: object) -> Problem:
    row = replace(MATH, problem_id=key, split=split, question=question, source="traffic")
    return replace(row, **{"reference": None, "answer": None, **changes})


def long(words: int) -> str:
    return "Why? " * words


def kept(params: Params, *problems: Problem) -> list[str]:
    splits = usable({"sft": problems[:1], "preference": problems[1:]}, params)
    return [problem.problem_id for rows in splits.values() for problem in rows]


def test_what_training_has_no_room_for_is_left_out_and_counted(
    embedded: Params, capsys: pytest.CaptureFixture[str]
) -> None:
    """The context is 512 tokens, an answer has 128. A rollout needs room behind a reference."""
    rows = (
        asked("0", "sft", long(70)),
        asked("1", "preference", "Why?"),
        asked("2", "preference", long(70)),
        asked("3", "preference", "Why?", reference=long(90)),
        asked("4", "preference", long(10**5)),
        asked("5", "preference", "Why?", messages=(Message("system", "Be brief."),)),
    )
    assert kept(embedded, *rows) == ["0", "1"]
    assert "4 of 6 questions of traffic are left out" in " ".join(capsys.readouterr().out.split())


def test_a_split_of_which_nothing_is_left_is_refused(embedded: Params) -> None:
    rows = asked("0", "sft", "Why?"), asked("1", "preference", long(10**4))
    with pytest.raises(InputError, match=r"^traffic: no question of preference can be used; exp"):
        kept(embedded, *rows)


def test_rows_of_files_are_not_left_out(embedded: Params) -> None:
    """`probe` names their file and line."""
    assert kept(embedded, replace(asked("0", "sft", long(10**4)), source="own.jsonl")) == ["0"]
