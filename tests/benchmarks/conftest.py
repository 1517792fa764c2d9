"""Fixtures: a tiny random pair to measure, and a taught one with questions."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from benchmarks.pairs import Subject, random_subject, shape
from citer.config.params import Params, load_params
from citer.data.problems import Problem
from citer.models.pair import Pair
from tests.labelling.conftest import Taught, taught  # noqa: F401

PROJECT = Path(__file__).parents[2]
SHAPES = {
    "slm": shape(64, 32, 1, 64, 4, 2, tied=True),
    "llm": shape(64, 48, 2, 96, 4, 2, tied=False),
}


@pytest.fixture(scope="session")
def subject() -> Subject:
    return random_subject("tiny", SHAPES, torch.float64, torch.device("cpu"))


class Own(NamedTuple):
    """What a run has: its settings, its pair and questions."""

    params: Params
    pair: Pair
    problems: Sequence[Problem]


@pytest.fixture(scope="session")
def own(taught: Taught) -> Own:  # noqa: F811
    """A tiny pair with three questions, and answers of at most 24 tokens."""
    params = load_params(PROJECT / "params.yaml")
    short = {"decode": params.decode.model_copy(update={"max_new_tokens": 24})}
    asked = list(taught.problems.values())[6:9]
    problems = [replace(problem, split="test") for problem in asked]
    return Own(params.model_copy(update=short), taught.pair, problems)
