import pytest

from citer.config.params import SHIPPED, load_params
from citer.pairs.forecast import ANEW, AUDITED, FIXED, HELD_OUT, SHARED, Workload, in_words
from citer.pairs.probe import Pace

QUESTIONS = {"preference": 60, "validation": 30, "test": 30}
FAST = Pace(0.0, 0.0)
SLOW = Pace(prompt=0.01, answer=0.1)  # 2 seconds for 100 tokens of prompt and 10 of answer


def minutes(slm: Pace, llm: Pace, written: int = 0, **settings):
    shipped = load_params(SHIPPED)
    evaluate = shipped.evaluate.model_copy(update={"bounds": ("random", "oracle")} | settings)
    work = Workload(QUESTIONS, written, prompt=100, answer=10, slm=slm, llm=llm)
    return work.minutes(evaluate, shipped.train.model_copy(update={"holdout": 0.25}))


def test_scoring_reads_prompt_and_answer_of_each_preference_question():
    assert minutes(FAST, SLOW)["score_llm"] == pytest.approx(60 * 110 * 0.01 / 60)
    assert minutes(SLOW, FAST)["score_llm"] == 0


# Each candidate answers validation, test, and the 15 held-out questions, which more rules answer.
ASKED = 30 + 30 + HELD_OUT * 15


def test_rivals_answer_by_each_model_alone_and_by_the_candidates_of_all_iterations():
    """Candidates share much of their work."""
    alone = 60 * 2.0
    audited = FIXED * ASKED * SHARED * AUDITED * 2.0
    assert minutes(FAST, SLOW)["rivals"] == pytest.approx((alone + audited) / 60)
    drafted = FIXED * ASKED * SHARED * 2.0
    assert minutes(SLOW, FAST)["rivals"] == pytest.approx((alone + drafted) / 60)


def test_query_level_routing_only_adds_the_preference_questions_of_each_model_alone():
    usual, more = minutes(FAST, SLOW), minutes(FAST, SLOW, bounds=("random", "query"))
    assert more["rivals"] - usual["rivals"] == pytest.approx(60 * 2.0 / 60)


def test_a_router_is_evaluated_by_its_own_candidates():
    assert minutes(SLOW, FAST)["evaluate@k"] == pytest.approx(ANEW * ASKED * SHARED * 2.0 / 60)


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
