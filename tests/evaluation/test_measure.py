"""What a study measures, and in which words it says so."""

import re
from dataclasses import replace

import pytest

from citer.config.params import SamplingParams
from citer.errors import InputError
from citer.evaluation.measure import ACCURACY, FIDELITY, Conditions, sampling_text
from citer.report.standings import metrics, promise, standings, summary
from tests.reported import CHOSEN, NOTHING_CERTIFIED, chosen_rule, points
from tests.tiny import MATH, MC

GRADED = [replace(MATH, split="validation"), replace(MC, split="test")]
COMPARED = [replace(problem, answer=None, written_by="llm") for problem in GRADED]
IDENTITY = {"llm": {"digest": "1a2b3c4d5e"}, "template": "5d6e7f8a9b"}
FAITHFUL = Conditions(FIDELITY, "greedy", "1a2b3c4d5e", "5d6e7f8a9b")


def test_the_measure_follows_from_the_answers_of_the_questions():
    assert Conditions.of(GRADED, None, IDENTITY) == Conditions(ACCURACY, "greedy")
    assert Conditions.of(COMPARED, None, IDENTITY) == FAITHFUL
    with_both = [replace(problem, written_by="llm") for problem in GRADED]
    assert Conditions.of(with_both, None, IDENTITY).measure is ACCURACY


@pytest.mark.parametrize("rows", [[GRADED[0], COMPARED[1]], [COMPARED[1], GRADED[0]]])
def test_questions_of_two_measures_are_refused_in_one_line(rows):
    message = (
        "test problem mc-0: no answer, but validation problem math-0 has one; expected all "
        "questions of validation and test to have an answer, or none; run `citer references`"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Conditions.of(rows, None, IDENTITY)


def test_a_question_without_any_answer_is_refused():
    with pytest.raises(InputError, match=r"^test problem mc-0: neither an answer nor one of the "):
        Conditions.of([COMPARED[0], replace(COMPARED[1], written_by=None)], None, IDENTITY)


@pytest.mark.parametrize("conditions", [Conditions(), FAITHFUL, Conditions(sampling="top-k 2")])
def test_conditions_are_read_as_they_are_stored(conditions):
    assert Conditions.stored({"seed": 3} | conditions.fields) == conditions


def test_an_unknown_measure_is_refused():
    with pytest.raises(InputError, match="measure: 'speed'; expected 'accuracy' or 'fidelity'"):
        Conditions.stored({"measure": "speed"})


@pytest.mark.parametrize(
    ("sampling", "text"),
    [
        (None, "greedy"),
        ({"temperature": 0.7, "top_p": 0.9}, "temperature 0.7, top-p 0.9"),
        ({"temperature": 1.0, "top_k": 40}, "temperature 1, top-k 40"),
    ],
)
def test_sampling_is_described_in_the_order_of_its_steps(sampling, text):
    assert sampling_text(sampling and SamplingParams(**sampling)) == text


def test_the_promise_of_fidelity_counts_answers_that_differ_from_the_llms():
    kept = "keeps P(answer differs from the LLM's) <= 0.05 at confidence 0.9 "
    seen = "(on validation the routed answer differs from the LLM's on 3 of 200 questions; "
    alone = "bound of this rule alone: 0.033)."
    assert promise("router_2", chosen_rule("score 0.7"), FIDELITY).endswith(kept + seen + alone)
    broken = promise("router_1", NOTHING_CERTIFIED, FIDELITY)
    assert "keeps P(answer differs from the LLM's) <= 0.05" in broken


def test_a_table_by_fidelity_never_says_accuracy_or_right():
    rows = standings(points(), CHOSEN)
    text = summary(rows, CHOSEN, [1], FAITHFUL)
    assert " fidelity | " in text.splitlines()[0]
    assert "f95: the LLM fraction that reaches 95 % of the LLM's\nfidelity." in text
    assert "Fidelity: the share of answers that are the same as the LLM's own" in text
    assert "accura" not in text
    assert "LLM right" not in text
    usual = summary(rows, CHOSEN, [1], Conditions())
    assert "fidelity" not in usual.lower()
    assert "P(routed wrong | LLM right)" in usual


def test_a_table_says_how_answers_were_sampled_unless_they_are_greedy():
    rows = standings(points(), CHOSEN)
    sampled = Conditions(FIDELITY, "temperature 0.7, top-p 0.9")
    line = "\nAll methods sample: temperature 0.7, top-p 0.9.\n"
    assert line in summary(rows, CHOSEN, [1], sampled)
    assert "sample" not in summary(rows, CHOSEN, [1], Conditions())


def test_a_fidelity_is_never_a_metric_named_accuracy():
    rows = standings([*points(), *points(task="math")], CHOSEN)
    by_accuracy, by_fidelity = (metrics(rows, CHOSEN, each) for each in (ACCURACY, FIDELITY))
    assert "accuracy" not in repr(by_fidelity)
    assert by_fidelity["router_2"]["fidelity"] == by_accuracy["router_2"]["accuracy"]
    assert by_fidelity["llm"]["math"]["fidelity"] == by_accuracy["llm"]["math"]["accuracy"]
