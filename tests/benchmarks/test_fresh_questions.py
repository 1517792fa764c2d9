"""Fresh questions are new, asked once, by frozen code, and their figures are those by hand."""

import subprocess
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from benchmarks.fresh import Seen, check_unused, columns, fresh_questions, frozen_commit
from benchmarks.fresh import answered as answered_by
from benchmarks.workshop import Workshop
from citer.data.importing import parse_row
from citer.data.problems import question_key
from citer.data.tasks.grading import grade
from citer.decoding.policy import LLM_ALONE, Policy, always_slm, routed
from citer.demo import toy
from citer.errors import InputError
from citer.evaluation.candidates import STYLES
from citer.evaluation.choice import Candidate, ChosenRule
from citer.evaluation.evidence import Tried
from citer.evaluation.place import counted
from citer.evaluation.points import (
    ROUTER_STAMP,
    Findings,
    outcome_table,
    point_rows,
    write_findings,
)
from citer.evaluation.study import ALONE_LINES
from citer.evaluation.sweep import Line, Method, request
from citer.models.bundle import identity, read_bundle, write_bundle
from citer.rule import LLM, Rule
from citer.stages import paths
from citer.storage.tables import write_json
from tests.heads import random_router

BY_SCORE, BOLD = Rule("score", 0.5, by="stand"), Rule("score", 0.2, by="stand")
AUDITED, EXACT = Rule("risk", 0.4, 1, "agree"), Rule("every", 4, 1)


def chosen(rule: Rule, cost: float = 0.2) -> ChosenRule:
    return ChosenRule(rule, 0.05, 0.05, 100, 0, 0.03, rule != LLM, 0.1, cost)


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


def seen(discordant: int, cost: float, rule: Rule = BY_SCORE) -> Candidate:
    return Candidate(rule, n=20, discordant=discordant, llm_fraction=0.5, cost=cost)


def test_regret_is_above_the_cheapest_candidate_that_keeps_the_promise_on_these_questions() -> None:
    """It counts no candidate that loses more than ε, however cheap it is."""
    tried = {
        Tried("router", BY_SCORE): seen(2, 0.5),
        Tried("exact", EXACT): seen(0, 0.6, EXACT),
        Tried("policy", BY_SCORE): seen(1, 0.4),
        Tried("bild", BY_SCORE): seen(2, 0.1),
    }
    rules = {"router": chosen(BY_SCORE, 0.3), "exact": chosen(EXACT, 0.2)}
    found = Seen(tried, rules, epsilon=0.05)
    assert found.deployed == tried[Tried("exact", EXACT)]
    assert found.cheapest == tried[Tried("policy", BY_SCORE)]
    assert found.regret == pytest.approx(0.6 / 0.4 - 1)


def test_the_table_has_risk_and_cost_of_each_rule() -> None:
    found = columns({"router": seen(1, 0.4)})
    assert [found[name]["router"] for name in ("rule", "lost", "right", "cost")] == [
        "score 0.5 by stand", 1, 20, 0.4
    ]  # fmt: skip
    # Wilson: (1 + z²/2) / (20 + z²) ± z sqrt(1 x 19 / 20 + z²/4) / (20 + z²)
    assert found["risk"]["router"] == pytest.approx((0.05, 0.0089, 0.2361), abs=1e-4)


@pytest.fixture
def reported(shop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """Router 2 with its report: two rules that validation tested, and one of a known method."""
    monkeypatch.chdir(tmp_path)
    router = random_router(shop.pair.slm.hidden_size, seed=2, dtype=torch.float64)
    write_bundle(paths.router(2), router, identity(shop.pair) | {"iteration": 2})
    shop = replace(shop, test=shop.test[:3])
    lines = [
        Line(Method(name, always_slm, style=STYLES[name]), rules) for name, rules in TESTED.items()
    ]
    runs = [run for line in shop.sweep(shop.test, [*ALONE_LINES, *lines]) for run in line]
    params, report = shop.params, paths.report(2)
    places = counted(params.evaluate, params.serve)
    report.mkdir(parents=True)
    findings = Findings(outcome_table(runs), point_rows(runs, places)).candidates
    write_findings(report, findings, places, ROUTER_STAMP)
    rules = {"router": chosen(BY_SCORE), "exact": chosen(LLM), "speculative": chosen(EXACT)}
    write_json(report / "chosen.json", {name: asdict(each) for name, each in rules.items()})
    return shop


TESTED = {"router": [BY_SCORE, BOLD], "exact": [AUDITED], "speculative": [EXACT]}


def test_all_tested_candidates_answer_as_single_decodes(reported: Workshop) -> None:
    found = answered_by(reported)
    tried = {Tried(name, rule) for name, rules in TESTED.items() for rule in rules}
    assert set(found.answered) == tried | {Tried(name, LLM) for name in TESTED}
    router, _ = read_bundle(paths.router(2))
    llm = single(reported, LLM_ALONE)
    for each in tried:
        own = single(reported, routed(router, each.rule))
        kept = [right for key, (right, _, _) in own.items() if llm[key][0]]
        answer = found.answered[each]
        assert (answer.n, answer.discordant) == (len(kept), kept.count(False))
        tokens, by_llm = (sum(row[n] for row in own.values()) for n in (1, 2))
        assert answer.llm_fraction == by_llm / tokens
    alone = found.answered[Tried("exact", LLM)]
    assert (alone.cost, alone.discordant) == (1.0, 0)


def test_if_no_rule_is_certified_the_llm_alone_is_the_deployed_one(reported: Workshop) -> None:
    write_json(paths.report(2) / "chosen.json", {"exact": asdict(chosen(LLM, 1.0))})
    found = answered_by(reported)
    assert (found.deployed.rule, found.deployed.cost) == (LLM, 1.0)
    assert found.regret >= 0


def single(shop: Workshop, policy: Policy) -> dict[str, tuple[bool, int, int]]:
    """Decode each question alone; return (correct, tokens, LLM's tokens)."""
    found = {}
    for problem in shop.test:
        [answer] = shop.engine.decode([request(problem, shop.pair)], policy)
        right = not answer.truncated and grade(problem, shop.pair.text(answer.token_ids))
        found[problem.problem_id] = (right, len(answer.token_ids), sum(answer.by_llm))
    return found
