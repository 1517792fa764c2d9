import pytest

from citer.config.params import load_params
from citer.pairs.forecast import TESTED, Workload, in_words
from citer.pairs.probe import Pace

QUESTIONS = {"preference": 60, "validation": 30, "test": 30}
FAST = Pace(0.0, 0.0)
SLOW = Pace(prompt=0.01, answer=0.1)  # 2 seconds for 100 tokens of prompt and 10 of answer


def minutes(slm: Pace, llm: Pace, written: int = 0, **settings):
    shipped = load_params().evaluate
    limits = {"llm_fractions": (0.0, 0.5, 1.0), "risks": (), "gammas": ()}
    limits |= {"rivals": ("entropy", "random", "speculative")}
    limits |= {"candidates": ("citer", "audited")} | settings
    work = Workload(QUESTIONS, written, prompt=100, answer=10, slm=slm, llm=llm)
    return work.minutes(shipped.model_copy(update=limits))


def test_scoring_reads_prompt_and_answer_of_each_preference_question():
    assert minutes(FAST, SLOW)["score_llm"] == pytest.approx(60 * 110 * 0.01 / 60)
    assert minutes(SLOW, FAST)["score_llm"] == 0


def test_rivals_answer_both_splits_by_each_model_alone_and_test_by_every_rule():
    alone = 60 * 2.0 / 60
    by_the_llm = alone + 30 * 0.5 * (0.5 + 0.5) * 2.0 / 60  # entropy and random at one fraction
    assert minutes(FAST, SLOW)["rivals"] == pytest.approx(by_the_llm)
    by_the_slm = alone + 30 * 0.5 * (1 + 1) * 2.0 / 60
    assert minutes(SLOW, FAST)["rivals"] == pytest.approx(by_the_slm)


def test_query_level_routing_only_adds_the_preference_questions_of_each_model_alone():
    usual, more = minutes(FAST, SLOW), minutes(FAST, SLOW, rivals=("entropy", "random", "query"))
    assert more["rivals"] - usual["rivals"] == pytest.approx(60 * 2.0 / 60)


def test_each_rule_adds_to_the_evaluation_of_a_router():
    one = minutes(SLOW, FAST)["evaluate@k"]
    assert minutes(SLOW, FAST, risks=(0.5, 0.9), audits=(0.1, 1.0))["evaluate@k"] == 5 * one
    any_scorer = minutes(SLOW, FAST, candidates=("citer", "any"))["evaluate@k"]
    assert any_scorer == pytest.approx((1 + TESTED) * one)


def test_suffix_reads_half_of_an_answer_twice_for_each_contested_token():
    contested = 60 * 0.1 * 10
    assert minutes(FAST, SLOW)["label@k by suffix"] == pytest.approx(contested * 10 * 0.01 / 60)
    assert minutes(SLOW, FAST)["label@k by suffix"] == 0


def test_the_llm_alone_writes_references():
    assert minutes(FAST, SLOW, written=60)["references"] == pytest.approx(2.0)
    assert minutes(SLOW, FAST, written=60)["references"] == 0


def test_minutes_are_printed_without_fractions():
    shown = in_words({"rivals": 1234.6, "label@k": 0.99})
    assert shown == "rivals 1,235 min, label@k under 1 min"
