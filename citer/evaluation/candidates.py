"""The candidates: every scorer with every visit and every audit, all with the same settings.

A candidate belongs to one method. Known methods are points of this space:

    router        CITER (arXiv 2502.01976): `score` by `stand`
    audited       the same head, `score` or `risk`, with audits
    citer_s       CITER-S (the same paper): `score` by `contested_llm`, of either width
    co_llm        Co-LLM (arXiv 2403.03870): `score` by `co_llm`, of either width; the SLM is not
                  trained with it
    entropy       a threshold on certainty: `score` by `entropy` or `probability`; at 0 it is the
                  SLM alone
    bild          BiLD (Big Little Decoder, arXiv 2302.07863): by a certainty, with audits
    speculative   speculative decoding (arXiv 2211.17192): `every γ audit 1`, also with `cap γ`
    lookup        prompt lookup decoding: `every γ audit 1 from lookup`
    exact         any scorer with `audit 1`, among them SpecDec++ (arXiv 2405.19715)
    policy        all others
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, product

import numpy as np

from citer.config.params import EvaluateParams
from citer.decoding.policy import CERTAINTIES, Scorer, always_slm
from citer.evaluation.methods import ITERATIONS, Kind, Style
from citer.evaluation.sweep import Line
from citer.rule import Drafter, Rule
from citer.sections import CandidateName

PLAIN = {
    "stand": "router",
    **dict.fromkeys(("contested_llm", "contested_llm_logistic"), "citer_s"),
    **dict.fromkeys(("co_llm", "co_llm_logistic"), "co_llm"),
    **dict.fromkeys(CERTAINTIES, "entropy"),
}
EXACT = {("every", "slm"): "speculative", ("every", "lookup"): "lookup"}
RELAXED = {"stand": "audited", "entropy": "bild", "probability": "bild"}
NAMES: Mapping[CandidateName, str] = {"citer": "router", "any": "policy"}  # others are equal
# `Findings.of_iteration` replaces the look of those with the first iteration's.
STYLES = {
    "router": Style(Kind.ROUTER, *ITERATIONS[0]),
    "audited": Style(Kind.AUDITED, *ITERATIONS[0]),
    "policy": Style(Kind.POLICY, *ITERATIONS[0]),
    "exact": Style(Kind.EXACT, *ITERATIONS[0]),
    "entropy": Style(Kind.RIVAL, "#009E73", "^"),
    "bild": Style(Kind.RIVAL, "#009E73", "<"),
    "co_llm": Style(Kind.RIVAL, "#000000", "p"),
    "citer_s": Style(Kind.RIVAL, "#F0E442", "X"),
    "speculative": Style(Kind.EXACT, "#E69F00", "v"),
    "lookup": Style(Kind.EXACT, "#E69F00", "<"),
}
UNTRAINED: dict[str, Scorer] = {"": always_slm, **CERTAINTIES}


def method_of(rule: Rule) -> str:
    """Return the name of a candidate's method. The rule names its scorer."""
    if rule.exact:
        return EXACT.get((rule.visit, rule.draft), "exact")
    if rule.draft != "slm":
        return "policy"
    return (RELAXED if rule.audit else PLAIN).get(rule.by, "policy")


def candidates(
    scorers: Mapping[str, Scorer],
    taus: Mapping[str, Sequence[float]],
    params: EvaluateParams,
    drafters: Sequence[Drafter] = ("slm",),
    cap: int = 0,
) -> list[Line]:
    """Make the lines of all scorers and drafters for the methods that `params` lists.

    `taus` has the thresholds of each scorer. The scorer without a name visits every γ tokens. With
    a `cap`, all rules have it. Without one, drafts by count are tried in both ways: from the first
    token on, and under `cap γ` after a first token of the LLM, as in an inference server.
    """
    audits = sorted({0.0, *params.audits, 1.0})
    wanted = {NAMES.get(name, name) for name in params.candidates}
    lines = []
    for drafter, by, audit in product(drafters, scorers, audits):
        rules = _rules(drafter, by, audit, taus, params, cap)
        for method, own in groupby(rules, method_of):
            if method in wanted:
                lines.append(Line(method, scorers[by], [*own], STYLES[method]))
    return lines


def _rules(
    drafter: Drafter,
    by: str,
    audit: float,
    taus: Mapping[str, Sequence[float]],
    params: EvaluateParams,
    cap: int,
) -> Iterator[Rule]:
    """Yield the rules with this drafter, scorer and audit. Those of a method are neighbours."""
    if (drafter != "slm" and not audit) or (drafter == "lookup" and by):
        return
    rule = partial(Rule, audit=audit, by=by, draft=drafter, cap=cap)
    if by:
        never = [0.0] if by == "probability" and not audit else []
        yield from (rule("score", tau) for tau in (*never, *taus[by]))
    for gamma in params.gammas if audit and not by else ():
        if not cap or gamma <= cap:
            yield rule("every", gamma)
        if not cap and drafter == "slm":
            yield rule("every", gamma, cap=gamma)
    if audit and (by or drafter == "lookup"):
        yield from (rule("risk", rho) for rho in params.risks)


def quantiles(scores: Sequence[float], fractions: Sequence[float]) -> list[float]:
    """Return thresholds with these shares of the scores below them, midway between two scores."""
    return np.unique(np.quantile(scores, fractions, method="midpoint")).tolist()
