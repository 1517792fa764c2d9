"""The engine against plain `generate` and against an uncached float64 decoder."""

import copy
from dataclasses import replace
from itertools import takewhile

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from citer.config import PairParams
from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine
from citer.decoding.lane import MakeGraphs
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy, ScoredBy, StepView, routed
from citer.decoding.work import Work
from citer.errors import InputError
from citer.evaluation.cost import Trace, replay
from citer.models.folder import PairFolder
from citer.models.graphs import cuda_graphs, no_graphs
from citer.models.pair import LanguageModel, Pair, load_pair
from citer.models.router import HIGHEST
from citer.rule import Rule
from tests.decoding.reference import (
    by_first_eos,
    next_hidden,
    random_scorer,
    rounded,
    uncached,
)
from tests.graphs import Traced, uncaptured
from tests.heads import random_head, random_router

MAX_NEW_TOKENS = 24


def requests(count: int, seed: int = 0, vocab: int = 300) -> list[Request]:
    """Prompts of 1 to 30 random tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 31, (count,), generator=generator).tolist()
    return [
        Request(f"q{n}", tuple(torch.randint(vocab, (length,), generator=generator).tolist()))
        for n, length in enumerate(lengths)
    ]


def decode(
    pair: Pair, asked: list[Request], policy: Policy, slots: int = 4
) -> tuple[dict[str, Answer], Engine]:
    engine = Engine(pair, slots=slots, max_new_tokens=MAX_NEW_TOKENS)
    return {answer.key: answer for answer in engine.decode(asked, policy)}, engine


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
def test_an_end_of_the_threshold_is_that_model_alone(
    pair: Pair, policy: Policy, slots: int
) -> None:
    model = pair.slm if policy is SLM_ALONE else pair.llm
    asked = requests(9)
    answers, engine = decode(pair, asked, policy, slots)
    for request in asked:
        answer = answers[request.key]
        assert list(answer.token_ids) == generate_alone(pair, model, request)
        assert set(answer.scores) == {HIGHEST if policy is SLM_ALONE else 0.0}
    idle = engine.llm_work if policy is SLM_ALONE else engine.slm_work
    assert idle == Work()


def test_answers_of_the_fixture_end_early_and_late(pair: Pair) -> None:
    lengths = {
        len(answer.token_ids) for answer in decode(pair, requests(30), SLM_ALONE)[0].values()
    }
    assert MAX_NEW_TOKENS in lengths
    assert len(lengths) > 5


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 7),
    slots=st.integers(1, 5),
    tau=st.sampled_from([0.05, 0.3, 0.6, 0.95]),
    order=st.randoms(use_true_random=False),
)
def test_cached_and_batched_equal_uncached_and_single(pair, seed, count, slots, tau, order) -> None:
    asked = requests(count, seed)
    order.shuffle(asked)
    policy = Policy(random_scorer, Rule("score", tau))
    answers, _ = decode(pair, asked, policy, slots)
    for request in asked:
        tokens, by_llm = uncached(pair, request, policy, MAX_NEW_TOKENS)
        assert list(answers[request.key].token_ids) == tokens
        assert list(answers[request.key].by_llm) == by_llm


def test_a_trained_router_routes_as_its_scores_say(pair: Pair) -> None:
    router = random_router(pair.slm.hidden_size, dtype=torch.float64)
    policy = routed(router, Rule("score", 0.5))
    asked = requests(8)
    answers, _ = decode(pair, asked, policy)
    for request in asked:
        answer = answers[request.key]
        assert (list(answer.token_ids), list(answer.by_llm)) == uncached(
            pair, request, policy, MAX_NEW_TOKENS
        )
        assert [score < 0.5 for score in answer.scores] == list(answer.by_llm)
    shares = [by_llm for answer in answers.values() for by_llm in answer.by_llm]
    assert 0 < sum(shares) < len(shares)


def test_a_token_whose_score_overflowed_does_not_stand(pair: Pair) -> None:
    def overflowed(view: StepView) -> torch.Tensor:
        return torch.full_like(view.position_N, torch.nan, dtype=torch.float32)

    asked = requests(5)
    answers, _ = decode(pair, asked, Policy(overflowed, Rule("score", 0.01)))
    alone, _ = decode(pair, asked, LLM_ALONE)
    for key, answer in answers.items():
        assert answer.token_ids == alone[key].token_ids
        assert all(answer.by_llm)


def padded(model: LanguageModel) -> LanguageModel:
    """With ids that no tokenizer has, and that it would write wherever it is let."""
    network, vocab_size = copy.deepcopy(model.network), model.vocab_size
    network.resize_token_embeddings(vocab_size + 24, mean_resizing=False)
    with torch.no_grad():
        network.get_output_embeddings().weight[vocab_size:].normal_(std=20)
    return replace(model, network=network.requires_grad_(False))


@pytest.mark.parametrize("name", ["slm", "llm"])
def test_no_token_is_written_from_the_padding_of_a_vocabulary(kin: Pair, name: str) -> None:
    there = replace(kin, **{name: padded(getattr(kin, name))})
    head = random_head(kin.slm.hidden_size, dtype=torch.float64)
    for rule in FAMILY:
        policy = Policy(ScoredBy(head), rule)
        assert decode(there, requests(7), policy)[0] == decode(kin, requests(7), policy)[0]


def with_other_ends(model: LanguageModel, eos_ids: tuple[int, ...]) -> LanguageModel:
    """It writes the next EOS of the set where it would have written one."""
    network, ends = copy.deepcopy(model.network), list(eos_ids)
    head = network.get_output_embeddings().weight
    head[ends] = head[ends].roll(1, 0)
    return replace(model, network=network)


@pytest.mark.parametrize("name", ["slm", "llm"])
def test_which_eos_a_model_prefers_changes_nothing(kin: Pair, name: str) -> None:
    there = replace(kin, **{name: with_other_ends(getattr(kin, name), kin.eos_ids)})
    head, ended = random_head(kin.slm.hidden_size, dtype=torch.float64), 0
    for rule in FAMILY:
        policy = Policy(ScoredBy(head), rule)
        answers, _ = decode(kin, requests(12), policy)
        assert decode(there, requests(12), policy)[0] == answers
        ended += sum(not answer.truncated for answer in answers.values())
    assert ended > 0


def overflowing(model: LanguageModel, token: int) -> LanguageModel:
    network = copy.deepcopy(model.network)
    network.get_input_embeddings().weight[token] = torch.inf
    return replace(model, network=network)


@pytest.mark.parametrize("policy", [SLM_ALONE, LLM_ALONE], ids=["slm", "llm"])
def test_an_answer_that_overflowed_does_the_next_in_its_slot_no_harm(
    pair: Pair, policy: Policy
) -> None:
    """At fixed shapes, as on a GPU: attention then looks at more than a slot holds."""
    there = replace(pair, slm=overflowing(pair.slm, 5), llm=overflowing(pair.llm, 5))
    asked = [request for request in requests(9) if 5 not in request.prompt_ids]
    engine = Engine(there, 1, MAX_NEW_TOKENS, make_graphs=uncaptured)
    list(engine.decode([Request("overflows", (5,) * 60)], policy))
    answers = {answer.key: answer for answer in engine.decode(asked, policy)}
    assert answers == decode(there, asked, policy)[0]


def test_a_decode_that_was_left_early_does_the_next_no_harm(pair: Pair) -> None:
    policy, asked = Policy(random_scorer, Rule("risk", 0.6, 0.5)), requests(9)
    engine = Engine(pair, slots=4, max_new_tokens=MAX_NEW_TOKENS)
    left = engine.decode(requests(9, seed=1), policy)
    next(left)
    left.close()
    answers = {answer.key: answer for answer in engine.decode(asked, policy)}
    assert answers == decode(pair, asked, policy)[0]


def test_nothing_follows_eos_and_only_the_budget_truncates(pair: Pair) -> None:
    for answer in decode(pair, requests(30), Policy(random_scorer, Rule("score", 0.4)))[0].values():
        assert not set(answer.token_ids[:-1]) & set(pair.eos_ids)
        assert answer.truncated == (answer.token_ids[-1] not in pair.eos_ids)
        assert not answer.truncated or len(answer.token_ids) == MAX_NEW_TOKENS


def trace(request: Request, answer: Answer) -> Trace:
    return Trace.of(len(request.prompt_ids), len(answer.token_ids), answer.visits)


def traces(asked: list[Request], answers: dict[str, Answer]) -> list[Trace]:
    return [trace(one, answers[one.key]) for one in asked]


@pytest.mark.parametrize("slots", [1, 2, 6])
def test_each_model_processes_each_position_once_as_the_replay_counts(
    pair: Pair, slots: int
) -> None:
    asked = requests(20)
    answers, engine = decode(pair, asked, Policy(random_scorer, Rule("score", 0.4)), slots)
    assert (engine.slm_work, engine.llm_work) == replay(traces(asked, answers), slots)


def test_one_answer_alone_costs_what_its_decisions_say(pair: Pair) -> None:
    for request in requests(6):
        answers, engine = decode(
            pair, [request], Policy(random_scorer, Rule("score", 0.4)), slots=1
        )
        answer, prompt = answers[request.key], len(request.prompt_ids)
        visits = [prompt + n for n, by_llm in enumerate(answer.by_llm) if by_llm]
        assert engine.slm_work.positions == prompt + len(answer.token_ids) - 1
        assert engine.llm_work == Work(len(visits), visits[-1] if visits else 0, sum(visits))


def test_a_finished_answer_frees_its_slot_at_once(pair: Pair) -> None:
    """Two slots: the SLM's steps are those of a first-come queue, none is spent on the dead."""
    asked = requests(12)
    answers, engine = decode(pair, asked, SLM_ALONE, slots=2)
    busy_until = [0, 0]
    for request in asked:
        slot = busy_until.index(min(busy_until))
        busy_until[slot] += len(answers[request.key].token_ids)
    decode_rows = engine.slm_work.positions - sum(len(request.prompt_ids) for request in asked)
    assert decode_rows == sum(len(answer.token_ids) - 1 for answer in answers.values())
    assert engine.slm_work.forwards <= max(busy_until) + len(asked)


def branches(asked: Request, reference: tuple[int, ...], cuts: list[int]) -> list[Request]:
    """Answers that leave one reference at several places, each with another token."""
    trunk = (*asked.prompt_ids, *reference)
    return [
        Request(f"{asked.key}@{cut}", asked.prompt_ids, (*reference[:cut], 7 + cut), trunk)
        for cut in cuts
    ]


@pytest.mark.parametrize("tau", [0.0, 0.4, 1.0])
def test_a_fork_of_a_trunk_equals_a_fresh_decode_of_its_prefix(pair: Pair, tau: float) -> None:
    policy = Policy(random_scorer, Rule("score", tau))
    asked = [
        branch
        for n, request in enumerate(requests(12))
        for branch in branches(request, tuple(range(40 + n, 60 + n)), [0, 3, 3 + n, 19])
    ]
    forked, engine = decode(pair, asked, policy, slots=5)
    fresh, plain = decode(pair, [replace(one, trunk_ids=None) for one in asked], policy, slots=5)
    for key, answer in fresh.items():
        assert forked[key].token_ids == answer.token_ids
        assert forked[key].by_llm == answer.by_llm
    assert engine.slm_work.positions <= plain.slm_work.positions
    assert engine.llm_work.positions <= plain.llm_work.positions


TAUS = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]
AT_TAUS = [Policy(random_scorer, Rule("score", tau)) for tau in TAUS]


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 6), slots=st.integers(1, 5))
def test_a_sweep_is_a_decode_at_every_threshold(pair: Pair, seed, count, slots) -> None:
    asked = requests(count, seed)
    engine = Engine(pair, slots, MAX_NEW_TOKENS)
    swept = {(answer.key, answer.policy.rule.at): answer for answer in engine.sweep(asked, AT_TAUS)}
    assert len(swept) == count * len(TAUS)
    for tau in TAUS:
        alone, _ = decode(pair, asked, Policy(random_scorer, Rule("score", tau)))
        for key, answer in alone.items():
            assert swept[key, tau].token_ids == answer.token_ids
            assert swept[key, tau].by_llm == answer.by_llm
            assert swept[key, tau].truncated == answer.truncated


def test_a_sweep_computes_shared_beginnings_once(pair: Pair) -> None:
    """Work of the trie: below the sum over thresholds, not below the dearest of them."""
    asked = requests(30)
    engine = Engine(pair, 4, MAX_NEW_TOKENS)
    list(engine.sweep(asked, AT_TAUS))
    single = [decode(pair, asked, Policy(random_scorer, Rule("score", tau)))[1] for tau in TAUS]
    for name in ("slm_work", "llm_work"):
        positions = [getattr(one, name).positions for one in single]
        assert max(positions) <= getattr(engine, name).positions < sum(positions)


def test_a_sweep_forks_only_where_tokens_differ(pair: Pair) -> None:
    """A model beside itself: all thresholds share all tokens, whatever the scores."""
    twins = replace(pair, llm=pair.slm)
    asked = requests(12)
    engine = Engine(twins, 4, MAX_NEW_TOKENS)
    list(engine.sweep(asked, AT_TAUS))
    single = decode(twins, asked, Policy(random_scorer, Rule("score", 0.9)))[1]
    assert engine.slm_work.positions == single.slm_work.positions


def test_a_request_beyond_the_context_is_refused_by_name(pair: Pair) -> None:
    with pytest.raises(
        InputError,
        match=r"long: 1020 tokens and up to 24 more \(max_new_tokens\), expected at most 1024",
    ):
        decode(pair, [Request("long", (5,) * 1020)], SLM_ALONE)


def test_a_request_may_take_the_whole_context(pair: Pair) -> None:
    answers, _ = decode(pair, [Request("fits", (5,) * 1000)], SLM_ALONE)
    assert answers.keys() == {"fits"}


def loaded_again(pair: Pair, device: str, dtype: str) -> Pair:
    slm, llm = pair.slm.path, pair.llm.path
    params = PairParams(slm=str(slm), llm=str(llm), device=device, dtype=dtype)
    return replace(load_pair(PairFolder(slm, llm), params), eos_ids=pair.eos_ids)


FAMILY = [
    Rule.parse(text)
    for text in ("score 0", "score 0.4", "score 1", "risk 0.6 audit 0.1", "every 4 audit 1")
]


def assert_same_answers(ours: Engine, theirs: Engine, pair: Pair) -> None:
    """Token for token; what the models say of them but for rounding."""
    scorer = ScoredBy(random_head(pair.slm.hidden_size, dtype=torch.float64).to(pair.slm.device))
    policies = [Policy(each, rule) for rule in FAMILY for each in (scorer, random_scorer)]
    found, expected = (
        {(answer.key, answer.policy): answer for answer in engine.sweep(requests(7), policies)}
        for engine in (ours, theirs)
    )
    assert found.keys() == expected.keys()
    for key, answer in found.items():
        other = expected[key]
        assert answer.scores == pytest.approx(other.scores, abs=1e-9)
        assert rounded(answer.visits) == rounded(other.visits)
        assert answer == replace(other, scores=answer.scores, visits=answer.visits)
    assert (ours.slm_work, ours.llm_work) == (theirs.slm_work, theirs.llm_work)


@pytest.mark.parametrize("slots", [1, 3])
def test_replayed_forwards_write_what_launched_ones_write(kin: Pair, slots: int) -> None:
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
def test_a_gpu_writes_what_a_cpu_writes(
    pair: Pair, tau: float, dtype: str, make_graphs: MakeGraphs
) -> None:
    policy = Policy(random_scorer, Rule("score", tau))
    there = loaded_again(pair, "cuda", dtype)
    engine = Engine(there, 4, MAX_NEW_TOKENS, make_graphs=make_graphs)
    answers = {answer.key: answer for answer in engine.decode(requests(20), policy)}
    assert answers == decode(pair, requests(20), policy)[0]


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("slots", [1, 3, 16])
def test_graphs_on_a_gpu_write_what_launched_kernels_write(kin: Pair, slots: int) -> None:
    network = copy.deepcopy(kin.llm.network).to("cuda")
    there = loaded_again(kin, "cuda", "float64")
    there = replace(there, llm=replace(there.llm, network=network))
    graphed = Engine(there, slots, MAX_NEW_TOKENS)
    launched = Engine(there, slots, MAX_NEW_TOKENS, make_graphs=no_graphs)
    assert_same_answers(graphed, launched, there)


def test_float32_first_differs_only_at_a_near_tie(pair: Pair) -> None:
    """Invariant 2 in lower precision: the LLM's margin at a first difference is below 1e-4."""
    single = loaded_again(pair, "cpu", "float32")
    asked = requests(20)
    answers, _ = decode(single, asked, LLM_ALONE, slots=7)
    exact, _ = decode(pair, asked, LLM_ALONE, slots=7)
    for request in asked:
        both = zip(answers[request.key].token_ids, exact[request.key].token_ids, strict=False)
        same = sum(1 for _ in takewhile(lambda tokens: tokens[0] == tokens[1], both))
        if same < len(exact[request.key].token_ids):
            ids = [*request.prompt_ids, *exact[request.key].token_ids[:same]]
            first, second = pair.llm.logits(next_hidden(pair.llm, ids))[0].topk(2).values
            assert first - second < 1e-4
