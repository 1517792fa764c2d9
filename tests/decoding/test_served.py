"""An LLM behind a server: the verdicts and scores of the local verifier, retries, bad answers."""

import json
import pickle
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from citer.decoding.answer import Answer
from citer.decoding.engine import Engine, Finished
from citer.decoding.policy import LLM_ALONE, Policy
from citer.decoding.served import ServedVerifier, verifier_of
from citer.decoding.verifier import Query, Verdict
from citer.errors import InputError, TemporaryError
from citer.labelling.scoring import half, score
from citer.models.pair import Pair
from citer.models.served import KEY, LIKELIEST, ServedModel, Server
from citer.models.vocabulary import Vocabulary
from tests.completions import Completions, serving
from tests.decoding.test_engine import MAX_NEW_TOKENS, make_examples, make_requests
from tests.decoding.test_trie import branches
from tests.decoding.test_verifier import POLICIES, SLOTS
from tests.noise import SAMPLINGS


@pytest.fixture(scope="module")
def here(kin: Pair) -> Pair:
    """A pair with two EOS ids, so that the likeliest tokens always have one."""
    return replace(kin, eos_ids=kin.eos_ids[:2])


@pytest.fixture
def completions(here: Pair) -> Iterator[Completions]:
    with serving(Completions(here.llm, here.tokenizer)) as running:
        yield running


@pytest.fixture
def model(here: Pair, completions: Completions) -> ServedModel:
    return ServedModel(Server(completions.url, patience=(0, 0)), "llm", here.llm.card)


def decoded(pair: Pair, policies: list[Policy]) -> list[Answer]:
    requests = make_requests(5)
    requests += branches(requests[0], tuple(range(40, 60)), [0, 3, 19])
    return list(Engine(pair, SLOTS, MAX_NEW_TOKENS).sweep(requests, policies))


def without_odds(answer: Answer) -> tuple[Any, ...]:
    visits = [visit._replace(disagreements=()) for visit in answer.visits]
    return answer.key, answer.policy, answer.token_ids, answer.scores, visits, answer.truncated


def odds(answers: list[Answer]) -> list[float]:
    return [d.odds for a in answers for visit in a.visits for d in visit.disagreements]


@pytest.mark.parametrize("policies", [[each] for each in POLICIES] + [POLICIES])
def test_a_served_llm_gives_the_same_answers(
    here: Pair, model: ServedModel, policies: list[Policy]
) -> None:
    far, local = (decoded(pair, policies) for pair in (replace(here, llm=model), here))
    assert list(map(without_odds, far)) == list(map(without_odds, local))
    assert odds(far) == pytest.approx(odds(local), rel=1e-9)
    assert any(policy.rule.audit for policy in policies) == bool(odds(far))


def test_only_several_positions_and_unlikely_drafts_need_whole_prompts(
    model: ServedModel, completions: Completions, here: Pair
) -> None:
    verifier = ServedVerifier(model, here.vocabulary)
    ids = make_requests(1)[0].prompt_ids
    (((own, *_),),) = verifier.verdicts([Query(ids, len(ids))])
    assert not any("prompt_logprobs" in asked for asked in completions.asked)
    verifier.verdicts([Query(ids, len(ids), draft=own)])
    assert not any("prompt_logprobs" in asked for asked in completions.asked)
    unlikely = next(n for n in range(here.vocabulary.size) if not listed(model, ids, n))
    ((verdict,),) = verifier.verdicts([Query(ids, len(ids), draft=unlikely)])
    local = verifier_of(here.llm, here.vocabulary)
    with torch.inference_mode():
        ((expected,),) = local.verdicts([Query(ids, len(ids), draft=unlikely)])
    assert verdict[:2] == pytest.approx(expected[:2])
    assert "prompt_logprobs" in completions.asked[-1]
    assert verifier.work.forwards == 3


def listed(model: ServedModel, ids: tuple[int, ...], token: int) -> bool:
    return token in model.complete([list(ids)], LIKELIEST)[0].after


def test_a_served_llm_gives_the_same_scores(here: Pair, model: ServedModel) -> None:
    examples = make_examples(9)
    vocabulary = here.vocabulary._replace(eos_ids=here.eos_ids[:1])
    halves = (half(llm, vocabulary) for llm in (model, here.llm))
    far, local = (score(each, examples, 60, lambda _: None).to_pydict() for each in halves)
    logprobs = far.pop("llm_logprob_gt")
    assert logprobs == pytest.approx(local.pop("llm_logprob_gt"), abs=1e-6)
    assert far == local


@pytest.mark.parametrize("size", [300, 384])
def test_choices_are_those_of_the_vocabulary(model: ServedModel, size: int) -> None:
    """With all tokens listed, also those that only the LLM has."""
    logprob_NV = torch.randn(50, 384, dtype=torch.float64).log_softmax(-1)
    vocabulary = Vocabulary(size, (5, 7, 11))
    chances = [dict(enumerate(row)) for row in logprob_NV.tolist()]
    choices_NV = vocabulary.choices(logprob_NV)
    verifier = ServedVerifier(model, vocabulary)
    for n, each in enumerate(chances):
        token, logprob = verifier.scores(each, 5)
        assert token == choices_NV[n].argmax()
        assert logprob == pytest.approx(float(choices_NV[n].log_softmax(-1)[5]))
        assert verifier.verdict(each, 7).odds == 0  # not the EOS that is written
        assert verifier.verdict(each, None) == Verdict(token, None)


def test_likely_tokens_beyond_the_slms_vocabulary_are_refused(model: ServedModel) -> None:
    verifier = ServedVerifier(model, Vocabulary(4, (0,)))
    with pytest.raises(InputError, match=r"^http.*: expected two .* below 4, .*; got \[1, 8, 9\]$"):
        verifier.verdict({9: -0.1, 8: -3.0, 1: -9.0}, None)


def test_a_request_that_samples_is_refused(model: ServedModel, here: Pair) -> None:
    request = replace(make_requests(1)[0], sampling=SAMPLINGS[0])
    engine = Engine(replace(here, llm=model), SLOTS, MAX_NEW_TOKENS)
    with pytest.raises(InputError, match=r"^q0: sampling, expected greedy: a server runs the LLM$"):
        list(engine.decode([request], LLM_ALONE))


def test_a_busy_server_is_asked_again(
    model: ServedModel, completions: Completions, capsys: pytest.CaptureFixture
) -> None:
    completions.failures = deque([503, 500])
    assert len(model.complete([[1, 2]], 3)[0].after) == 3
    assert capsys.readouterr().err.splitlines() == [
        f"{completions.url}: status {status}: not now; next attempt in 0 s" for status in (503, 500)
    ]


def test_a_lost_server_is_a_temporary_error(model: ServedModel, completions: Completions) -> None:
    completions.dies_after = 0
    with pytest.raises(TemporaryError) as caught:
        model.complete([[1, 2]], 3)
    assert str(caught.value).startswith(f"{completions.url}: no answer (")
    assert str(caught.value).endswith("expected a running vLLM")


def test_a_lost_server_loses_no_request(
    here: Pair, model: ServedModel, completions: Completions
) -> None:
    engine = Engine(replace(here, llm=model), SLOTS, MAX_NEW_TOKENS)
    expected = {a.key: a.token_ids for a in engine.decode(make_requests(3), LLM_ALONE)}
    for request in make_requests(3):
        engine.submit(request, LLM_ALONE)
    engine.step()
    completions.dies_after = 0
    for _ in range(2):
        with pytest.raises(TemporaryError):
            engine.step()
    completions.dies_after = None
    events = [event for _ in range(MAX_NEW_TOKENS) for event in engine.step()]
    finished = [event.answer for event in events if isinstance(event, Finished)]
    assert {answer.key: answer.token_ids for answer in finished} == expected


def test_a_refusal_is_not_repeated(model: ServedModel, completions: Completions) -> None:
    completions.failures = deque([400, 400])
    with pytest.raises(InputError, match=r"/v1/completions: status 400: not now$") as caught:
        model.complete([[1, 2]], 3)
    assert not isinstance(caught.value, TemporaryError)
    assert len(completions.failures) == 1


def test_the_key_is_sent(
    here: Pair, model: ServedModel, completions: Completions, monkeypatch: pytest.MonkeyPatch
) -> None:
    completions.key = "secret"
    with pytest.raises(InputError, match=f"status 401, expected the server's API key in {KEY}$"):
        model.complete([[1, 2]], 3)
    monkeypatch.setenv(KEY, "secret")
    again: ServedModel = pickle.loads(pickle.dumps(model))  # with a connection of its own
    assert again.complete([[1, 2]], 3)


def test_an_answer_that_cannot_be_decoded_is_a_temporary_error(
    model: ServedModel, completions: Completions
) -> None:
    completions.headers = {"Content-Encoding": "gzip"}
    with pytest.raises(TemporaryError, match=r"no answer \(Error -3 while decompressing"):
        model.complete([[1, 2]], 3)


def test_a_redirection_is_named(model: ServedModel, completions: Completions) -> None:
    completions.failures, completions.headers = deque([301]), {"Location": "https://host/"}
    with pytest.raises(InputError, match=r"status 301: moved to 'https://host/'$"):
        model.complete([[1, 2]], 3)


@pytest.mark.parametrize("key", ["secret\n", "sécret", "sec ret"])
def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(
    model: ServedModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, key: str
) -> None:
    monkeypatch.setenv(KEY, key)
    with pytest.raises(InputError) as caught:
        model.complete([[1, 2]], 3)
    assert str(caught.value) == f"{KEY}: expected ASCII characters without white space"
    assert not capsys.readouterr().err


def without(key: str) -> Any:
    return lambda answer: {"choices": [c | {key: None} for c in answer["choices"]]}


def nan_after(choice: Any) -> Any:
    return choice | {"logprobs": {"top_logprobs": [{"token_id:1": float("nan")}]}}


BAD = {
    "no JSON": (lambda answer: b"<html>", "not JSON"),
    "another form": (lambda answer: {"text": 1}, "choices: missing"),
    "a choice too few": (
        lambda answer: {"choices": answer["choices"][1:]},
        r"1 choices .* \[2\] prompt tokens, expected \[3, 2\]$",
    ),
    "no prompt_logprobs": (
        without("prompt_logprobs"),
        r"2 choices .* \[0, 0\] prompt tokens, expected \[3, 2\]$",
    ),
    "no logprobs": (without("logprobs"), "choices.0.logprobs"),
    "no number": (
        lambda a: {"choices": [nan_after(each) for each in a["choices"]]},
        "nan: expected a finite number",
    ),
    "names": (lambda a: json.loads(json.dumps(a).replace("token_id:", "")), "expected text that"),
}


@pytest.mark.parametrize(("twist", "expected"), BAD.values(), ids=BAD)
def test_an_answer_of_another_form_is_refused(
    model: ServedModel, completions: Completions, twist: Any, expected: str
) -> None:
    completions.twist = twist
    with pytest.raises(InputError, match=expected) as caught:
        model.complete([[1, 2, 3], [4, 5]], 3, of_prompts=True)
    assert str(caught.value).startswith(completions.url)
