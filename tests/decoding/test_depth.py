"""The number of nested calls from a caller of the engine to a network."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy
from citer.models.pair import LanguageModel, Pair
from citer.rule import Rule
from tests.decoding.reference import random_scorer
from tests.graphs import uncaptured

MOST = 8
OURS = str(Path(__file__).parents[2] / "citer")
POLICY = Policy(random_scorer, Rule("risk", 0.5, 0.5))
REQUESTS = [Request(f"q{n}", (n, 5, 9), trunk_ids=(n, 5, 7)) for n in range(5)]


@contextmanager
def probed(model: LanguageModel) -> Iterator[set[int]]:
    """Yield the depths at which the network is entered. Only frames of citer's code count."""
    depths: set[int] = set()

    def enter(module: object, args: object) -> None:
        frame, depth = sys._getframe(), 0
        while frame := frame.f_back:  # type: ignore[assignment]
            depth += frame.f_code.co_filename.startswith(OURS)
        depths.add(depth)

    hook = model.network.get_input_embeddings().register_forward_pre_hook(enter)
    yield depths
    hook.remove()


def by_decode(engine: Engine) -> None:
    assert len(list(engine.decode(REQUESTS, POLICY))) == len(REQUESTS)


def by_step(engine: Engine) -> None:
    for request in REQUESTS:
        engine.submit(request, POLICY)
    for _ in range(60):
        engine.step()


@pytest.mark.parametrize("caller", [by_decode, by_step])
def test_a_forward_is_at_most_eight_calls_from_the_caller(
    kin: Pair, caller: Callable[[Engine], None]
) -> None:
    with probed(kin.slm) as slm, probed(kin.llm) as llm:
        caller(Engine(kin, 2, 8))
    assert slm
    assert llm
    assert max(slm | llm) <= MOST


def test_the_probe_sees_a_deeper_call(kin: Pair) -> None:
    """The first forward of a graph is deeper by the two calls of the graph."""
    with probed(kin.slm) as depths:
        by_decode(Engine(kin, 2, 8, make_graphs=uncaptured))
    assert max(depths) > MOST
