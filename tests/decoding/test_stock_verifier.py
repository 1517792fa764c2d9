"""The stock forward behind the verifier, against our own forward."""

import pickle
from dataclasses import replace

import pytest
import torch

from citer.config.params import PairParams
from citer.decoding.answer import Trunk
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy
from citer.decoding.served import verifier_of
from citer.decoding.verifier import LocalVerifier, Query, Verdict
from citer.labelling.scoring import half, score
from citer.models.cache import SlotCache
from citer.models.device import device_for, device_map_for
from citer.models.folder import ModelFolder
from citer.models.network import stock_hidden
from citer.models.pair import LanguageModel, Pair, load_model
from tests.decoding.reference import by_llm, rounded
from tests.decoding.test_engine import decode, make_examples, make_requests
from tests.decoding.test_trie import branches
from tests.decoding.test_verifier import POLICIES

SLOTS = 4
OFFLOADED = {
    "model.embed_tokens": "cpu",
    "model.rotary_emb": "cpu",
    "model.layers.0": "disk",
    "model.layers.1": "cpu",
    "model.norm": "disk",
    "lm_head": "cpu",
}
PROMPT = (7, 3, 99, 12, 5, 60, 41, 2)


def in_stock(model: LanguageModel) -> LanguageModel:
    return replace(model, forward=stock_hidden)


@pytest.fixture
def stock_pair(kin: Pair) -> Pair:
    return replace(kin, llm=in_stock(kin.llm))


def placement(model: LanguageModel) -> PairParams:
    """Parameters by which `load_model` chooses the stock forward."""
    folder = str(model.path)
    settings = {"device": "cpu", "dtype": "float64", "llm_device_map": "auto"}
    return PairParams(slm=folder, llm=folder, **settings)


def calls() -> list[list[Query]]:
    """Prefills, catch-ups, a rollback and a trunk; several slots in one call, in any order."""
    trunk = (*PROMPT, *range(20, 32))
    return [
        [Query(PROMPT, 8, 4, slot=2), Query(PROMPT[:3], 2, None, slot=0)],
        [
            Query((*PROMPT, 4, 9, 9), 9, 1, slot=2, kept=8),
            Query((*PROMPT[:3], 50), 4, None, slot=0, kept=3),
            Query((*trunk[:15], 77), 16, 1, slot=3, trunk=Trunk(trunk, 15)),
        ],
        [
            Query((*PROMPT, 4, 8, 8, 8, 8), 10, 2, slot=2, kept=9),
            Query((*trunk[:9], 5), 10, None, slot=1, trunk=Trunk(trunk, 9)),
            Query((*PROMPT[:3], 50, 51), 5, 3, slot=0, kept=4),
        ],
    ]


@torch.inference_mode()
def verdicts(verifier: LocalVerifier) -> list[Verdict]:
    return [verdict for call in calls() for row in verifier.verdicts(call) for verdict in row]


def assert_equal_verifiers(model: LanguageModel, pair: Pair) -> None:
    """Compare verdicts and work of a stock model with those of the pair's LLM."""
    ours, theirs = (verifier_of(each, pair.vocabulary, SLOTS) for each in (pair.llm, model))
    expected, found = verdicts(ours), verdicts(theirs)
    assert [each.token for each in found] == [each.token for each in expected]
    assert [each.odds for each in found] == pytest.approx([each.odds for each in expected])
    assert theirs.work == ours.work


def test_verdicts_and_work_are_those_of_our_forward(kin: Pair, stock_pair: Pair) -> None:
    assert_equal_verifiers(stock_pair.llm, kin)


def test_a_cache_on_two_devices_gives_the_same_verdicts(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU has one device by two names. The network has two layers."""
    layers = list(pair.llm.network.base_model.layers)
    monkeypatch.setattr(
        "citer.models.cache.device_of", lambda layer: torch.device("cpu", layers.index(layer))
    )
    parts = SlotCache(pair.llm.network, SLOTS).parts_2LSKPD
    assert [part.shape[1] for part in parts.values()] == [1, 1]
    assert_equal_verifiers(in_stock(pair.llm), pair)


@pytest.mark.parametrize("device_map", ["cpu", OFFLOADED], ids=["one device", "offloaded"])
def test_a_model_that_accelerate_dispatches_gives_the_same_verdicts(
    pair: Pair, device_map: str | dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citer.models.network.device_map_for", lambda *_: device_map)
    loaded = load_model("llm", ModelFolder(pair.llm.path), placement(pair.llm))
    offloaded = {name for name, weight in loaded.network.named_parameters() if weight.is_meta}
    assert bool(offloaded) == (device_map is OFFLOADED)
    assert loaded.card == pair.llm.card
    assert_equal_verifiers(loaded, pair)
    assert_equal_verifiers(pickle.loads(pickle.dumps(loaded)), pair)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: str(policy.rule))
def test_answers_and_work_are_those_of_our_forward(
    kin: Pair, stock_pair: Pair, policy: Policy
) -> None:
    requests = make_requests(9)
    requests += branches(requests[0], tuple(range(40, 60)), [0, 3, 19])
    (ours, engine), (theirs, stocked) = (
        decode(pair, requests, policy) for pair in (kin, stock_pair)
    )
    for key, answer in ours.items():
        assert theirs[key].token_ids == answer.token_ids
        assert by_llm(theirs[key]) == by_llm(answer)
        assert rounded(theirs[key].visits) == rounded(answer.visits)
    assert (stocked.slm_work, stocked.llm_work) == (engine.slm_work, engine.llm_work)


def test_teacher_forced_scores_are_those_of_our_model(pair: Pair) -> None:
    loaded = load_model("llm", ModelFolder(pair.llm.path), placement(pair.llm))
    examples = make_examples(9)
    ours, theirs = (
        score(half(model, pair.vocabulary), examples, 60, lambda _: None)
        for model in (pair.llm, loaded)
    )
    assert theirs.column("llm_token").equals(ours.column("llm_token"))
    logprobs = (each.column("llm_logprob_gt").to_pylist() for each in (theirs, ours))
    assert next(logprobs) == pytest.approx(next(logprobs))


def test_a_stock_model_is_not_captured_as_cuda_graphs(stock_pair: Pair) -> None:
    made = []
    Engine(stock_pair, 2, 8, make_graphs=lambda model, _: made.append(model))
    assert made == [stock_pair.slm]


def test_several_gpus_share_the_llm_and_the_slm_runs_on_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    params = PairParams(slm="s", llm="l", device="cuda", dtype="float32", llm_device_map="auto")
    assert device_for("slm", params) == torch.device("cuda", 2)
    assert device_map_for("llm", params) == "auto"
    one = params.model_copy(update={"llm_device_map": None})
    assert (str(device_for("slm", one)), device_map_for("llm", one)) == ("cuda", "cuda")
