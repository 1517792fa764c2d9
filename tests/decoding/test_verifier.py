"""The `Verifier` protocol: an LLM in another process, and one without a cache."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy
from citer.decoding.served import verifier_of
from citer.labelling.scoring import half, llm_half, score
from citer.models.pair import Pair, Text
from citer.rule import Rule
from tests.decoding.reference import random_scorer
from tests.decoding.remote import remote
from tests.decoding.test_engine import MAX_NEW_TOKENS, make_examples, make_requests
from tests.decoding.test_trie import branches
from tests.noise import SAMPLINGS

SLOTS = 4
ROOT = Path(__file__).parents[2]
POLICIES = [
    LLM_ALONE,
    *(
        Policy(random_scorer, Rule.parse(text))
        for text in ("score 0.4", "risk 0.5", "risk 0.6 audit 0.1", "every 4 audit 1")
    ),
]


@pytest.fixture
def remote_pair(kin: Pair) -> Iterator[Pair]:
    with remote(kin, verifier_of(kin.llm, kin.vocabulary, SLOTS)) as pair:
        yield pair


def sampled(requests: list[Request]) -> list[Request]:
    """Sample all but every sixth request, each in another way."""
    ways = itertools.cycle([None, *SAMPLINGS])
    return [replace(request, sampling=way) for request, way in zip(requests, ways, strict=False)]


def decoded(engine: Engine, requests: list[Request], policies: list[Policy]) -> list[Answer]:
    return list(engine.sweep(requests, policies))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: str(policy.rule))
def test_an_llm_in_another_process_gives_the_same_answers(
    kin: Pair, remote_pair: Pair, policy: Policy
) -> None:
    requests = sampled(make_requests(9))
    requests += branches(requests[0], tuple(range(40, 60)), [0, 3, 19])
    local, far = (Engine(pair, SLOTS, MAX_NEW_TOKENS) for pair in (kin, remote_pair))
    assert decoded(far, requests, [policy]) == decoded(local, requests, [policy])
    assert far.llm_work == local.llm_work
    assert far.slm_work == local.slm_work


def test_an_llm_in_another_process_gives_the_same_sweep(kin: Pair, remote_pair: Pair) -> None:
    local, far = (Engine(pair, SLOTS, MAX_NEW_TOKENS, delayed=True) for pair in (kin, remote_pair))
    assert decoded(far, make_requests(6), POLICIES) == decoded(local, make_requests(6), POLICIES)


def test_an_llm_in_another_process_gives_the_same_teacher_forced_scores(
    kin: Pair, remote_pair: Pair
) -> None:
    examples = make_examples(9)
    local = score(half(kin.llm, kin.vocabulary), examples, 60, lambda _: None)

    def remote_half(texts: Sequence[Text]) -> dict[str, torch.Tensor]:
        return llm_half(remote_pair.llm, texts)

    assert score(remote_half, examples, 60, lambda _: None).equals(local)
