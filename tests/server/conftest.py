from collections.abc import Iterator

import openai
import pytest

from citer.models.pair import Pair
from tests.server.running import Running, deployed, running


@pytest.fixture(scope="module")
def server(kin: Pair) -> Iterator[Running]:
    """A server that several tests share."""
    with running(deployed(kin)) as started:
        yield started


@pytest.fixture(scope="module")
def client(server: Running) -> openai.OpenAI:
    return server.client()
