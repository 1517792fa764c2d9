"""A tiny random pair to measure."""

import pytest
import torch

from benchmarks.pairs import Subject, random_subject, shape

SHAPES = {
    "slm": shape(64, 32, 1, 64, 4, 2, tied=True),
    "llm": shape(64, 48, 2, 96, 4, 2, tied=False),
}


@pytest.fixture(scope="session")
def subject() -> Subject:
    return random_subject("tiny", SHAPES, torch.float64, torch.device("cpu"))
