"""The candidates: no scorer has a setting that another lacks."""

from itertools import groupby

import pytest

from citer.decoding.policy import routed
from citer.evaluation.candidates import candidates, scorers_of
from citer.evaluation.sweep import Line
from citer.models.router import Head, Router
from citer.rule import Rule
from tests.studied import PARAMS

ROUTER = Router({name: Head(None, slope=n) for n, name in enumerate(["stand", "narrow", "co_llm"])})
SCORERS = ["entropy", *ROUTER.heads]
TAUS = {name: [0.3 + n / 10, 0.6 + n / 10] for n, name in enumerate(SCORERS)}


@pytest.fixture
def lines() -> list[Line]:
    return candidates(scorers_of(ROUTER), TAUS, PARAMS)


def test_every_scorer_has_the_same_visits_and_audits(lines: list[Line]) -> None:
    """Only the places of τ differ: they are quantiles of its own scores."""
    rules = sorted((rule for line in lines for rule in line.rules), key=lambda rule: rule.by)
    settings = {
        name: sorted((r.visit, r.at if r.visit != "score" else "τ", r.audit) for r in own)
        for name, own in groupby(rules, key=lambda rule: rule.by)
    }
    every = settings.pop("")
    assert list(settings) == sorted(SCORERS)
    first, *others = settings.values()
    assert all(other == first for other in others)
    audits = [0.3, 1.0]
    risks = [("risk", rho, beta) for rho in PARAMS.risks for beta in audits]
    scores = [("score", "τ", beta) for beta in (0, *audits) for _ in range(2)]
    assert first == sorted([*risks, *scores])
    assert every == sorted(("every", gamma, beta) for gamma in PARAMS.gammas for beta in audits)


def test_each_line_has_the_scorer_that_a_server_takes_for_its_rules(lines: list[Line]) -> None:
    for line in lines:
        for rule, policy in zip(line.rules, line.policies, strict=True):
            assert routed(ROUTER, Rule.parse(str(rule))) == policy


def test_rules_that_keep_the_llms_text_are_a_method_of_their_own(lines: list[Line]) -> None:
    for line in lines:
        assert {rule.exact for rule in line.rules} <= {line.method.name == "exact"}
