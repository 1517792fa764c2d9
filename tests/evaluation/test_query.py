"""Query-level routing: labels, thresholds and mixtures against values computed by hand."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from citer.decoding.answer import Work
from citer.evaluation.bounds import (
    FRACTIONS,
    Alone,
    Lessons,
    _held_out,
    bound_runs,
    examples,
    mixtures,
    query_bound,
)
from citer.evaluation.cost import Prices
from citer.evaluation.points import outcome_rows
from citer.evaluation.study import Study
from citer.evaluation.sweep import Line
from citer.models.router import EXTRAS
from citer.rule import SLM, Rule
from tests.studied import changed

WIDTH = 3 + EXTRAS


def lessons_of(alone: Alone) -> Lessons:
    """The prompts of all questions of a run, and of one that no model was asked."""
    ids = [result.problem.problem_id for result in alone.slm.results]
    feature_QF = np.random.default_rng(0).normal(size=(len(ids) + 1, WIDTH))
    return Lessons(feature_QF.astype(np.float16), np.array([*ids, "other"], object), alone)


@pytest.fixture(scope="module")
def alone(study: Study) -> Alone:
    return study.alone_on(study.test)


def test_a_bound_without_data_is_left_out_with_its_reason(study, alone, capsys):
    lessons = lessons_of(Alone(alone.slm, alone.slm))
    listed = changed(study, bounds=("query", "random"))
    assert [run.method for run in bound_runs(listed, alone, lambda: lessons)] == ["random"]
    total = len(alone.slm.results)
    said = f"rivals: query is left out: the LLM's answer is needed for 0 of {total} preference "
    assert said in capsys.readouterr().out


def test_the_bound_that_learns_is_left_out_without_lessons(study, alone):
    runs = bound_runs(study, alone, None)
    assert [run.method for run in runs] == ["random", "oracle"]


def test_labels_say_whether_the_slms_answer_will_do(alone, monkeypatch):
    monkeypatch.setattr("citer.evaluation.bounds.FOLDS", 1)
    right = [(True, True), (True, False), (False, True), (False, False)]
    slm, llm = (
        replace(
            run,
            results=[
                result._replace(correct=pair[side])
                for result, pair in zip(run.results, right, strict=False)
            ],
        )
        for side, run in enumerate(alone)
    )
    lessons = lessons_of(Alone(slm, llm))
    feature_QF, label_Q = examples(lessons)
    assert label_Q.tolist() == [True, True, False, True]
    assert np.array_equal(feature_QF, lessons.feature_QF[:4])


@pytest.fixture(scope="module")
def scored(study: Study, alone: Alone):
    """The SLM's run with first scores 0, .1, .2, … and a head of 100 bytes."""
    results = [
        result._replace(scores=[n / 10, *result.scores[1:]])
        for n, result in enumerate(alone.slm.results)
    ]
    prices = Prices.of(study.pair, 100)
    return replace(alone.slm, method="query", results=results, prices=prices)


def test_a_question_below_the_threshold_gets_the_llms_answer_and_pays_for_the_slms_prefill(
    study, alone, scored
):
    [run] = mixtures([Rule("score", 0.25)], scored, alone.llm)
    rows = list(outcome_rows(run))
    for n, (row, slm, llm) in enumerate(
        zip(rows, outcome_rows(alone.slm), outcome_rows(alone.llm), strict=True)
    ):
        model = llm if n < 3 else slm
        assert row["correct"] == model["correct"]
        assert row["llm_tokens"] == model["llm_tokens"]
        prompt_len = len(study.pair.prompts.prompt_ids(study.test[n]))
        prefill = scored.prices.moved(Work(1, prompt_len, prompt_len), Work())
        extra = prefill if n < 3 else 100 * slm["slm_steps"]
        assert row["bytes"] == model["bytes"] + extra
    assert {row["llm_tokens"] > 0 for row in rows} == {True, False}


@pytest.fixture
def told(alone: Alone) -> Lessons:
    """Half of 40 questions need the LLM. Their first feature says so."""
    count = 40
    result = alone.slm.results[0]
    results = [
        result._replace(problem=replace(result.problem, problem_id=str(n)), correct=n % 2 == 0)
        for n in range(count)
    ]
    right = [each._replace(correct=True) for each in results]
    lessons = lessons_of(
        Alone(replace(alone.slm, results=results), replace(alone.llm, results=right))
    )
    lessons.feature_QF[:count, 0] = np.tile([1, -1], count // 2)
    return lessons


@pytest.fixture
def line(study, alone, told, monkeypatch) -> Callable[[], Line]:
    """What the bound decodes."""

    def decoded() -> Line:
        with monkeypatch.context() as patch:
            patch.setattr(
                Study, "answered", lambda _, __, lines: seen.extend(lines) or [[alone.slm]]
            )
            seen: list[Line] = []
            query_bound(study, alone, told)
        return seen[0]

    return decoded


def test_a_query_head_ranks_questions_by_what_it_learnt(told, line):
    scorer = line().scorer
    view = type("View", (), {"feature_NF": torch.from_numpy(told.feature_QF[:40].copy())})
    score_Q = scorer(view)
    assert score_Q[::2].min() > score_Q[1::2].max()


def test_its_thresholds_are_quantiles_of_scores_by_fits_without_the_question(line, monkeypatch):
    counted = []

    def noted(scores, fractions):
        counted.append((len(scores), tuple(fractions)))
        return [0.25, 0.75]

    monkeypatch.setattr("citer.evaluation.bounds.quantiles", noted)
    mixed = []
    monkeypatch.setattr("citer.evaluation.bounds.mixtures", lambda rules, *_: mixed.extend(rules))
    assert line().rules == [SLM], "no question is decoded for another rule"
    assert counted == [(40, FRACTIONS)]
    assert mixed == [Rule("score", 0.25), Rule("score", 0.75)]


def test_held_out_scores_do_not_know_their_own_label():
    """Features are noise. A fit on all questions would separate them."""
    rng = np.random.default_rng(0)
    feature_QF, label_Q = rng.normal(size=(40, 39)), np.tile([True, False], 20)
    score_Q = _held_out(feature_QF, label_Q)
    ranks = score_Q[label_Q][:, None] > score_Q[~label_Q]
    assert 0.2 < ranks.mean() < 0.8
