"""Fresh questions are new, and their figures are those by hand."""

from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path

import pytest
import torch

from benchmarks.fresh import Answered, Seen, fresh_questions
from benchmarks.fresh import answered as answered_by
from benchmarks.regret import alone, row
from citer.data.importing import parse_row
from citer.data.problems import question_key
from citer.data.tasks.grading import grade
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy, always_slm, routed
from citer.demo import toy
from citer.evaluation.candidates import STYLES
from citer.evaluation.choice import Candidate, ChosenRule, Tried
from citer.evaluation.cost import counted
from citer.evaluation.measure import Conditions
from citer.evaluation.points import (
    ROUTER_STAMP,
    Findings,
    outcome_table,
    point_rows,
    write_findings,
)
from citer.evaluation.study import ALONE_LINES
from citer.evaluation.sweep import Line, Method, request, sweep
from citer.executors.choose import InLine
from citer.models.bundle import identity, read_bundle, write_bundle
from citer.rule import LLM, Rule
from citer.stages import paths
from citer.storage.tables import write_json
from tests.benchmarks.conftest import Own
from tests.heads import random_router

BY_SCORE, BOLD = Rule("score", 0.5, by="stand"), Rule("score", 0.2, by="stand")
AUDITED, EXACT = Rule("risk", 0.4, 1, "agree"), Rule("every", 4, 1)


def chosen(rule: Rule, cost: float = 0.2) -> ChosenRule:
    return ChosenRule(rule, 0.05, 0.05, 100, 0, 0.03, rule != LLM, 0.1, cost)


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


def seen(method: str, discordant: int, cost: float, rule: Rule = BY_SCORE) -> Answered:
    return Answered(method, Candidate(rule, 20, discordant, llm_fraction=0.5, cost=cost))


def test_regret_is_above_the_cheapest_candidate_that_keeps_the_promise_on_these_questions() -> None:
    """It counts no candidate that loses more than ε, however cheap it is."""
    exact, cheapest = seen("exact", 0, 0.6, EXACT), seen("policy", 1, 0.4)
    too_bold = seen("bild", 2, 0.1)
    found = Seen(exact, [seen("router", 2, 0.5), exact, cheapest, too_bold], epsilon=0.05)
    assert found.keeping == [cheapest, exact]
    assert found.regret(found.deployed) == pytest.approx(0.6 / 0.4 - 1)


def test_a_row_has_risk_and_cost_of_the_deployed_and_the_cheapest_rule() -> None:
    deployed, other = seen("router", 1, 0.4), seen("bild", 1, 0.2, BOLD)
    found = row(Seen(deployed, [deployed, other], epsilon=0.05))
    assert [found[f"deployed {name}"] for name in ("rule", "cost")] == ["score 0.5 by stand", 0.4]
    assert [found[f"cheapest {name}"] for name in ("rule", "cost")] == ["score 0.2 by stand", 0.2]
    assert found["regret"] == pytest.approx(1)
    # Wilson: (1 + z²/2) / (20 + z²) ± z sqrt(1 x 19 / 20 + z²/4) / (20 + z²)
    assert found["deployed risk"] == pytest.approx((0.05, 0.0089, 0.2361), abs=1e-4)


def test_each_scorer_and_method_stands_at_its_own_best_candidate() -> None:
    """Over all seeds that have one; a candidate that loses too much is none."""
    agree, exact = seen("exact", 0, 0.3, AUDITED), seen("speculative", 0, 0.4, EXACT)
    first = Seen(agree, [seen("router", 0, 0.2), seen("router", 0, 0.5, BOLD), agree, exact], 0.05)
    second = Seen(agree, [seen("router", 2, 0.1), agree, exact], 0.05)
    found = {each["alone"]: each for each in alone([first, second])}
    assert [*found] == [
        "method: router",
        "scorer: preferences, the hidden state, a wide head",
        "method: exact",
        "scorer: agreement, the hidden state",
        "method: speculative",
    ]
    assert [each["seeds"] for each in found.values()] == [1, 1, 2, 2, 2]
    own = found["method: speculative"]
    assert own["least above"] == pytest.approx(0.4 / 0.3 - 1)
    assert own["most above"] == pytest.approx(1)
    assert own["mean above"] == pytest.approx((0.4 / 0.3 + 2) / 2 - 1)


@pytest.fixture
def reported(own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    """Router 2 with its report: two rules that validation tested, and one of a known method."""
    monkeypatch.chdir(tmp_path)
    router = random_router(own.pair.slm.hidden_size, seed=2, dtype=torch.float64)
    write_bundle(paths.router(2), router, identity(own.pair) | {"iteration": 2})
    lines = [
        Line(Method(name, always_slm, style=STYLES[name]), rules) for name, rules in TESTED.items()
    ]
    params, report = own.params, paths.report(2)
    engine = Engine(own.pair, 4, params.decode.max_new_tokens)
    asked = engine, own.problems, [*ALONE_LINES, *lines], tmp_path
    runs = [*chain(*sweep(InLine(), *asked))]
    places = counted(params.evaluate, params.serve)
    report.mkdir(parents=True)
    findings = Findings(outcome_table(runs), point_rows(runs, places)).candidates
    write_findings(report, findings, places, ROUTER_STAMP | Conditions().fields)
    rules = {"router": chosen(BY_SCORE), "exact": chosen(LLM), "speculative": chosen(EXACT)}
    write_json(report / "chosen.json", {name: asdict(each) for name, each in rules.items()})
    return own


TESTED = {"router": [BY_SCORE, BOLD], "exact": [AUDITED], "speculative": [EXACT]}


def test_all_tested_candidates_answer_as_single_decodes(reported: Own) -> None:
    found = answered_by(*reported)
    tried = {Tried(name, rule) for name, rules in TESTED.items() for rule in rules}
    answers = {Tried(each.method, each.candidate.rule): each.candidate for each in found.answered}
    assert set(answers) == tried | {Tried("llm", LLM)}
    router, _ = read_bundle(paths.router(2))
    llm = single(reported, LLM_ALONE)
    for each in tried:
        own = single(reported, routed(router, each.rule))
        kept = [right for key, (right, _, _) in own.items() if llm[key][0]]
        answer = answers[each]
        assert (answer.n, answer.discordant) == (len(kept), kept.count(False))
        tokens, by_llm = (sum(row[n] for row in own.values()) for n in (1, 2))
        assert answer.llm_fraction == by_llm / tokens
    alone = answers[Tried("llm", LLM)]
    assert (alone.cost, alone.discordant) == (1.0, 0)


def test_if_no_rule_is_certified_the_llm_alone_is_the_deployed_one(reported: Own) -> None:
    write_json(paths.report(2) / "chosen.json", {"exact": asdict(chosen(LLM, 1.0))})
    found = answered_by(*reported)
    deployed = found.deployed.candidate
    assert (deployed.rule, deployed.cost) == (LLM, 1.0)
    assert found.regret(found.deployed) >= 0


def single(own: Own, policy: Policy) -> dict[str, tuple[bool, int, int]]:
    """Decode each question alone; return (correct, tokens, LLM's tokens)."""
    found, engine = {}, Engine(own.pair, 1, own.params.decode.max_new_tokens)
    for problem in own.problems:
        [answer] = engine.decode([request(problem, own.pair)], policy)
        right = not answer.truncated and grade(problem, own.pair.text(answer.token_ids))
        found[problem.problem_id] = (right, len(answer.token_ids), sum(answer.by_llm))
    return found
