"""What a server is given, and what requests may ask of it; without vLLM."""

from types import SimpleNamespace
from typing import Any

import pytest

from citer.errors import InputError
from citer.rule import LLM, Rule
from citer.vllm.loading import Served, read_settings

SERVED = Served("risk 0.9 audit 0.1", ("stand",), 16, scored=True)
UNTRAINED = Served("risk 0.7 audit 1", (), 16, scored=True)
OTHERS = Served("audit 0.25", (), 5, scored=False)  # such as ngram


def test_a_request_gets_its_own_rule_or_the_servers() -> None:
    assert SERVED.asked(None) == Rule.parse("risk 0.9 audit 0.1")
    assert SERVED.asked({"rule": "score 0.5"}) == Rule("score", 0.5)
    assert SERVED.asked({"rule": "score 0.5 cap 16"}) == Rule("score", 0.5, cap=16)


def test_a_request_travels_with_its_rule() -> None:
    given = {"rule": "score 0.5", "messages": []}
    assert SERVED.of(SimpleNamespace(extra_args={"citer": given})) == Rule("score", 0.5)
    for nothing in (None, {}):
        assert SERVED.of(SimpleNamespace(extra_args=nothing)) == SERVED.asked(None)


def test_texts_of_clients_that_are_kept_are_short() -> None:
    """A thousand are: of any length, they would fill the memory."""
    kept = Served.parsed.cache_info().currsize
    with pytest.raises(InputError, match="at most 200 characters"):
        SERVED.asked({"rule": "score 0.5" + " " * 1_000_000})
    assert Served.parsed.cache_info().currsize == kept


def test_an_audit_alone_judges_all_drafts_that_vllm_asks_for() -> None:
    assert OTHERS.asked(None) == Rule("every", 5, 0.25)
    assert OTHERS.asked({"rule": " audit 1"}) == Rule("every", 5, 1.0)
    assert SERVED.asked({"rule": "audit 0.5 cap 4"}) == Rule("every", 16, 0.5, cap=4)
    assert OTHERS.asked({"rule": "score 1"}) == LLM


def test_an_exact_rule_by_count_needs_no_cap_of_its_own() -> None:
    """`citer serve` may have been given it with more drafts than this server makes."""
    assert SERVED.asked({"rule": "every 24 audit 1 cap 24"}) == Rule("every", 24, 1.0)


def test_without_a_router_the_slms_certainty_scores() -> None:
    assert UNTRAINED.asked(None) == Rule("risk", 0.7, 1.0, "probability")
    assert UNTRAINED.asked({"rule": "score 0.5 by entropy"}).by == "entropy"


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"rule": "risk 2"}, "rule: 'risk 2': expected `score τ`"),
        ({"rule": "audit 2"}, "rule: 'every 16 audit 2': expected `score τ`"),
        ({"rule": None}, "rule: 'None': expected `score τ`"),
        ({"rle": "risk 0.5"}, "{'rle': 'risk 0.5'}: expected {\"rule\": RULE}"),
        ({}, "{}: expected"),
        ([], "[]: expected"),
        ({"rule": "risk 0.5 audit 1"}, "no scorer `agree`; expected one of stand, entropy"),
        ({"rule": "risk 0.5 cap 17"}, "cap 17, expected at most num_speculative_tokens, 16"),
        ({"rule": "every 8 audit 1 from lookup"}, "expected no `from`, since vLLM has its own"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(asked: Any, complaint: str) -> None:
    with pytest.raises(InputError) as refused:
        SERVED.asked(asked)
    assert complaint in str(refused.value)
    if asked:
        assert SERVED.of(SimpleNamespace(extra_args={"citer": asked})) == LLM


@pytest.mark.parametrize("rule", ["risk 0.5 audit 1", "score 0.5", "every 2 audit 1 by entropy"])
def test_a_rule_cannot_ask_for_scores_where_no_small_model_drafts(rule: str) -> None:
    with pytest.raises(InputError, match="since no small model drafts here"):
        OTHERS.asked({"rule": rule})


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"router": "r", "ruler": "risk 0.5"}, "unknown key 'ruler'"),
        ({}, "expected router or rule"),
        ({"rule": "audit 1", "log": "l"}, "log: expected router, too"),
        ({"router": "r", "redact": "m:f"}, "redact: expected log, too"),
        ({"router": "r", "shadow": 0.01}, "shadow: expected evidence, too"),
        ({"router": "r", "rule": "risk 1", "evidence": "e"}, "evidence: expected no rule"),
        ({"rule": "audit 1", "evidence": "e"}, "evidence: expected router, too"),
        ({"router": "r", "shadow": 2, "evidence": "e"}, "shadow: 2: expected less than or equal"),
        ({"router": "r", "evidence": "e", "false_alarms": 1}, "false_alarms: 1: expected greater"),
        ("audit 1", "expected a section of keys"),
    ],
)
def test_bad_settings_are_refused(settings: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=r"^--additional-config: citer: ") as refused:
        read_settings({"citer": settings})
    assert complaint in str(refused.value)
