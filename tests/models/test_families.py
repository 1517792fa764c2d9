"""Each model type, from its folder to its answers, against transformers."""

from dataclasses import replace
from typing import get_args

import pytest
import torch
from safetensors.torch import load_file
from transformers import DynamicCache

from citer.config.params import PairParams
from citer.decoding.policy import SLM_ALONE, Policy, always_slm
from citer.models.cache import SlotCache
from citer.models.families import FAMILIES, ModelType
from citer.models.folder import PairFolder
from citer.models.pair import Pair, load_pair
from citer.rule import Rule
from tests.decoding.test_engine import decode, generate_alone, make_requests
from tests.networks import CASES, network
from tests.tiny import make_tiny_pair

VOCAB = 384
EXACT = Policy(always_slm, Rule.parse("every 4 audit 1"))
CHOSEN = [case for case in CASES if "," in case or case in ("ministral", "gemma3_text")]


@pytest.fixture(scope="module", params=CHOSEN)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A pair of one model type, in float64. The LLM is the SLM with some noise."""
    slm, llm = make_tiny_pair(tmp_path_factory.mktemp("family"))
    for path, noise in ((slm, 0.0), (llm, 0.02)):
        model = network(request.param, VOCAB)
        for weight in model.parameters():
            weight += noise * torch.randn(weight.shape, dtype=weight.dtype)
        model.save_pretrained(path)
    params = PairParams(slm=str(slm), llm=str(llm), device="cpu", dtype="float64")
    pair = load_pair(PairFolder(slm, llm), params)
    return replace(pair, eos_ids=(0, *range(10, VOCAB, 24)))


def test_answers_are_those_of_generate(family: Pair) -> None:
    requests = make_requests(3)
    answers, _ = decode(family, requests, SLM_ALONE)
    exact, _ = decode(family, requests, EXACT)
    for request in requests:
        key = request.key
        assert list(answers[key].token_ids) == generate_alone(family, family.slm, request)
        assert list(exact[key].token_ids) == generate_alone(family, family.llm, request)
    assert any(visit.rejects for answer in exact.values() for visit in answer.visits), "none cut"


@torch.inference_mode()
def test_the_states_are_the_input_of_the_head_and_give_its_logits(family: Pair) -> None:
    model, ids_T = family.llm, torch.arange(0, 300, 7)
    cache = SlotCache(model.network, slots=1)
    hidden_TH = model.consume(ids_T, cache.begin([0], [len(ids_T)], [len(ids_T)]), cache)
    out = model.network(ids_T[None], output_hidden_states=True)
    torch.testing.assert_close(hidden_TH, out.hidden_states[-1][0])
    torch.testing.assert_close(hidden_TH, model.last_hidden(input_ids=ids_T[None])[0])
    torch.testing.assert_close(model.logits(hidden_TH), out.logits[0])


@torch.inference_mode()
def test_the_card_has_the_sizes_of_weights_and_cache(family: Pair) -> None:
    model = family.slm
    stored = load_file(model.path / "model.safetensors")
    held = sum(weight.nbytes for weight in stored.values())
    untied = "lm_head.weight" in stored
    assert model.card.weight_bytes == held - untied * stored["model.embed_tokens.weight"].nbytes
    cache = DynamicCache()  # without the configuration, it keeps all positions
    model.network(torch.tensor([[5, 6, 7]]), past_key_values=cache)
    layers = [(layer.keys, layer.values) for layer in cache.layers]
    assert 3 * model.card.kv_bytes == sum(one.nbytes for both in layers for one in both)
    assert model.card.context == 256


def test_every_model_type_has_a_record_and_a_case() -> None:
    assert set(get_args(ModelType)) == set(FAMILIES) == {case.split(",")[0] for case in CASES}
