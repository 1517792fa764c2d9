"""Fresh questions are new, asked once, by frozen code, and their figures are those by hand."""

import subprocess
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from citer.report.against import Answers

from benchmarks.fresh import answered as answered_by
from benchmarks.fresh import check_unused, fresh_questions, frozen_commit, promises
from benchmarks.workshop import Workshop
from citer.data.importing import parse_row
from citer.data.problems import question_key
from citer.decoding.policy import routed
from citer.demo import toy
from citer.errors import InputError
from citer.evaluation.choice import ChosenRule
from citer.evaluation.sweep import request
from citer.models.bundle import identity, write_bundle
from citer.rule import LLM, Rule
from citer.stages import paths
from tests.benchmarks.outcomes import alone, answered
from tests.heads import random_router

BY_SCORE = Rule("score", 0.5)


def chosen(rule: Rule) -> ChosenRule:
    return ChosenRule(rule, 0.05, 0.05, 100, 0, 0.03, True, 0.1, 0.2)


def git(folder: Path, *arguments: str) -> str:
    name = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    command = ["git", "-C", str(folder), *name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A commit of code and grid, and a run elsewhere with the same grid."""
    code, project = tmp_path / "code", tmp_path / "project"
    for folder in (code, project):
        folder.mkdir()
        (folder / "params.yaml").write_text("seed: 17\n")
    (code / "study.py").write_text("1\n")
    git(code, "init", "-q")
    git(code, "add", ".")
    git(code, "commit", "-qm", "Freeze")
    monkeypatch.chdir(project)
    return code


def test_frozen_code_and_grid_have_a_commit(repository: Path) -> None:
    assert frozen_commit(repository) == git(repository, "rev-parse", "HEAD")


@pytest.mark.parametrize("name", ["study.py", "new.py"])
def test_changed_or_new_code_is_refused(repository: Path, name: str) -> None:
    (repository / name).write_text("2\n")
    with pytest.raises(InputError, match="code: 1 uncommitted changes, expected none"):
        frozen_commit(repository)


def test_another_grid_is_refused(repository: Path) -> None:
    Path("params.yaml").write_text("seed: 18\n")
    with pytest.raises(InputError, match=r"params\.yaml: not that of the commit"):
        frozen_commit(repository)


def test_code_without_a_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"git status --porcelain: .*not a git repository"):
        frozen_commit(tmp_path)


def test_a_seed_is_used_once(tmp_path: Path) -> None:
    assert check_unused(tmp_path / "fresh-5", 5) == 5
    (tmp_path / "fresh-5.json").write_text("{}")
    assert check_unused(tmp_path / "fresh-6", 6) == 6
    with pytest.raises(InputError, match=r"fresh-5\.json: seed 5 has results, expected a new seed"):
        check_unused(tmp_path / "fresh-5", 5)
    with pytest.raises(InputError, match="fresh: expected --seed"):
        check_unused(tmp_path / "fresh-None", None)


def keys_of(task: str, count: int, seed: int) -> list[str]:
    rows = islice(toy.rows(task, 10**6, seed, part="pipeline"), count)
    return [question_key(parse_row(row, task, "reference").conversation) for row in rows]


def test_fresh_questions_are_in_no_split_and_not_in_the_pairs_training() -> None:
    known = {key for task in toy.FAMILIES for key in keys_of(task, 40, seed=17)}
    problems = fresh_questions(list(toy.FAMILIES), 20, 17, known)
    keys = [question_key(problem.conversation) for problem in problems]
    assert len(set(keys)) == len(keys) == 40
    assert not set(keys) & known
    assert {toy.part_of(key) for key in keys} == {"pipeline"}
    assert {problem.split for problem in problems} == {"test"}
    # Without anything known, the same seed makes the questions of the splits again.
    again = fresh_questions(["math"], 20, 17, set())
    assert {question_key(problem.conversation) for problem in again} < known


def test_promise_accuracy_and_cost_of_the_chosen_rules() -> None:
    given = answered("router", BY_SCORE, "1101", 40), answered("audited", LLM, "1110", 100)
    answers = Answers.of(pa.concat_tables([alone("1000", "1110"), *given]))
    methods = {"router": chosen(BY_SCORE), "audited": chosen(LLM)}
    found = promises(answers, methods, np.array([True, False, True, True]))
    assert [found[name]["router"] for name in ("lost", "right", "cost")] == [1, 2, 0.4]
    assert found["accuracy"]["router"][0] == pytest.approx(2 / 3)
    # Wilson: (1 + z²/2) / (2 + z²) ± z sqrt(1/2 + z²/4) / (2 + z²)
    assert found["risk"]["router"] == pytest.approx((0.5, 0.0945, 0.9055), abs=1e-4)
    assert all(column["audited"] == column["llm"] for column in found.values())
    assert found["lost"]["slm"] == 1


def test_the_chosen_rules_answer_as_single_decodes(
    shop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tau, risk = 0.37, shop.params.evaluate.risks[0]
    rules = {"router": chosen(Rule("score", tau)), "audited": chosen(Rule("risk", risk, 1))}
    router = random_router(shop.pair.slm.hidden_size, seed=2, dtype=torch.float64)
    card = identity(shop.pair) | {"iteration": 2}
    write_bundle(paths.router(2), router, card)
    shop = replace(shop, test=shop.test[:3])
    outcomes = answered_by(shop, rules)
    answers = Answers.of(outcomes)
    assert {"slm", "llm", "router", "audited", "entropy"} <= set(answers.by_method)
    for name, each in rules.items():
        requests = [request(problem, shop.pair) for problem in shop.test]
        decoded = shop.engine.decode(requests, routed(router, each.rule))
        single = {answer.key: (len(answer.token_ids), sum(answer.by_llm)) for answer in decoded}
        found = outcomes.filter((pc.field("split") == "test") & (pc.field("method") == name))
        rows = found.to_pylist()
        assert {r["problem_id"]: (r["tokens"], r["llm_tokens"]) for r in rows} == single
