"""The stage `rivals` with those that learn from the preference questions."""

from dataclasses import replace
from typing import NoReturn

import pyarrow.parquet as pq
import pytest
from citer.evaluation.rivals import LEARNERS, RIVALS
from citer.evaluation.rivals.rival import NothingToLearnError

from citer.config.params import Params
from citer.data.problems import LLM_ROW, read_problems, write_problems
from citer.errors import InputError
from citer.evaluation.methods import styles
from citer.sections import RivalName
from citer.stages import paths, rivals
from citer.stages.lessons import Preference
from tests.stages.conftest import decoding


@pytest.fixture
def asked(scored: Params) -> Params:
    """Enter a project with scored tokens whose questions are asked in validation and test, too."""
    own = read_problems(paths.referenced("preference"))
    for split in ("validation", "test"):
        rows = [replace(p, problem_id=f"{split}-{p.problem_id}", split=split) for p in own]
        write_problems(paths.referenced(split), rows, {})
    small = {
        "llm_fractions": (0.0, 0.2, 1.0),
        "gammas": (2,),
        "llm_floor": 0.0,
    }
    section = scored.evaluate.model_copy(update=small)
    few = scored.train.model_copy(update={"epochs": 2})
    asked = scored.model_copy(update={"evaluate": section, "train": few})
    return decoding(asked, slots=4, max_new_tokens=40)


def written() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths.RIVALS.iterdir()}


def test_every_rival_in_params_has_points_of_its_own_style(asked: Params, monkeypatch) -> None:
    monkeypatch.setattr("citer.evaluation.rivals.query.FOLDS", 2)  # of 12 questions
    rivals.run(asked)
    points = pq.read_table(paths.RIVALS / "points.parquet").to_pylist()
    assert [*styles(points)] == ["slm", "llm", *asked.evaluate.rivals]
    looks = [(style.colour, style.marker) for style in styles(points).values()]
    assert len({*looks}) == len(looks) - 1, "both models alone look the same"


def test_query_is_left_out_if_no_preference_question_can_be_graded(asked: Params, capsys) -> None:
    bare = [replace(p, answer=None) for p in read_problems(paths.referenced("preference"))]
    write_problems(paths.referenced("preference"), bare, {})
    rivals.run(only_query(asked))
    reason = "no preference question has an answer to grade against, and room for one"
    assert f"rivals: query is left out: {reason}\n" in capsys.readouterr().out
    points = pq.read_table(paths.RIVALS / "points.parquet").to_pylist()
    assert [*styles(points)] == ["slm", "llm"]


def test_query_learns_once_from_each_question_that_has_room(asked: Params, monkeypatch) -> None:
    """The second row of a question has the LLM's reference. Another question is too long."""
    asked_once: list[str] = []

    def seen(lessons: Preference) -> NoReturn:
        asked_once.extend(result.problem.problem_id for result in lessons.alone.slm.results)
        raise NothingToLearnError("these rows have no tokens")

    monkeypatch.setattr("citer.evaluation.rivals.query.examples", seen)
    rows = read_problems(paths.referenced("preference"))
    second = replace(rows[0], problem_id=rows[0].problem_id + LLM_ROW, written_by="llm")
    long = replace(rows[0], problem_id="long", question="Why? " * 400)
    write_problems(paths.referenced("preference"), [*rows, second, long], {})
    rivals.run(only_query(asked))
    assert sorted(asked_once) == sorted(row.problem_id for row in rows)


def only_query(params: Params) -> Params:
    listed = params.evaluate.model_copy(update={"rivals": ("query",)})
    return params.model_copy(update={"evaluate": listed})


def test_tokens_of_another_pair_are_refused_before_a_model_is_loaded(
    asked: Params, monkeypatch
) -> None:
    monkeypatch.setattr("citer.stages.rivals.open_pair", None)
    other = asked.pair.model_copy(update={"dtype": "float64"})
    with pytest.raises(InputError, match=f"^{paths.SLM_TOKENS}"):
        rivals.run(asked.model_copy(update={"pair": other}))


def test_the_registry_has_exactly_the_names_that_params_may_list() -> None:
    assert {*RIVALS, *LEARNERS} == {*RivalName.__args__}
