"""The LLM of the pipeline behind a real vLLM, against the same LLM in this process, in float32."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from citer.config.params import Params, load_params
from citer.data.importing import parse_row
from citer.data.problems import Problem, write_problems
from citer.decoding.answer import Answer
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy, routed
from citer.decoding.served import verifier_of
from citer.demo import toy
from citer.evaluation.sweep import request
from citer.models.folder import PairFolder
from citer.models.pair import Pair, Text, load_pair, predict
from citer.models.served import llm_folder
from citer.rule import Rule
from citer.stages import label, paths, router0, score_llm, score_slm
from citer.storage.schema import PREFERENCE
from citer.storage.tables import read_table
from tests.flows.servers import free_port, serving
from tests.heads import random_router
from tests.vllm.api import NATIVE, plain
from tests.vllm.offline import LLM, ROOT, SLM

pytestmark = pytest.mark.vllm

QUESTIONS = 100
NEAR_TIE = 1e-3  # nats between the two likeliest tokens; vLLM's kernels differ by about 2e-5
RULES = ("score 0.5", "risk 0.9 audit 0.1", "risk 0.5 audit 1")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = free_port()
    options = f"--served-model-name llm --host 127.0.0.1 --port {port}"
    with serving(plain(*options.split()), NATIVE, f"http://127.0.0.1:{port}", seconds=400):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    seed = load_params(ROOT / "params.yaml").seed
    rows = islice(toy.rows("math", QUESTIONS, seed, "pipeline"), QUESTIONS)
    parsed = [parse_row(row, "math", "reference") for row in rows]
    return [replace(problem, split="preference") for problem in parsed]


def pair_at(url: str | None) -> Pair:
    params = load_params(ROOT / "params.yaml").pair.model_copy(update={"device": "cpu"})
    return load_pair(PairFolder(SLM, llm_folder(LLM, url)), params)


def answers(pair: Pair, problems: list[Problem], policy: Policy) -> dict[str, Answer]:
    engine = Engine(pair, 32, 96, delayed=True)
    requests = [request(problem, pair) for problem in problems]
    return {answer.key: answer for answer in engine.decode(requests, policy)}


@torch.inference_mode()
def margins(pair: Pair, texts: list[Text]) -> torch.Tensor:
    """Return the largest minus the second largest log-probability at each token."""
    parts = [each.logprob_CV.topk(2).values for each in predict(pair.llm, pair.vocabulary, texts)]
    return -torch.cat(parts).diff().squeeze(1)


def least_margin(pair: Pair, problem: Problem, answer: Answer) -> float:
    prompt_ids = pair.prompts.prompt_ids(problem)
    text = Text([*prompt_ids, *answer.token_ids], len(prompt_ids))
    return float(margins(pair, [text]).min())


@pytest.mark.parametrize("rule", [None, *RULES])
def test_the_answers_are_those_of_the_llm_here(
    url: str, problems: list[Problem], rule: str | None
) -> None:
    here, there = pair_at(None), pair_at(url)
    router = random_router(here.slm.hidden_size, slope=3.0)
    policy = routed(router, Rule.parse(rule)) if rule else LLM_ALONE
    ours, theirs = (answers(pair, problems, policy) for pair in (here, there))
    differ = [p for p in problems if ours[p.problem_id].token_ids != theirs[p.problem_id].token_ids]
    print(f"{rule or 'LLM alone'}: {len(differ)} of {len(problems)} answers differ")
    assert all(least_margin(here, p, ours[p.problem_id]) < NEAR_TIE for p in differ)
    assert len(ours) == len(theirs) == QUESTIONS


@torch.inference_mode()
def test_the_scores_are_those_of_the_llm_here(url: str, problems: list[Problem]) -> None:
    here, there = pair_at(None), pair_at(url)
    examples = here.prompts.encode_all(problems).values()
    texts = [Text([*prompt, *reference], len(prompt)) for prompt, reference in examples]
    ours, theirs = (verifier_of(p.llm, p.vocabulary).score(texts) for p in (here, there))
    torch.testing.assert_close(theirs.logprob_N, ours.logprob_N, rtol=0, atol=NEAR_TIE)
    differ_N = theirs.token_N != ours.token_N
    print(f"{int(differ_N.sum())} of {len(differ_N)} choices differ")
    assert (margins(here, texts)[differ_N] < NEAR_TIE).all()


@pytest.fixture
def project(problems: list[Problem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """Enter a project that has a router 0 of the embedded pair."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SLM, paths.SLM)
    shutil.copytree(LLM, "data/pair/llm")
    shutil.copytree(SLM, "data/pair/slm")
    write_problems(paths.referenced("preference"), problems, {})
    shipped = load_params(ROOT / "params.yaml")
    visiting = shipped.label.model_copy(update={"rule": Rule.parse("every 8 audit 0.1")})
    pair = shipped.pair.model_copy(update={"device": "cpu"})
    params = shipped.model_copy(update={"pair": pair, "label": visiting})
    for stage in (score_llm, score_slm, router0):
        stage.run(params)
    return params


def test_the_labels_are_those_of_the_llm_here(url: str, project: Params) -> None:
    served = project.pair.model_copy(update={"llm_url": url})
    tables = []
    for params in (project, project.model_copy(update={"pair": served})):
        label.run(params, 1)
        tables.append(read_table(paths.preferences(1), PREFERENCE)["label"].to_pylist())
    differ = sum(ours != theirs for ours, theirs in zip(*tables, strict=True))
    print(f"{differ} of {len(tables[0])} labels differ")
    assert differ <= len(tables[0]) / 1000
