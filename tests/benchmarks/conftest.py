"""A tiny random pair, asked as the large ones are."""

import pytest
import torch

from benchmarks.pairs import Size, Sizes, Subject, random_subject
from tests.labelling.conftest import taught  # noqa: F401

SIZES = Sizes(
    slm=Size(64, 32, 1, 64, 4, 2, tied=True),
    llm=Size(64, 48, 2, 96, 4, 2, tied=False),
)


@pytest.fixture(scope="session")
def subject() -> Subject:
    return random_subject("tiny", SIZES, torch.float64, torch.device("cpu"))
