"""From answers that were served to a router: generate, prepare, references, score, label, train."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from citer.config import Params
from citer.data.problems import Problem, read_problems
from citer.data.tokens import read_tokens
from citer.generate import generate
from citer.labelling.audited import audited_labels
from citer.models.bundle import identity, write_bundle
from citer.models.folder import PairFolder
from citer.models.pair import Pair, load_pair
from citer.rule import Rule
from citer.sources import ToyParams
from citer.stages import paths, prepare, references, router0, score_llm, score_slm
from tests.decoding.reference import next_logits
from tests.heads import random_router

RULE = Rule("every", 3, audit=0.3)
TOY = ToyParams(tasks=("math", "mc"), sft=1, preference=0, validation=1, test=1)
WEEK = "data/own/week.parquet"
BUNDLE = Path("served")


@pytest.fixture
def pair(project: Params) -> Pair:
    return load_pair(PairFolder(paths.SLM, Path(project.pair.llm)), project.pair)


@pytest.fixture
def served(project: Params, pair: Pair) -> Params:
    """Serve answers to the sums, and enter a project whose preference split has only these."""
    write_bundle(BUNDLE, random_router(pair.slm.hidden_size), identity(pair))
    asked = [p for p in read_problems(paths.referenced("preference")) if p.task == "math"]
    Path("q.jsonl").write_text("\n".join(json.dumps({"problem": p.question}) for p in asked))
    Path("data/own").mkdir()
    generate(project, BUNDLE, Path("q.jsonl"), Path("out.jsonl"), RULE, Path(WEEK))
    section = project.prepare.model_copy(update={"toy": TOY, "audited": (WEEK,)})
    return project.model_copy(update={"prepare": section})


def test_the_labels_of_served_answers_are_the_verdicts_of_the_llm(
    served: Params, pair: Pair
) -> None:
    """The oracle compares both models at each audited position, with whole forwards."""
    for stage in (prepare, references, score_llm, score_slm, router0):
        stage.run(served)
    problems = read_problems(paths.referenced("preference"))
    examples = pair.prompts.encode_all(problems)
    tokens = read_tokens(paths.SLM_TOKENS, paths.LLM_TOKENS, examples)
    counts = {0: 0, 1: 0}
    for problem in problems:
        prompt_ids, reference_ids = examples[problem.problem_id]
        assert tuple(reference_ids) == problem.token_ids
        labels = audited_labels(problem, reference_ids, slm_tokens(tokens, problem))
        assert [*labels] == [audit.position for audit in problem.audits or ()]
        for position, label in labels.items():
            ids = [*prompt_ids, *reference_ids[:position]]
            slm = int(next_logits(pair, pair.slm, ids).argmax())
            llm_logits = next_logits(pair, pair.llm, ids)
            assert label == (float((llm_logits[slm] - llm_logits.max()).exp()) >= RULE.audit)
            counts[label] += 1
    assert min(counts.values()) >= 5


def slm_tokens(tokens: pa.Table, problem: Problem) -> np.ndarray:
    own_N = tokens["problem_id"].to_numpy() == problem.problem_id
    return tokens["slm_token"].to_numpy()[own_N]
