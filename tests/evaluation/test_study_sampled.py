"""A study that samples: all methods answer each question with the same noise."""

from dataclasses import replace

import pytest

from citer.config.params import SamplingParams
from citer.decoding.policy import CERTAINTIES, LLM_ALONE, SLM_ALONE, routed
from citer.evaluation.points import Findings, rule_of
from citer.evaluation.study import Study
from citer.models.router import Router
from tests.studied import (
    by_the_engine,
    changed,
    fixed_scorers,
    in_the_rows,
    llm_alone,
    own_scorers,
    rows_of,
)

WARM = SamplingParams(temperature=0.8, top_k=40)


@pytest.fixture(scope="module")
def sampled(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return replace(changed(study, sampling=WARM), partial=tmp_path_factory.mktemp("sampled"))


@pytest.fixture(scope="module")
def alone(sampled: Study, router: Router) -> Findings:
    return sampled.fixed(fixed_scorers(router))


def test_a_sampling_study_gives_the_samples_of_single_decodes(
    sampled: Study, alone: Findings, fixed: Findings
) -> None:
    for name, policy in (("slm", SLM_ALONE), ("llm", LLM_ALONE)):
        assert in_the_rows(alone, name, policy.rule) == by_the_engine(sampled, policy)
        assert in_the_rows(alone, name, policy.rule) != in_the_rows(fixed, name, policy.rule)


def test_exact_rules_give_the_llms_samples(sampled: Study, router: Router, alone: Findings) -> None:
    findings = alone.joined(sampled.candidates(own_scorers(router), alone))
    exact = {
        (row["method"], rule_of(row)) for row in findings.candidates.on_test if row["audit"] == 1
    }
    assert {rule.by for _, rule in exact} == {"", *CERTAINTIES, *router.heads}
    llm = llm_alone(alone, "test")
    for method, rule in exact:
        policy = routed(router, rule)
        assert in_the_rows(findings, method, rule) == by_the_engine(sampled, policy)
        for row in rows_of(findings, "test", method, rule):
            own = llm[row["problem_id"]]
            assert (row["correct"], row["tokens"]) == (own["correct"], own["tokens"])
