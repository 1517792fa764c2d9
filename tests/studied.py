"""Answer the questions of a study one at a time, choose rules, and select rows of its findings."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from citer.config.params import DecodeParams, EvaluateParams, Params, ServeParams
from citer.data.problems import Problem
from citer.data.tasks.grading import grade
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy, Scorer
from citer.evaluation.candidates import UNTRAINED
from citer.evaluation.choice import Chosen, Step, choose_rules
from citer.evaluation.cost import schedules
from citer.evaluation.measure import Conditions
from citer.evaluation.methods import Row
from citer.evaluation.points import Findings, rule_columns
from citer.evaluation.study import Study, study_stamp
from citer.evaluation.sweep import request
from citer.models.router import Router
from citer.rule import Rule
from tests.decoding.reference import by_llm

COMMON = ("agree", "co_llm")  # the heads of the taught router that are trained once
SEED = 3
DECODE = DecodeParams(slots=5, max_new_tokens=40)
EVALUATE = EvaluateParams(
    llm_fractions=(0.0, 0.1, 0.4, 1.0),
    risks=(0.2, 0.6),
    audits=(0.3, 1.0),
    gammas=(2, 3),
    epsilon=0.9,
    delta=0.2,
    llm_floor=0.2,
    batches=(1, 4),
)
PARAMS = Params.model_construct(
    seed=SEED, decode=DECODE, evaluate=EVALUATE, serve=ServeParams(batch=1)
)


def llm_alone(findings: Findings, split: str) -> dict[str, Row]:
    """Return the LLM's own outcomes on a split, by problem_id."""
    rows = findings.outcomes.to_pylist()
    own = (row for row in rows if (row["method"], row["split"]) == ("llm", split))
    return {row["problem_id"]: row for row in own}


def changed(study: Study, section: str = "evaluate", **settings: object) -> Study:
    """Return the study with other settings of a section."""
    own = getattr(study.params, section).model_copy(update=settings)
    return replace(study, params=study.params.model_copy(update={section: own}))


def fixed_scorers(router: Router) -> Mapping[str, Scorer]:
    """Return the scorers that are the same for all iterations."""
    common = Router({name: router.heads[name] for name in COMMON})
    return UNTRAINED | dict(common.heads)


def own_scorers(router: Router) -> Mapping[str, Scorer]:
    """Return the scorers of the heads that each iteration has anew."""
    return {name: own for name, own in router.heads.items() if name not in COMMON}


def routed_study(
    study: Study, router: Router, fixed: Findings
) -> tuple[Findings, Chosen, list[Step]]:
    """Try a router's own rules, and choose among these and the `fixed` ones."""
    findings = study.candidates(own_scorers(router), fixed)
    return findings, *chosen_of(study, fixed.joined(findings))


def unscreened(study: Study, router: Router) -> Findings:
    """Try all rules on all splits, also those that are not worth a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("citer.evaluation.study.worth_testing", lambda seen: range(len(seen)))
        fixed = study.fixed(fixed_scorers(router))
        return fixed.joined(study.candidates(own_scorers(router), fixed))


def chosen_of(study: Study, found: Findings) -> tuple[Chosen, list[Step]]:
    promised = study.params.evaluate.epsilon, study.params.evaluate.delta
    return choose_rules(found, study.measure, schedules(study.params.serve), *promised)


def stamp_of(study: Study) -> dict:
    asked, identity = [*study.validation, *study.test], study.pair.identity
    conditions = Conditions.of(asked, study.params.evaluate.sampling, identity)
    return study_stamp(identity, asked, conditions, study.params)


def by_the_engine(study: Study, policy: Policy) -> dict[str, tuple[bool, int, int]]:
    """Answer the test questions one at a time; return (correct, tokens, LLM's tokens) of each."""
    engine = Engine(study.pair, 1, DECODE.max_new_tokens)
    answers = {}
    for problem in study.test:
        (answer,) = engine.decode([request(problem, study.pair, study.sampler)], policy)
        right = not answer.truncated and grade(problem, study.pair.text(answer.token_ids))
        answers[problem.problem_id] = (right, len(answer.token_ids), sum(by_llm(answer)))
    return answers


def llm_writes(study: Study, problem: Problem) -> tuple[str, bool]:
    """Return the text of the LLM's own answer, and whether it was cut off."""
    engine = Engine(study.pair, 1, study.params.decode.max_new_tokens)
    (answer,) = engine.decode([request(problem, study.pair, study.sampler)], LLM_ALONE)
    return study.pair.text(answer.token_ids), answer.truncated


def in_the_rows(findings: Findings, method: str, rule: Rule) -> dict[str, tuple[bool, int, int]]:
    return {
        row["problem_id"]: (row["correct"], row["tokens"], row["llm_tokens"])
        for row in rows_of(findings, "test", method, rule)
    }


def rows_of(findings: Findings, split: str, method: str, rule: Rule) -> list[dict]:
    wanted = {"split": split, "method": method, **rule_columns(rule)}
    return [row for row in findings.outcomes.to_pylist() if row.items() >= wanted.items()]
