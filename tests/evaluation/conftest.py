"""A study of a taught pair and a router of random weights, made once for all tests."""

from dataclasses import replace

import pytest
import torch

from citer.config.params import PairParams
from citer.evaluation.choice import Chosen
from citer.evaluation.points import Findings
from citer.evaluation.sequence import Step
from citer.evaluation.study import Study
from citer.executors.base import InLine
from citer.models.folder import PairFolder
from citer.models.pair import load_pair
from citer.models.router import Router
from tests.heads import random_router
from tests.studied import DECODE, PARAMS, SEED, THRESHOLDS, routed_study
from tests.taught import make_taught_pair, problems


@pytest.fixture(scope="session")
def study(tmp_path_factory) -> Study:
    questions = problems(12)
    slm, llm = make_taught_pair(tmp_path_factory.mktemp("taught"), questions)
    section = PairParams(slm=str(slm), llm=str(llm), device="cpu", dtype="float64")
    split = [replace(p, split="validation" if n < 6 else "test") for n, p in enumerate(questions)]
    holdout = [replace(p, split="preference") for p in questions[2:6]]
    pair = load_pair(PairFolder(slm, llm), section)
    partial = tmp_path_factory.mktemp("partial")
    return Study(InLine(), pair, split[:6], split[6:], PARAMS, DECODE, SEED, partial, holdout)


@pytest.fixture(scope="session")
def router(study: Study) -> Router:
    return random_router(study.pair.slm.hidden_size, seed=2, dtype=torch.float64)


@pytest.fixture(scope="session")
def rivals(study: Study) -> Findings:
    return study.rivals()


@pytest.fixture(scope="session")
def studied(study: Study, router: Router, rivals: Findings) -> tuple[Findings, Chosen, list[Step]]:
    return routed_study(study, router, THRESHOLDS, rivals)
