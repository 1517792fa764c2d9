"""A tiny random pair to measure."""

import pytest
import torch

from benchmarks.padded import Shape
from benchmarks.pairs import Subject, qwen2, random_subject

SHAPES = {
    "slm": qwen2(Shape(64, 32, 64, 1, 4, 2, 8), tied=True),
    "llm": qwen2(Shape(64, 48, 96, 2, 4, 2, 12), tied=False),
}


@pytest.fixture(scope="session")
def subject() -> Subject:
    return random_subject("tiny", SHAPES, torch.float64, torch.device("cpu"))
