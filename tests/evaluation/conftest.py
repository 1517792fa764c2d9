"""A study of a taught pair and a router of random weights, made once for all tests."""

from dataclasses import replace

import pytest
import torch

from citer.config.params import PairParams
from citer.evaluation.choice import Chosen, Step
from citer.evaluation.measure import ACCURACY
from citer.evaluation.points import Findings
from citer.evaluation.study import Study
from citer.executors.base import InLine
from citer.models.folder import PairFolder
from citer.models.pair import load_pair
from citer.models.router import Router
from tests.heads import random_head
from tests.studied import COMMON, PARAMS, fixed_scorers, routed_study
from tests.taught import make_taught_pair, problems


@pytest.fixture(scope="session")
def study(tmp_path_factory) -> Study:
    questions = problems(12)
    slm, llm = make_taught_pair(tmp_path_factory.mktemp("taught"), questions)
    section = PairParams(slm=str(slm), llm=str(llm), device="cpu", dtype="float64")
    split = [replace(p, split="validation" if n < 6 else "test") for n, p in enumerate(questions)]
    holdout = [replace(p, split="preference") for p in questions[2:6]]
    pair = load_pair(PairFolder(slm, llm), section)
    asked = split[:6], split[6:]
    partial = tmp_path_factory.mktemp("partial")
    return Study(InLine(), pair, *asked, holdout, ACCURACY, PARAMS, partial)


@pytest.fixture(scope="session")
def router(study: Study) -> Router:
    names = enumerate(("stand", "narrow", *COMMON), start=2)
    size = study.pair.slm.hidden_size
    return Router({name: random_head(size, seed, dtype=torch.float64) for seed, name in names})


@pytest.fixture(scope="session")
def fixed(study: Study, router: Router) -> Findings:
    return study.fixed(fixed_scorers(router))


@pytest.fixture(scope="session")
def studied(study: Study, router: Router, fixed: Findings) -> tuple[Findings, Chosen, list[Step]]:
    return routed_study(study, router, fixed)
