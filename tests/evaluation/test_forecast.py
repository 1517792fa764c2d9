from dataclasses import replace
from math import log

import pytest

from citer.config.params import SHIPPED, Params, load_params
from citer.evaluation.methods import SCORERS
from citer.labelling.suffix import SAMPLE
from citer.pairs.budget import (
    LEARNING,
    TESTED,
    Pace,
    Workload,
    about,
    changed,
    in_words,
)

QUESTIONS = {"sft": 50, "preference": 60, "validation": 30, "test": 30}
FAST = Pace(0.0, 0.0)
SLOW = Pace(prompt=0.01, answer=0.1)  # 2 seconds for 100 tokens of prompt and 10 of answer
ROUTED = 1.5  # times the LLM's own seconds
GROWTH = 0.8  # e times as many rules take so much longer, one rule = 1
RULES = {
    "train.holdout": 0.25,
    "evaluate.llm_fractions": [0.0, 0.1, 1.0],  # one
    "evaluate.audits": [0.5],
    "evaluate.risks": [0.5, 0.9],
    "evaluate.gammas": [1, 2, 3],
    "evaluate.bounds": ["random", "oracle"],
}
GAMMAS = 3
EACH = 1 * 3 + 2 * 2  # one threshold without and with both audits, two risks with either


def settings(**more: object) -> Params:
    return changed(load_params(SHIPPED), RULES | more)


def workload(questions: dict[str, int], graded: int, slm: Pace, llm: Pace) -> Workload:
    return Workload(questions, {}, graded, 100, 10, slm, llm, ROUTED, GROWTH)


def minutes(slm: Pace, llm: Pace, written: int = 0, **more: object) -> dict[str, float]:
    work = replace(workload(QUESTIONS, 60, slm, llm), written={"preference": written})
    return work.minutes(settings(**more))


def test_scoring_reads_prompt_and_answer_of_each_preference_question() -> None:
    assert minutes(FAST, SLOW)["score_llm"] == pytest.approx(60 * 110 * 0.01 / 60)
    assert minutes(SLOW, FAST)["score_llm"] == 0


def answers(rules: float, held_out: int = 15) -> float:
    """All rules answer the held-out questions, those that are tested the 60 others.

    Each e-fold number of rules adds the same time.
    """
    tested = max(1, TESTED * rules)
    return 60 * (1 + GROWTH * log(tested)) + held_out * (1 + GROWTH * log(rules))


def test_rivals_answer_by_each_model_alone_and_by_the_candidates_of_all_iterations() -> None:
    """Candidates share much of their work. Three heads are trained anew."""
    alone, none = 60 * 2.0, {"evaluate.bounds": []}
    fixed = (2 + len(SCORERS) - 3) * EACH + 2 * 2 * GAMMAS + 1  # with a cap, too; the SLM alone
    by_rule = answers(fixed) * ROUTED * 2.0
    assert minutes(FAST, SLOW, **none)["rivals"] == pytest.approx((alone + by_rule) / 60)
    assert minutes(SLOW, FAST, **none)["rivals"] == pytest.approx(alone / 60)


def test_query_level_routing_only_adds_the_preference_questions_of_each_model_alone() -> None:
    usual = minutes(FAST, SLOW, **{"evaluate.bounds": []})
    more = minutes(FAST, SLOW, **{"evaluate.bounds": ["query"]})
    assert more["rivals"] - usual["rivals"] == pytest.approx(60 * 2.0 / 60)


def test_each_iteration_has_its_own_labels_and_candidates() -> None:
    twice = minutes(SLOW, SLOW)
    once = minutes(SLOW, SLOW, iterations={"1": {"previous": "0"}})
    assert once["evaluate"] == pytest.approx(answers(3 * EACH) * ROUTED * 2.0 / 60)
    for stage in ("evaluate", "label"):
        assert twice[stage] == 2 * once[stage]


def test_methods_that_are_no_candidates_cost_nothing() -> None:
    """CITER asks for one threshold without an audit."""
    citer = {"evaluate.candidates": ["citer"], "evaluate.bounds": []}
    found = minutes(FAST, SLOW, **citer)
    assert found["evaluate"] == pytest.approx(2 * answers(1) * ROUTED * 2.0 / 60)
    assert found["rivals"] == pytest.approx(60 * 2.0 / 60)


def test_suffix_reads_each_question_twice_and_the_rest_of_an_answer_after_each_contest() -> None:
    read = 60 * (2 * 110 + 1 * 10) * 0.01
    work = workload(QUESTIONS, 0, FAST, SLOW)
    by_suffix = settings(**{"label.method": "suffix"})
    assert work.minutes(by_suffix)["label"] == pytest.approx(2 * read / 60)  # two iterations
    drafting = replace(work, slm=SLOW, llm=FAST)
    assert drafting.minutes(by_suffix)["label"] == 0


@pytest.mark.parametrize("graded", [60, 10**4])
def test_suffix_is_calibrated_by_rollouts_of_at_most_200_tokens_with_an_answer(graded: int) -> None:
    many = QUESTIONS | {"preference": 10**4}
    work = workload(many, graded, SLOW, FAST)
    found = work.minutes(settings(**{"label.method": "suffix"}))["label"]
    assert found == pytest.approx(2 * min(graded, SAMPLE) * 2.0 / 60)


def test_rows_without_an_answer_are_labelled_by_suffix() -> None:
    work = workload(QUESTIONS, 0, FAST, SLOW)
    by_suffix = settings(**{"label.method": "suffix"})
    assert work.minutes(settings())["label"] == work.minutes(by_suffix)["label"] > 0


def test_at_most_200_questions_are_held_out() -> None:
    many = QUESTIONS | {"preference": 10**4}
    work = workload(many, 0, FAST, SLOW)
    expected = 2 * answers(3 * EACH, held_out=200) * ROUTED * 2.0 / 60
    assert work.minutes(settings())["evaluate"] == pytest.approx(expected)


@pytest.mark.parametrize(("bound", "seconds"), [("random", 2.0 * ROUTED), ("oracle", 110 * 0.01)])
def test_of_the_other_bounds_one_answers_the_test_questions_and_one_reads_the_llms_answers(
    bound: str, seconds: float
) -> None:
    more, none = (minutes(SLOW, SLOW, **{"evaluate.bounds": each}) for each in ([bound], []))
    assert more["rivals"] - none["rivals"] == pytest.approx(30 * seconds / 60)


def test_the_llm_alone_writes_references() -> None:
    assert minutes(FAST, SLOW, written=60)["references"] == pytest.approx(2.0)
    assert minutes(SLOW, FAST, written=60)["references"] == 0


def test_finetuning_reads_and_learns_each_row() -> None:
    expected = LEARNING * 2.5 * 40 * 110 * 0.01 / 60
    asked = {"finetune.epochs": 2.5, "references.most": {"sft": 40}}
    assert minutes(SLOW, FAST, **asked)["finetune"] == pytest.approx(expected)
    twice = minutes(SLOW, FAST, **asked, **{"references.source": "both"})
    assert twice["finetune"] == pytest.approx(2 * expected)


@pytest.mark.parametrize("stage", ["score_llm", "label"])
def test_with_both_references_a_preference_question_has_two_rows(stage: str) -> None:
    one, both = (minutes(SLOW, SLOW, **{"references.source": each}) for each in ("given", "both"))
    assert one[stage] > 0
    assert both[stage] == pytest.approx(2 * one[stage])


def test_at_most_as_many_questions_count_as_are_kept() -> None:
    kept = minutes(FAST, SLOW, 60, **{"references.most": {"preference": 6, "test": 900}})
    whole = minutes(FAST, SLOW, 60)
    assert kept["references"] == pytest.approx(whole["references"] / 10)
    assert kept["score_llm"] == pytest.approx(whole["score_llm"] / 10)


@pytest.mark.parametrize("kept", range(1, 30))
def test_some_of_the_graded_rows_need_no_suffix_either(kept: int) -> None:
    """Previously, 60 of 206 rows were 60.000000000000007 rows, and `suffix` was calibrated."""
    few = settings(**{"references.most": {"preference": kept}})
    work = workload(QUESTIONS | {"preference": 206}, 206, FAST, SLOW)
    assert work.minutes(few)["label"] == 0


def test_minutes_are_printed_without_fractions() -> None:
    shown = in_words({"rivals": 1234.6, "label": 0.99})
    assert shown == "rivals 1,235 min, label under 1 min"
    assert about(2.4) == "2 min"
