"""The candidates: no scorer has a setting that another lacks, and each has one method."""

from dataclasses import replace
from itertools import groupby, product
from typing import get_args

import pytest

from citer.decoding.policy import CERTAINTIES, routed
from citer.evaluation.candidates import (
    NAMES,
    STYLES,
    UNTRAINED,
    candidates,
    method_of,
    quantiles,
)
from citer.evaluation.methods import NUMBERS, SCORERS, STATE
from citer.evaluation.sweep import Line
from citer.models.router import Head, Router
from citer.rule import Drafter, Rule
from citer.sections import CandidateName
from tests.studied import EVALUATE as PARAMS

ROUTER = Router({name: Head(None, slope=n) for n, name in enumerate(SCORERS)})
NAMED = [*CERTAINTIES, *SCORERS]
DRAFTERS: list[Drafter] = ["slm", "lookup", "both"]
TAUS = {name: [0.3 + n / 100, 0.6 + n / 100] for n, name in enumerate(NAMED)}
AUDITS = [0.3, 1.0]
NEVER = Rule("score", 0.0, 0.0, "probability")  # the SLM alone


def lines_for(*wanted: CandidateName, cap: int = 0) -> list[Line]:
    params = PARAMS.model_copy(update={"candidates": wanted})
    return candidates(UNTRAINED | dict(ROUTER.heads), TAUS, params, DRAFTERS, cap)


@pytest.fixture
def lines() -> list[Line]:
    return lines_for(*get_args(CandidateName))


def rules_of(lines: list[Line], drafter: Drafter) -> list[Rule]:
    return [rule for line in lines for rule in line.rules if rule.draft == drafter]


def test_every_scorer_has_the_same_visits_and_audits(lines: list[Line]) -> None:
    """Only the places of τ differ: they are quantiles of its own scores. `score 0` needs none."""
    rules = sorted(rules_of(lines, "slm"), key=lambda rule: rule.by)
    rules.remove(NEVER)
    settings = {
        name: sorted((r.visit, r.at if r.visit != "score" else "τ", r.audit, r.cap) for r in own)
        for name, own in groupby(rules, key=lambda rule: rule.by)
    }
    every = settings.pop("")
    assert list(settings) == sorted(NAMED)
    first, *others = settings.values()
    assert all(other == first for other in others)
    risks = [("risk", rho, beta, 0) for rho in PARAMS.risks for beta in AUDITS]
    scores = [("score", "τ", beta, 0) for beta in (0, *AUDITS) for _ in range(2)]
    assert first == sorted([*risks, *scores])
    gammas = [(gamma, cap) for gamma in PARAMS.gammas for cap in (0, gamma)]
    assert every == sorted(("every", gamma, beta, cap) for gamma, cap in gammas for beta in AUDITS)
    assert {r.at for r in rules if (r.by, r.visit) == ("narrow", "score")} == {*TAUS["narrow"]}


def test_lookups_have_the_same_grid_for_every_scorer_if_they_are_tried(lines: list[Line]) -> None:
    """All with audits. A lookup alone has scores of its own, so that no scorer is asked."""
    both = {replace(rule, draft="slm") for rule in rules_of(lines, "both")}
    assert both == {rule for rule in rules_of(lines, "slm") if rule.audit and not rule.cap}
    assert NEVER not in both
    alone = {replace(rule, draft="slm") for rule in rules_of(lines, "lookup")}
    risks = {Rule("risk", rho, beta) for rho in PARAMS.risks for beta in AUDITS}
    assert alone == risks | {rule for rule in both if not rule.by}
    untried = candidates(UNTRAINED | dict(ROUTER.heads), TAUS, PARAMS)
    assert {rule.draft for line in untried for rule in line.rules} == {"slm"}


@pytest.mark.parametrize("cap", [1, 2, 16])
def test_a_cap_is_that_of_all_rules_and_no_rule_visits_later(lines: list[Line], cap: int) -> None:
    """Below every γ, the scorer without a name has no line."""
    capped = [rule for line in lines_for(*get_args(CandidateName), cap=cap) for rule in line.rules]
    whole = [rule for line in lines for rule in line.rules if not rule.cap]
    fitting = [rule for rule in whole if rule.visit != "every" or rule.at <= cap]
    assert capped == [replace(rule, cap=cap) for rule in fitting]
    assert len(fitting) < len(whole) or cap == 16


def test_every_source_of_labels_has_a_small_head_and_a_logistic_one() -> None:
    inputs: dict[str, set[str]] = {}
    for scored in SCORERS.values():
        inputs.setdefault(scored.labels, set()).add(scored.input)
    assert len(inputs) == 5
    assert all(own >= {STATE, NUMBERS} for own in inputs.values())


def test_each_line_has_the_scorer_that_a_server_takes_for_its_rules(lines: list[Line]) -> None:
    for line in lines:
        for rule, policy in zip(line.rules, line.policies, strict=True):
            assert routed(ROUTER, Rule.parse(str(rule))) == policy


def test_every_candidate_belongs_to_one_method() -> None:
    """Each scorer and acceptance by hand; the visit matters only without a scorer."""
    plain = {
        "stand": "router",
        "contested_llm": "citer_s",
        "contested_llm_logistic": "citer_s",
        "co_llm": "co_llm",
        "co_llm_logistic": "co_llm",
        "entropy": "entropy",
        "probability": "entropy",
    }
    audited = {"stand": "audited", "entropy": "bild", "probability": "bild"}
    for name, visit in product(NAMED, ("score", "risk")):
        assert method_of(Rule(visit, 0.5, 0.0, name)) == plain.get(name, "policy")
        assert method_of(Rule(visit, 0.5, 0.3, name)) == audited.get(name, "policy")
        assert method_of(Rule(visit, 0.5, 1.0, name)) == "exact"
    assert method_of(Rule("every", 4, 1.0)) == "speculative"
    assert method_of(Rule("every", 4, 0.3)) == "policy"
    assert method_of(Rule("every", 4, 1.0, draft="lookup")) == "lookup"
    for relaxed in (Rule("risk", 0.5, 0.3, "stand", "both"), Rule("risk", 0.5, 0.3, "", "lookup")):
        assert method_of(relaxed) == "policy"
        assert method_of(replace(relaxed, audit=1)) == "exact"
    assert method_of(Rule("every", 4, 1.0, draft="both")) == "exact"


def test_a_line_is_one_scorer_with_one_acceptance_and_has_its_methods_name(
    lines: list[Line],
) -> None:
    families = [{(rule.by, rule.audit, rule.draft) for rule in line.rules} for line in lines]
    assert all(len(family) == 1 for family in families)
    assert len(set().union(*families)) == len(lines) - 1  # a lookup by γ is a known method
    for line in lines:
        assert {method_of(rule) for rule in line.rules} == {line.method}
        assert line.style == STYLES[line.method]
    assert {line.method for line in lines} == set(STYLES)


def test_each_listed_method_has_its_own_candidates_and_together_they_have_all(
    lines: list[Line],
) -> None:
    own = {name: lines_for(name) for name in get_args(CandidateName)}
    assert {NAMES.get(name, name) for name in own} == set(STYLES)
    for name, found in own.items():
        assert {line.method for line in found} == {NAMES.get(name, name)}
    rules = [rule for found in own.values() for line in found for rule in line.rules]
    assert sorted(rules) == sorted(rule for line in lines for rule in line.rules)
    assert len(set(rules)) == len(rules)


def test_without_audits_in_the_settings_exact_candidates_remain() -> None:
    none = PARAMS.model_copy(update={"audits": ()})
    found = candidates(UNTRAINED | dict(ROUTER.heads), TAUS, none)
    assert {rule.audit for line in found for rule in line.rules} == {0, 1}


def test_quantiles_put_that_share_of_scores_below() -> None:
    scores = [n / 100 for n in range(100)]
    for fraction, tau in zip((0.1, 0.25), quantiles(scores, (0.1, 0.25)), strict=True):
        assert sum(score < tau for score in scores) == pytest.approx(100 * fraction, abs=1)
        assert tau not in scores


def test_equal_scores_give_one_threshold() -> None:
    assert quantiles([0.5] * 10, (0.1, 0.2, 0.3)) == [0.5]
