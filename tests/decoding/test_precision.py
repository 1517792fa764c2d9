"""The engine with graphs, on a GPU and in float32, against itself in float64 on a CPU."""

import copy
from dataclasses import replace
from itertools import takewhile

import pytest
import torch

from citer.config.params import PairParams
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy
from citer.decoding.runner import MakeGraphs
from citer.models.folder import PairFolder
from citer.models.graphs import cuda_graphs, no_graphs
from citer.models.pair import Pair, load_pair
from citer.rule import Rule
from tests.decoding.reference import (
    next_hidden,
    random_scorer,
    rounded,
)
from tests.decoding.test_engine import FAMILY, MAX_NEW_TOKENS, decode, make_requests
from tests.decoding.test_trie import TAUS
from tests.graphs import Traced
from tests.heads import random_head


def loaded_again(pair: Pair, device: str, dtype: str) -> Pair:
    slm, llm = pair.slm.path, pair.llm.path
    params = PairParams(slm=str(slm), llm=str(llm), device=device, dtype=dtype)
    return replace(load_pair(PairFolder(slm, llm), params), eos_ids=pair.eos_ids)


def assert_same_answers(first: Engine, second: Engine, pair: Pair) -> None:
    """Compare tokens exactly, and scores and odds up to rounding."""
    scorer = random_head(pair.slm.hidden_size, dtype=torch.float64).to(pair.slm.device)
    policies = [Policy(each, rule) for rule in FAMILY for each in (scorer, random_scorer)]
    answers, expected = (
        {(answer.key, answer.policy): answer for answer in engine.sweep(make_requests(4), policies)}
        for engine in (first, second)
    )
    assert answers.keys() == expected.keys()
    for key, answer in answers.items():
        other = expected[key]
        assert answer.scores == pytest.approx(other.scores, abs=1e-9)
        assert rounded(answer.visits) == rounded(other.visits)
        assert answer == replace(other, scores=answer.scores, visits=answer.visits)
    assert (first.slm_work, first.llm_work) == (second.slm_work, second.llm_work)


@pytest.mark.parametrize("slots", [1, 3])
def test_replayed_forwards_give_the_same_answers_as_launched_ones(kin: Pair, slots: int) -> None:
    traced = Traced()
    graphed = Engine(kin, slots, MAX_NEW_TOKENS, make_graphs=traced)
    assert_same_answers(graphed, Engine(kin, slots, MAX_NEW_TOKENS), kin)
    assert traced.captures > 0


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("make_graphs", [cuda_graphs, no_graphs])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("tau", TAUS)
def test_a_gpu_gives_the_same_answers_as_a_cpu(
    pair: Pair, tau: float, dtype: str, make_graphs: MakeGraphs
) -> None:
    policy = Policy(random_scorer, Rule("score", tau))
    gpu_pair = loaded_again(pair, "cuda", dtype)
    engine = Engine(gpu_pair, 4, MAX_NEW_TOKENS, make_graphs=make_graphs)
    expected, _ = decode(pair, make_requests(20), policy)
    for answer in engine.decode(make_requests(20), policy):
        other = expected.pop(answer.key)
        assert answer.scores == pytest.approx(other.scores, abs=1e-12)  # a GPU divides otherwise
        assert answer == replace(other, scores=answer.scores)
    assert not expected


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("slots", [1, 3, 16])
def test_graphs_on_a_gpu_give_the_same_answers_as_launched_kernels(kin: Pair, slots: int) -> None:
    network = copy.deepcopy(kin.llm.network).to("cuda")
    gpu_pair = loaded_again(kin, "cuda", "float64")
    gpu_pair = replace(gpu_pair, llm=replace(gpu_pair.llm, network=network))
    graphed = Engine(gpu_pair, slots, MAX_NEW_TOKENS)
    launched = Engine(gpu_pair, slots, MAX_NEW_TOKENS, make_graphs=no_graphs)
    assert_same_answers(graphed, launched, gpu_pair)


def test_float32_first_differs_only_at_a_near_tie(pair: Pair) -> None:
    """Invariant 2 in lower precision: the LLM's margin at a first difference is below 1e-4."""
    single = loaded_again(pair, "cpu", "float32")
    requests = make_requests(20)
    answers, _ = decode(single, requests, LLM_ALONE, slots=7)
    exact, _ = decode(pair, requests, LLM_ALONE, slots=7)
    for request in requests:
        both = zip(answers[request.key].token_ids, exact[request.key].token_ids, strict=False)
        same = sum(1 for _ in takewhile(lambda tokens: tokens[0] == tokens[1], both))
        if same < len(exact[request.key].token_ids):
            ids = [*request.prompt_ids, *exact[request.key].token_ids[:same]]
            first, second = pair.llm.logits(next_hidden(pair.llm, ids))[0].topk(2).values
            assert first - second < 1e-4
