"""From answers that were served to a router: generate, prepare, references, score, label, train."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from citer.config.params import Params
from citer.config.sources import ToyParams
from citer.data.problems import Audit, read_problems, write_problems
from citer.data.traffic import LEAST_ODDS
from citer.errors import InputError
from citer.models.bundle import identity, write_bundle
from citer.models.folder import PairFolder
from citer.models.pair import Pair, load_pair
from citer.rule import Rule
from citer.serving.generate import generate
from citer.stages import label, paths, prepare, references, router0, score_llm, score_slm, train
from citer.storage.schema import PREFERENCE
from citer.storage.tables import read_json, read_table
from tests.decoding.reference import next_logits
from tests.heads import random_router

RULE = Rule("every", 3, audit=0.9)
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


def label_from_scratch(params: Params) -> list[dict[str, Any]]:
    for stage in (references, score_llm, score_slm, router0):
        stage.run(params)
    label.run(params, 1)
    return read_table(paths.preferences(1), PREFERENCE).to_pylist()


def test_the_labels_of_served_answers_are_the_verdicts_of_the_llm(
    served: Params, pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    """The oracle compares both models at each audited position, with whole forwards."""
    prepare.run(served)
    labels = label_from_scratch(served)
    problems = {p.problem_id: p for p in read_problems(paths.referenced("preference"))}
    audits = [(p.problem_id, a.position) for p in problems.values() for a in p.audits or ()]
    assert [(row["problem_id"], row["position"]) for row in labels] == audits
    between = 0
    for row in labels:
        prompt_ids, reference_ids = pair.prompts.encode(problems[row["problem_id"]])
        ids = [*prompt_ids, *reference_ids[: row["position"]]]
        slm = int(next_logits(pair, pair.slm, ids).argmax())
        llm_logits = next_logits(pair, pair.llm, ids)
        odds = float((llm_logits[slm] - llm_logits.max()).exp())
        assert row["label"] == (odds >= LEAST_ODDS)
        between += LEAST_ODDS <= odds < RULE.audit
        assert (row["case"], row["origin"]) == ("audited", "audit")
    assert between  # the rule rejected these
    assert min(Counter(row["label"] for row in labels).values()) >= 5
    printed = " ".join(capsys.readouterr().out.split())
    assert f"labels by audit │ {len(audits)}" in printed


def test_a_router_is_trained_from_served_answers_alone(served: Params) -> None:
    prepare.run(served)
    labels = label_from_scratch(served)
    train.run(served, 1)
    metrics = read_json(paths.router(1) / "metrics.json")
    assert metrics["rows"] + metrics["holdout_rows"] == len(labels)
    assert metrics["holdout_loss_calibrated"] < metrics["holdout_loss_constant"]


def test_answers_whose_text_has_other_tokens_today_give_labels_up_to_the_first(
    served: Params,
) -> None:
    """As after a change of the tokenizer."""
    prepare.run(served)
    table = paths.problems("preference")
    first, *rest = read_problems(table)
    assert first.token_ids
    other = (*first.token_ids[:4], first.token_ids[4] + 1, *first.token_ids[5:])
    write_problems(table, [replace(first, token_ids=other), *rest], {})
    labels = label_from_scratch(served)
    positions = [row["position"] for row in labels if row["problem_id"] == first.problem_id]
    assert positions == [a.position for a in first.audits or () if a.position <= 4]
    assert len(labels) > len(positions)


def test_answers_without_a_single_audit_that_holds_are_refused(served: Params) -> None:
    """As those of a pair with another tokenizer."""
    prepare.run(served)
    table = paths.problems("preference")
    none = {"token_ids": (3, 3), "audits": (Audit(1, 3, True),)}
    others = [replace(problem, **none) for problem in read_problems(table)]
    write_problems(table, others, {})
    with pytest.raises(
        InputError, match=rf"^{paths.referenced('preference')}: no label: none of the audits"
    ):
        label_from_scratch(served)
    assert not paths.preferences(1).exists()
