"""A run within a budget: what is cut, and in which order."""

from dataclasses import replace
from itertools import pairwise

import pytest

from citer.config.params import SHIPPED, load_params
from citer.pairs.budget import Pace, Workload, changed, dearest, plan, total

SLOW = Workload(
    questions={"sft": 3000, "preference": 600, "validation": 600, "test": 1000},
    written={"sft": 0, "preference": 600},
    graded=600,
    prompt=60,
    answer=50,
    slm=Pace(0.001, 0.02),
    llm=Pace(0.003, 0.06),
    routed=0.5,
    growth=0.5,
)
PARAMS = load_params(SHIPPED)


def test_nothing_is_cut_from_a_run_that_fits() -> None:
    found = plan(SLOW, PARAMS, total(SLOW, PARAMS) + 1)
    assert (found.cuts, found.minutes) == ([], total(SLOW, PARAMS))


@pytest.mark.parametrize("share", [0.95, 0.7, 0.4, 0.2])
def test_a_plan_fits_and_each_of_its_cuts_was_needed(share: float) -> None:
    whole = total(SLOW, PARAMS)
    found = plan(SLOW, PARAMS, share * whole)
    assert found.minutes <= share * whole
    assert found.minutes == pytest.approx(total(SLOW, changed(PARAMS, found.changes)))
    assert found.minutes + sum(cut.saved for cut in found.cuts) == pytest.approx(whole)
    assert found.minutes + found.cuts[-1].saved > share * whole


def test_what_no_deployed_rule_needs_goes_first_and_enough_is_kept_to_certify() -> None:
    """63 questions that the LLM has right certify a rule that loses none."""
    least = plan(replace(SLOW, right=0.7), PARAMS, 0.0)
    assert [*least.changes] == [
        "evaluate.bounds",
        "iterations",
        "references.most",
        "evaluate.llm_fractions",
        "evaluate.risks",
        "evaluate.candidates",
    ]
    most = {"test": 113, "preference": 100, "validation": 113, "sft": 300}
    assert least.changes["references.most"] == most
    assert 0.7 * most["validation"] > 63


def test_limits_of_params_yaml_are_only_lowered() -> None:
    own = changed(PARAMS, {"references.most": {"sft": 50, "test": 195, "preference": 80}})
    least = plan(SLOW, own, 0.0).changes["references.most"]
    assert (least["sft"], least["test"], least["preference"]) == (50, 79, 80)


def test_questions_beyond_those_that_certify_a_rule_go_last_and_those_of_test_first() -> None:
    """As with a real pair on MBPP: nothing else was left to cut."""
    real = replace(
        SLOW,
        questions={"sft": 230, "preference": 140, "validation": 93, "test": 500},
        answer=60,
        slm=Pace(0.02, 0.1),
        llm=Pace(0.05, 0.3),
    )
    least = plan(real, PARAMS, 0.0)
    last = [
        {"test": 126, "preference": 100},
        {"test": 79, "preference": 100},
        {"test": 79, "validation": 79, "preference": 100},
    ]
    assert least.changes["references.most"] == last[-1]
    for more, fewer in pairwise(last):
        before = total(real, changed(PARAMS, least.changes | {"references.most": more}))
        found = plan(real, PARAMS, before - 0.01)
        assert found.minutes < before
        assert found.changes["references.most"] == fewer


def test_the_forecast_names_what_would_save_most() -> None:
    cuts = dearest(SLOW, PARAMS)
    assert len(cuts) == len({next(iter(cut.changes)) for cut in cuts}) == 3
    assert cuts[0].saved >= cuts[1].saved >= cuts[2].saved > 0
    assert dearest(SLOW, changed(PARAMS, plan(SLOW, PARAMS, 0.0).changes)) == []


def test_a_planned_run_is_not_cut_again() -> None:
    minutes = 0.3 * total(SLOW, PARAMS)
    made = changed(PARAMS, plan(SLOW, PARAMS, minutes).changes)
    assert plan(SLOW, made, minutes).cuts == []
    least = changed(PARAMS, plan(SLOW, PARAMS, 0.0).changes)
    assert plan(SLOW, least, 0.0).cuts == []


def test_what_saves_little_is_left_as_it_is() -> None:
    """Rules cost little here, so a coarser grid of them is not worth its loss until it must be."""
    work = replace(SLOW, slm=Pace(0.001, 0.001))
    whole = total(work, PARAMS)
    assert "evaluate.risks" in plan(work, PARAMS, 0.0).changes
    assert "evaluate.risks" not in plan(work, PARAMS, 0.5 * whole).changes
    least = plan(work, PARAMS, 0.0).minutes
    assert plan(work, PARAMS, 1.001 * least).minutes <= 1.001 * least  # nothing else suffices


def test_short_grids_stay() -> None:
    few = {"evaluate.risks": [], "evaluate.llm_fractions": [0.0, 0.1, 1.0]}
    least = plan(SLOW, changed(PARAMS, few), 0.0)
    assert not {*few} & {*least.changes}
