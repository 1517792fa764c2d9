"""What a server is given, and what requests may ask of it; without vLLM."""

from typing import Any

import pytest

from citer.errors import InputError
from citer.rule import Rule
from citer.vllm.loading import Served, Settings, parsed

OWN = Rule.parse("risk 0.9 audit 0.1")


def test_a_request_gets_its_own_rule_or_the_servers() -> None:
    served = Served(OWN, ("stand",), 16)
    assert served.asked(None) == OWN
    assert served.asked({"rule": "score 0.5"}) == Rule("score", 0.5)
    assert served.asked({"rule": "score 0.5 cap 16"}) == Rule("score", 0.5, cap=16)


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"rule": "risk 2"}, "citer: rule: 'risk 2': expected `score τ`"),
        ({"rule": None}, "citer: rule: None: expected `score τ`"),
        ({"rle": "risk 0.5"}, "citer: top level: unknown key 'rle'; expected rule"),
        ({}, "citer: rule: missing"),
        ([], "citer: top level: []: expected a section of keys"),
        ({"rule": "risk 0.5 audit 1"}, "no scorer `agree`; expected one of stand, entropy"),
        ({"rule": "risk 0.5 cap 17"}, "cap 17, expected at most num_speculative_tokens, 16"),
        (
            {"rule": "every 8 audit 1 from lookup"},
            "rule `every 8 audit 1.0 from lookup`: expected no `from`, since vLLM has its own",
        ),
        ({"rule": "risk 0.5 top 2"}, "`top` was removed; expected `audit β` in its place"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(asked: Any, complaint: str) -> None:
    with pytest.raises(InputError) as refused:
        Served(OWN, ("stand",), 16).asked(asked)
    assert complaint in str(refused.value)


def test_the_llm_alone_needs_no_head() -> None:
    assert not Served(OWN, (), 16).asked({"rule": "score 1 audit 1"}).asks_slm


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match=r"^here: top level: unknown key 'ruler'"):
        parsed(Settings, {"router": "r", "ruler": "risk 0.5"}, "here")
