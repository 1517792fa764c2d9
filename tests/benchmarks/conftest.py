"""Fixtures: a tiny random pair to measure, and a frontier small enough to compute by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.costs import Outcomes
from benchmarks.pairs import Size, Sizes, Subject, random_subject
from benchmarks.workshop import Workshop
from citer.config.params import load_params
from citer.data.problems import Problem
from citer.decoding.answer import Counts, Work
from citer.evaluation.cost import Prices, Trace
from citer.evaluation.result import Result
from citer.evaluation.sweep import Run
from citer.rule import Rule
from tests.labelling.conftest import Taught, taught  # noqa: F401

PROJECT = Path(__file__).parents[2]
SIZES = Sizes(
    slm=Size(64, 32, 1, 64, 4, 2, tied=True),
    llm=Size(64, 48, 2, 96, 4, 2, tied=False),
)


@pytest.fixture(scope="session")
def subject() -> Subject:
    return random_subject("tiny", SIZES, torch.float64, torch.device("cpu"))


PRICES = Prices(slm_weights=1, llm_weights=10, slm_kv=0, llm_kv=0)


def run(at: float, forwards: bytes, correct: str, digests: str) -> Run:
    """Make four answers with these forwards, and a digit of `correct` and `digests` for each."""
    slm, llm = (Work(forwards.upper().count(model), 0, 0) for model in (b"S", b"L"))
    results = [
        Result(
            Problem(f"q{n}", "math", "", None, None, "1", "toy", "test"),
            Trace(forwards, slm, llm),
            scores=(),
            correct=right == "1",
            truncated=False,
            counts=Counts(4, llm.forwards, llm.forwards, 0, 0, 0),
            digest=int(digest),
        )
        for n, (right, digest) in enumerate(zip(correct, digests, strict=True))
    ]
    return Run("method", Rule("score", at), results, PRICES)


@pytest.fixture
def outcomes() -> Outcomes:
    """Five rules: costs .1, .325, .55, .775 and 1; right answers 1, 3, 2, 4 and 4."""
    return Outcomes.of(
        [
            run(0, b"Ssss", "1000", "1234"),
            run(0.2, b"SsLs", "1110", "1574"),
            run(0.4, b"SsLl", "1010", "1534"),
            run(0.6, b"SLll", "1111", "5678"),
            run(1, b"Llll", "1111", "5678"),
        ]
    )


@pytest.fixture(scope="session")
def shop(taught: Taught) -> Workshop:  # noqa: F811
    """A tiny pair whose preference questions are half validation's and half test's as well."""
    params = load_params(PROJECT / "params.yaml")
    short = {
        "decode": params.decode.model_copy(update={"max_new_tokens": 24}),
        "evaluate": params.evaluate.model_copy(update={"bounds": ()}),
    }
    params = params.model_copy(update=short)
    asked = list(taught.problems.values())
    validation = [replace(problem, split="validation") for problem in asked[:6]]
    test = [replace(problem, split="test") for problem in asked[6:]]
    return Workshop(params, taught.pair, taught.problems, validation, test, taught.tokens)
