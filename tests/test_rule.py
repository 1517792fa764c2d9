"""Rules as text, and their properties."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citer.rule import EXPECTED, Rule

SHARES = st.floats(0, 1)
VISITS = st.tuples(st.sampled_from(["score", "risk"]), SHARES) | st.tuples(
    st.just("every"), st.integers(1, 1000)
)
SCORERS = st.sampled_from(["", "entropy", "co_llm"])
CAPS = st.integers(0, 99)
FIELDS = st.tuples(VISITS, SHARES, SCORERS, st.sampled_from(["slm", "lookup", "both"]), CAPS)


def in_range(fields: tuple) -> bool:
    _, audit, by, draft, _ = fields
    return draft == "slm" or (audit > 0 and (draft == "both" or not by))


RULES = FIELDS.filter(in_range).map(lambda fields: Rule(*fields[0], *fields[1:]))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("score 0.9", Rule("score", 0.9)),
        ("risk 0.8 audit 0.1", Rule("risk", 0.8, 0.1)),
        ("every 8 audit 1", Rule("every", 8, 1)),
        ("  risk   .5\taudit 1e-3 ", Rule("risk", 0.5, 0.001)),
        ("score 0 audit 0", Rule("score", 0)),
        ("risk 0.8 by entropy", Rule("risk", 0.8, by="entropy")),
        ("score 0.9 audit 1 by co_llm", Rule("score", 0.9, 1, "co_llm")),
        ("every 8 audit 1 from lookup", Rule("every", 8, 1, draft="lookup")),
        (
            "risk 0.7 audit 1 by agree from both cap 16",
            Rule("risk", 0.7, 1, "agree", "both", 16),
        ),
        ("score 0 cap 16", Rule("score", 0, cap=16)),
        ("risk 0.8 audit 0.25 by narrow  cap 16", Rule("risk", 0.8, 0.25, "narrow", cap=16)),
    ],
)
def test_a_rule_is_read_from_its_text(text: str, rule: Rule) -> None:
    assert Rule.parse(text) == rule


@given(rule=RULES)
def test_a_rule_round_trips_through_its_text(rule: Rule) -> None:
    assert Rule.parse(str(rule)) == rule


@given(rule=RULES)
def test_a_rule_of_a_table_has_counts_as_floats_and_the_same_text(rule: Rule) -> None:
    assert str(replace(rule, at=float(rule.at))) == str(Rule.parse(str(rule)))


@pytest.mark.parametrize("number", [2.5, float("inf"), float("nan")])
def test_numbers_that_count_nothing_are_out_of_range_and_shown_as_given(number: float) -> None:
    with pytest.raises(ValueError, match=f"^'every {number}': ") as caught:
        Rule("every", number)
    assert str(caught.value).endswith(EXPECTED)


def test_text_omits_a_missing_audit_and_formats_numbers() -> None:
    assert str(Rule("score", 0.9)) == "score 0.9"
    assert str(Rule("every", 8, 1)) == "every 8 audit 1"
    assert f"{Rule('risk', 0.123456, 0.0987):.3g}" == "risk 0.123 audit 0.0987"


@pytest.mark.parametrize(
    "text",
    [
        *("", "score", "score high", "scores 0.9", "0.9", "0.9 score", "None"),
        *(
            "score 1.5",
            "score -0.1",
            "risk 2",
            "score nan",
            "risk inf",
            "every 0",
            "every 2.5",
            "every nan",
        ),
        *("risk 0.5 audit", "risk 0.5 0.1", "risk 0.5 audit 2", "risk 0.5 audit nan"),
        *("risk 0.5 audits 0.1", "risk 0.5 audit 0.1 more", "risk 0.5 audit x"),
        *("risk 0.5 top", "risk 0.5 topk 3"),
        *("risk 0.5 cap", "risk 0.5 cap 0", "risk 0.5 cap 1.5", "risk 0.5 cap -1"),
        *("risk 0.5 cap 8 by entropy", "cap 8"),
        *("risk 0.5 from lookup", "risk 0.5 audit 0 from both", "every 8 audit 1 from llm"),
        *("risk 0.5 audit 1 by entropy from lookup", "every 8 from both audit 1"),
        "every 8 audit 1 cap 8 from both",
        f"score 0.5{' ' * 200}",
        *("risk 0.5 by", "risk 0.5 by entropy audit 1", "risk 0.5 by 8", "by entropy"),
    ],
)
def test_an_invalid_rule_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected `score τ`") as caught:
        Rule.parse(text)
    assert str(caught.value) == f"{text!r}: {EXPECTED}"
    assert "\n" not in str(caught.value)


def test_a_rule_is_exact_if_its_audit_is_1() -> None:
    assert all(Rule(visit, 1, 1).exact for visit in ("score", "risk", "every"))
    assert not any(Rule(visit, 1, 0.99).exact for visit in ("score", "risk", "every"))
    assert not Rule("score", 1).exact, "it is the LLM's by its visits"


def test_only_the_llm_alone_does_not_run_the_slm() -> None:
    assert not Rule("score", 1).asks_slm
    assert not Rule("score", 1, 1).asks_slm
    asking = [Rule("score", 0.999), Rule("score", 0), Rule("risk", 1), Rule("every", 1, 1)]
    assert all(rule.asks_slm for rule in asking)


def test_a_token_is_withdrawn_by_its_own_score() -> None:
    assert Rule("score", 0.4).least_score == 0.4
    assert Rule("risk", 0.4).least_score == 0
    assert Rule("every", 4, 1).least_score == 0


def test_pending_tokens_decide_when_a_visit_is_due() -> None:
    assert Rule("risk", 0.4).due(risk=0.39, pending=1)
    assert not Rule("risk", 0.4).due(risk=0.4, pending=99)
    assert Rule("every", 3).due(risk=1.0, pending=3)
    assert not Rule("every", 3).due(risk=0.0, pending=2)
    assert Rule("score", 0.4, cap=3).due(risk=1.0, pending=3)
    assert not Rule("score", 0.4, cap=3).due(risk=0.0, pending=2)
    assert Rule("every", 2, cap=3).due(risk=1.0, pending=2)
    assert not Rule("score", 0.4).due(risk=0.0, pending=99)


def test_rules_compare_by_all_their_fields() -> None:
    rules = [Rule("score", 0.5), Rule("risk", 0.5, 1), Rule("risk", 0.5, 0.1), Rule("risk", 0.4)]
    assert sorted(rules) == rules[3:] + rules[2:3] + rules[1:2] + rules[:1]
    assert len({*rules, Rule("score", 0.5)}) == 4
