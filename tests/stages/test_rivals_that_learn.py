"""The stage `rivals` with the bound that learns from the preference questions, and real heads."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from citer.config.params import Params
from citer.data.problems import LLM_ROW, Problem, read_problems, write_problems
from citer.errors import InputError
from citer.evaluation.bounds import BOUNDS, LEARNS, Alone, NothingToLearnError
from citer.evaluation.candidates import STYLES
from citer.evaluation.methods import styles
from citer.evaluation.points import rule_of
from citer.evaluation.study import Study
from citer.models.bundle import read_bundle, write_bundle
from citer.sections import BoundName
from citer.stages import paths, rivals
from tests.stages.sections import with_section

ONLY_QUERY = {"bounds": ("query",), "candidates": ("speculative",)}


@pytest.fixture
def asked(scored: Params) -> Params:
    """Enter a project with scored tokens whose questions are asked in validation and test, too."""
    own = read_problems(paths.referenced("preference"))
    for split in ("validation", "test"):
        rows = [replace(p, problem_id=f"{split}-{p.problem_id}", split=split) for p in own]
        write_problems(paths.referenced(split), rows, {})
    small = {
        "llm_fractions": (0.0, 0.2, 1.0),
        "risks": (0.9,),
        "audits": (0.25,),
        "gammas": (2,),
        "llm_floor": 0.0,
    }
    asked = with_section(with_section(scored, "evaluate", **small), "train", epochs=2)
    return with_section(asked, "decode", slots=4, max_new_tokens=40)


def test_every_shared_scorer_and_bound_has_points_of_its_methods_style(
    asked: Params, monkeypatch
) -> None:
    monkeypatch.setattr("citer.evaluation.bounds.FOLDS", 2)  # of 12 questions
    monkeypatch.setattr("citer.evaluation.choice.MOST", 1.0)  # no rule loses too much
    rivals.run(asked)
    points = pq.read_table(paths.RIVALS / "points.parquet").to_pylist()
    found = styles(points)
    shared = [name for name in STYLES if name not in ("router", "audited")]
    assert found.keys() == {"slm", "llm", *asked.evaluate.bounds, *shared}
    assert {name: found[name] for name in shared} == {name: STYLES[name] for name in shared}
    common, _ = read_bundle(paths.COMMON)
    tried = {rule_of(row).by for row in points if row["method"] in shared}
    assert tried == {"", "entropy", "probability", *common.heads}


def test_query_is_left_out_if_no_preference_question_can_be_graded(asked: Params, capsys) -> None:
    bare = [replace(p, answer=None) for p in read_problems(paths.referenced("preference"))]
    write_problems(paths.referenced("preference"), bare, {})
    rivals.run(with_section(asked, "evaluate", **ONLY_QUERY))
    reason = "no preference question has an answer to grade against"
    assert f"rivals: query is left out: {reason}\n" in capsys.readouterr().out
    points = pq.read_table(paths.RIVALS / "points.parquet").to_pylist()
    assert {*styles(points)} == {"slm", "llm", "speculative"}


def test_query_learns_once_from_each_question(asked: Params, monkeypatch) -> None:
    """The second row of a question has the LLM's reference."""
    asked_once: list[str] = []

    alone_on = Study.alone_on

    def seen(study: Study, problems: Sequence[Problem]) -> Alone:
        if problems is study.validation or problems is study.test:
            return alone_on(study, problems)
        asked_once.extend(problem.problem_id for problem in problems)
        raise NothingToLearnError("these rows have no tokens")

    monkeypatch.setattr(Study, "alone_on", seen)
    rows = read_problems(paths.referenced("preference"))
    second = replace(rows[0], problem_id=rows[0].problem_id + LLM_ROW, written_by="llm")
    write_problems(paths.referenced("preference"), [*rows, second], {})
    rivals.run(with_section(asked, "evaluate", **ONLY_QUERY))
    assert sorted(asked_once) == sorted(row.problem_id for row in rows)


def test_heads_and_tokens_of_another_pair_are_refused_before_a_model_is_loaded(
    asked: Params, monkeypatch
) -> None:
    monkeypatch.setattr("citer.stages.asked.open_pair", None)
    other = with_section(asked, "pair", dtype="float64")
    with pytest.raises(InputError, match=r"^data/routers/common: its dtype is float32"):
        rivals.run(other)
    router, card = read_bundle(paths.COMMON)
    write_bundle(paths.COMMON, router, card | {"dtype": "float64"})
    with pytest.raises(InputError, match=f"^{paths.SLM_TOKENS}"):
        rivals.run(other)


def test_the_registry_has_exactly_the_names_that_params_may_list() -> None:
    assert {*BOUNDS, LEARNS} == {*BoundName.__args__}
