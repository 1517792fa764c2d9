"""The engine against plain `generate` and against an uncached float64 decoder."""

import copy
from dataclasses import replace

import pytest
import torch

from citer.data.prompts import Encoded
from citer.decoding.answer import Answer, Request, Work
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy, StepView, routed
from citer.models.pair import LanguageModel, Pair
from citer.models.router import HIGHEST
from citer.rule import Rule
from tests.decoding.reference import (
    by_first_eos,
    by_llm,
    uncached,
)
from tests.graphs import uncaptured
from tests.heads import random_head, random_router

MAX_NEW_TOKENS = 24
FAMILY = [
    Rule.parse(text)
    for text in ("score 0", "score 0.4", "score 1", "risk 0.6 audit 0.1", "every 4 audit 1")
]


def make_requests(count: int, seed: int = 0, vocab: int = 300) -> list[Request]:
    """Make prompts of 1 to 30 random tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 31, (count,), generator=generator).tolist()
    return [
        Request(f"q{n}", tuple(torch.randint(vocab, (length,), generator=generator).tolist()))
        for n, length in enumerate(lengths)
    ]


def make_examples(count: int) -> dict[str, Encoded]:
    """Make references of four tokens behind the same prompts."""
    requests = enumerate(make_requests(count))
    return {r.key: Encoded(list(r.prompt_ids), [7, n, 9, 0]) for n, r in requests}


def decode(
    pair: Pair, requests: list[Request], policy: Policy, slots: int = 4
) -> tuple[dict[str, Answer], Engine]:
    engine = Engine(pair, slots=slots, max_new_tokens=MAX_NEW_TOKENS)
    return {answer.key: answer for answer in engine.decode(requests, policy)}, engine


def generate_alone(pair: Pair, model: LanguageModel, request: Request) -> list[int]:
    prompt = torch.tensor([request.prompt_ids])
    out = model.network.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=MAX_NEW_TOKENS,
        do_sample=False,
        eos_token_id=list(pair.eos_ids),
        pad_token_id=pair.eos_ids[0],
    )
    return by_first_eos(pair, out[0, prompt.shape[1] :].tolist())


@pytest.mark.parametrize("slots", [1, 3, 16])
@pytest.mark.parametrize("policy", [SLM_ALONE, LLM_ALONE], ids=["slm", "llm"])
def test_thresholds_0_and_1_give_the_slm_alone_and_the_llm_alone(
    pair: Pair, policy: Policy, slots: int
) -> None:
    model = pair.slm if policy is SLM_ALONE else pair.llm
    requests = make_requests(9)
    answers, engine = decode(pair, requests, policy, slots)
    for request in requests:
        answer = answers[request.key]
        assert list(answer.token_ids) == generate_alone(pair, model, request)
        assert set(answer.scores) == {HIGHEST if policy is SLM_ALONE else 0.0}
    idle = engine.llm_work if policy is SLM_ALONE else engine.slm_work
    assert idle == Work()


def test_answers_of_the_fixture_end_early_and_late(pair: Pair) -> None:
    lengths = {
        len(answer.token_ids) for answer in decode(pair, make_requests(30), SLM_ALONE)[0].values()
    }
    assert MAX_NEW_TOKENS in lengths
    assert len(lengths) > 5


def test_the_llm_writes_the_tokens_whose_score_is_below_the_threshold(pair: Pair) -> None:
    router = random_router(pair.slm.hidden_size, dtype=torch.float64)
    policy = routed(router, Rule("score", 0.5))
    requests = make_requests(8)
    answers, _ = decode(pair, requests, policy)
    for request in requests:
        answer = answers[request.key]
        assert (list(answer.token_ids), list(by_llm(answer))) == uncached(
            pair, request, policy, MAX_NEW_TOKENS
        )
        assert [score < 0.5 for score in answer.scores] == list(by_llm(answer))
    shares = [own for answer in answers.values() for own in by_llm(answer)]
    assert 0 < sum(shares) < len(shares)


def test_the_llm_replaces_a_token_whose_score_is_nan(pair: Pair) -> None:
    def overflowed(view: StepView) -> torch.Tensor:
        return torch.full_like(view.position_N, torch.nan, dtype=torch.float32)

    requests = make_requests(5)
    answers, _ = decode(pair, requests, Policy(overflowed, Rule("score", 0.01)))
    alone, _ = decode(pair, requests, LLM_ALONE)
    for key, answer in answers.items():
        assert answer.token_ids == alone[key].token_ids
        assert all(by_llm(answer))


def padded(model: LanguageModel) -> LanguageModel:
    """Add ids that no tokenizer has. Their logits are so large that the model would choose them."""
    network, vocab_size = copy.deepcopy(model.network), model.vocab_size
    network.resize_token_embeddings(vocab_size + 24, mean_resizing=False)
    with torch.no_grad():
        network.get_output_embeddings().weight[vocab_size:].normal_(std=20)
    return replace(model, network=network.requires_grad_(False))


@pytest.mark.parametrize("name", ["slm", "llm"])
def test_no_token_is_written_from_the_padding_of_a_vocabulary(kin: Pair, name: str) -> None:
    changed = replace(kin, **{name: padded(getattr(kin, name))})
    head = random_head(kin.slm.hidden_size, dtype=torch.float64)
    for rule in FAMILY:
        policy = Policy(head, rule)
        assert (
            decode(changed, make_requests(7), policy)[0] == decode(kin, make_requests(7), policy)[0]
        )


def with_other_ends(model: LanguageModel, eos_ids: tuple[int, ...]) -> LanguageModel:
    """Change the model: instead of an EOS it writes the next EOS of the set."""
    network, ends = copy.deepcopy(model.network), list(eos_ids)
    head = network.get_output_embeddings().weight
    head[ends] = head[ends].roll(1, 0)
    return replace(model, network=network)


@pytest.mark.parametrize("name", ["slm", "llm"])
def test_it_does_not_matter_which_eos_a_model_writes(kin: Pair, name: str) -> None:
    changed = replace(kin, **{name: with_other_ends(getattr(kin, name), kin.eos_ids)})
    head, ended = random_head(kin.slm.hidden_size, dtype=torch.float64), 0
    for rule in FAMILY:
        policy = Policy(head, rule)
        answers, _ = decode(kin, make_requests(12), policy)
        assert decode(changed, make_requests(12), policy)[0] == answers
        ended += sum(not answer.truncated for answer in answers.values())
    assert ended > 0


def overflowing(model: LanguageModel, token: int) -> LanguageModel:
    network = copy.deepcopy(model.network)
    network.get_input_embeddings().weight[token] = torch.inf
    return replace(model, network=network)


@pytest.mark.parametrize("policy", [SLM_ALONE, LLM_ALONE], ids=["slm", "llm"])
def test_an_overflowed_answer_does_not_change_the_next_one_in_its_slot(
    pair: Pair, policy: Policy
) -> None:
    """Use fixed shapes, as on a GPU. Attention then also covers unused positions of a slot."""
    changed = replace(pair, slm=overflowing(pair.slm, 5), llm=overflowing(pair.llm, 5))
    requests = [request for request in make_requests(9) if 5 not in request.prompt_ids]
    engine = Engine(changed, 1, MAX_NEW_TOKENS, make_graphs=uncaptured)
    list(engine.decode([Request("overflows", (5,) * 60)], policy))
    answers = {answer.key: answer for answer in engine.decode(requests, policy)}
    assert answers == decode(changed, requests, policy)[0]


def test_a_request_may_take_the_whole_context(pair: Pair) -> None:
    answers, _ = decode(pair, [Request("fits", (5,) * 1000)], SLM_ALONE)
    assert answers.keys() == {"fits"}
