"""Teacher-forced scores against one plain, unbatched forward per problem."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from citer.config.params import PairParams
from citer.data.prompts import Encoded
from citer.decoding.policy import StepView
from citer.decoding.runner import Drafts
from citer.decoding.verifier import Verdicts
from citer.errors import InputError
from citer.labelling.scoring import half, score
from citer.models.folder import ModelFolder
from citer.models.pair import (
    LanguageModel,
    Pair,
    Predicted,
    Text,
    length_buckets,
    load_model,
    predict,
)
from citer.models.router import EXTRAS
from citer.models.vocabulary import Vocabulary
from citer.storage.schema import LLM_TOKEN, slm_token
from tests.tiny import MATH, MC, TinyPair, make_tiny_pair

PROBLEMS = [
    MATH,
    MC,
    replace(MATH, problem_id="math-1", question="What is 2 + 2?", reference="\\boxed{4}."),
    replace(MC, problem_id="mc-1", question="Which is hot?", reference="The answer is (B)."),
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return make_tiny_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def examples(pair: TinyPair) -> dict[str, Encoded]:
    return ModelFolder(pair.slm).prompts.encode_all(PROBLEMS)


@pytest.fixture(scope="module", params=["slm", "llm"])
def model(pair: TinyPair, request: pytest.FixtureRequest) -> LanguageModel:
    name = request.param
    placement = PairParams(slm="slm", llm="llm", device="cpu", dtype="float64")
    return load_model(name, ModelFolder(getattr(pair, name)), placement)


def _score(model: LanguageModel, examples: dict[str, Encoded], batch_tokens: int) -> pa.Table:
    ours = half(model, Vocabulary(model.vocab_size, (0,)))
    return score(ours, examples, batch_tokens, lambda _: None)


def _states(model: LanguageModel, example: Encoded) -> tuple[torch.Tensor, torch.Tensor]:
    """Return hidden_RH and logits_RV that predict a reference, from one unpadded forward."""
    ids = torch.tensor([[*example.prompt_ids, *example.reference_ids]])
    result = model.network(ids, output_hidden_states=True)
    start = len(example.prompt_ids) - 1
    return result.hidden_states[-1][0, start:-1], result.logits[0, start:-1]


def _column(table: pa.Table, name: str) -> torch.Tensor:
    return torch.tensor(table[name].to_pylist())


@pytest.mark.parametrize("batch_tokens", [1, 300, 10_000])
def test_a_batched_row_equals_the_unbatched_forward(
    model: LanguageModel, examples: dict[str, Encoded], batch_tokens: int
) -> None:
    table = _score(model, examples, batch_tokens)
    logits_NV = torch.cat([_states(model, example)[1] for example in examples.values()])
    gt_N = torch.tensor([t for example in examples.values() for t in example.reference_ids])
    top_N2 = logits_NV.topk(2).values
    logprob_N = logits_NV.log_softmax(-1)[torch.arange(len(gt_N)), gt_N]

    assert _column(table, "gt_token").equal(gt_N)
    assert _column(table, f"{model.name}_token").equal(logits_NV.argmax(-1))
    torch.testing.assert_close(_column(table, f"{model.name}_logprob_gt"), logprob_N.float())
    if model.name == "slm":
        margin_N = (top_N2[:, 0] - top_N2[:, 1]).float()
        torch.testing.assert_close(_column(table, "slm_margin"), margin_N)


def test_rows_follow_the_examples_and_end_with_eos(
    model: LanguageModel, examples: dict[str, Encoded], pair: TinyPair
) -> None:
    table = _score(model, examples, batch_tokens=300)
    assert table["problem_id"].to_pylist() == [
        key for key, example in examples.items() for _ in example.reference_ids
    ]
    assert table["position"].to_pylist() == [
        position for example in examples.values() for position in range(len(example.reference_ids))
    ]
    last = np.cumsum([len(example.reference_ids) for example in examples.values()]) - 1
    assert set(table["gt_token"].take(pa.array(last)).to_pylist()) == set(
        ModelFolder(pair.slm).eos_ids
    )


def test_the_slms_half_adds_the_features_of_routers_and_rivals(
    model: LanguageModel, examples: dict[str, Encoded]
) -> None:
    table = _score(model, examples, batch_tokens=300)
    if model.name == "llm":
        assert table.schema.names == LLM_TOKEN.names
        return
    assert table.schema.names == slm_token(model.hidden_size).names
    states = [_states(model, example) for example in examples.values()]
    hidden_NH = torch.cat([hidden for hidden, _ in states])
    logprob_NV = torch.cat([logits for _, logits in states]).log_softmax(-1)
    stored = b"".join(table["slm_hidden"].to_pylist())
    stored_NH = torch.tensor(np.frombuffer(stored, np.float16)).view(len(table), -1)
    torch.testing.assert_close(stored_NH, hidden_NH.half())
    entropy_N = torch.distributions.Categorical(logits=logprob_NV).entropy()
    torch.testing.assert_close(_column(table, "slm_entropy"), entropy_N.float())
    best_N8 = logprob_NV.sort(descending=True).values[:, :8]
    torch.testing.assert_close(_column(table, "slm_top_logprobs"), best_N8.float())


def test_the_size_of_a_chunk_of_logits_changes_nothing(
    model: LanguageModel, examples: dict[str, Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _score(model, examples, batch_tokens=10_000)
    monkeypatch.setattr("citer.models.pair.ROWS", 7)
    assert _score(model, examples, batch_tokens=10_000).equals(whole)


def test_a_large_vocabulary_has_smaller_chunks_of_logits_on_a_cpu(
    model: LanguageModel, examples: dict[str, Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [Text([*prompt, *reference], len(prompt)) for prompt, reference in examples.values()]
    vocabulary = Vocabulary(model.vocab_size, (0,))
    for kept, most in ((5 * model.vocab_size + 1, 5), (1, 1)):
        monkeypatch.setattr("citer.models.pair.KEPT", kept)
        sizes = [len(part.given_C) for part in predict(model, vocabulary, texts)]
        assert max(sizes) == most
        assert sum(sizes) == sum(len(reference) for _, reference in examples.values())


@pytest.mark.parametrize("place", [0, 1])
def test_a_single_token_that_overflows_is_refused(
    model: LanguageModel,
    examples: dict[str, Encoded],
    monkeypatch: pytest.MonkeyPatch,
    place: int,
) -> None:
    """The LLM's hidden states are not stored."""

    def overflowing(*asked: Any) -> Iterator[Predicted]:
        for predicted in predict(*asked):
            hidden_CH = predicted.hidden_CH.clone()
            hidden_CH[place] = 70_000.0
            yield predicted._replace(hidden_CH=hidden_CH)

    monkeypatch.setattr("citer.labelling.scoring.predict", overflowing)
    monkeypatch.setattr("citer.decoding.verifier.predict", overflowing)
    said = pytest.raises(InputError, match="hidden states beyond float16")
    with said if model.name == "slm" else nullcontext():
        _score(model, examples, batch_tokens=300)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_at_a_single_place_are_refused_by_name(
    model: LanguageModel,
    examples: dict[str, Encoded],
    monkeypatch: pytest.MonkeyPatch,
    value: float,
) -> None:
    logits = LanguageModel.logits

    def overflowing(self: LanguageModel, hidden_NH: torch.Tensor) -> torch.Tensor:
        logits_NV = logits(self, hidden_NH).clone()
        logits_NV[1] = value
        return logits_NV

    monkeypatch.setattr(LanguageModel, "logits", overflowing)
    with pytest.raises(InputError, match=rf"^{model.path}: logits that are not finite"):
        _score(model, examples, batch_tokens=300)


def test_no_token_is_chosen_from_the_padding_of_a_vocabulary(
    model: LanguageModel, examples: dict[str, Encoded]
) -> None:
    small = {key: Encoded(p, [token % 64 for token in r]) for key, (p, r) in examples.items()}
    logits_NV = torch.cat([_states(model, example)[1] for example in small.values()])
    assert logits_NV.argmax(-1).max() >= 64, "the test could not fail"
    table = score(half(model, Vocabulary(64, (0,))), small, 10_000, lambda _: None)
    assert _column(table, f"{model.name}_token").equal(logits_NV[:, :64].argmax(-1))


def test_scoring_and_the_engine_compute_the_same_from_a_state(
    model: LanguageModel, examples: dict[str, Encoded], pair: TinyPair
) -> None:
    """This includes pairs with several EOS tokens."""
    eos_ids = (0, *range(10, model.vocab_size, 12))
    slm = ModelFolder(pair.slm)
    pair_of_one = Pair(model, model, slm.tokenizer, {}, eos_ids, slm.prompts)
    table = score(half(model, pair_of_one.vocabulary), examples, 10_000, lambda _: None)
    hidden_NH = torch.cat([_states(model, example)[0] for example in examples.values()])
    gt_N, place_N2 = _column(table, "gt_token"), torch.zeros(len(table), 2, dtype=torch.int64)
    noise_06 = torch.empty(0, 6, dtype=torch.int64)
    if model.name == "slm":
        drafts = Drafts(pair_of_one, (_entropy, _margin))
        token_N, entropy_N, margin_N = drafts(hidden_NH, place_N2, noise_06).unbind(1)
        torch.testing.assert_close(_column(table, "slm_entropy"), entropy_N.float())
        torch.testing.assert_close(_column(table, "slm_margin"), margin_N.float())
    else:
        verdicts = Verdicts(model, pair_of_one.vocabulary)
        token_N, odds_N = verdicts(hidden_NH, gt_N[:, None], noise_06).unbind(1)
        assert (odds_N == 1).equal(_column(table, "llm_token") == gt_N)
    assert _column(table, f"{model.name}_token").equal(token_N.long())
    assert set(token_N.tolist()) & set(eos_ids) == {0}


def _entropy(view: StepView) -> torch.Tensor:
    return view.feature_NF[:, -EXTRAS]


def _margin(view: StepView) -> torch.Tensor:
    return view.feature_NF[:, 1 - EXTRAS]


def test_batches_hold_each_example_once_within_the_budget() -> None:
    lengths = [5, 90, 40, 41, 12, 300, 7]
    batches = list(length_buckets(lengths, batch_tokens=82))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert [[lengths[index] for index in batch] for batch in batches] == [
        [300],  # a batch of its own, although it exceeds the budget
        [90],
        [41, 40],
        [12, 7, 5],
    ]
