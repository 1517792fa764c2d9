"""Rows computed by hand: two questions for each task, a routed run and the LLM alone."""

from dataclasses import replace

import pytest

from citer.decoding.answer import Answer, Disagreement, Visit
from citer.decoding.policy import Policy, always_slm
from citer.errors import InputError
from citer.evaluation.cost import Prices, Trace, batches
from citer.evaluation.measure import Conditions
from citer.evaluation.methods import Kind, Style
from citer.evaluation.metrics import share_interval
from citer.evaluation.points import (
    Findings,
    outcome_rows,
    outcome_table,
    point_rows,
    read_findings,
    write_findings,
)
from citer.evaluation.sweep import Result, Run
from citer.rule import Rule
from tests.decoding.reference import by_score
from tests.tiny import MATH, MC

BATCHES = batches([1, 2])
PRICES = Prices(slm_weights=100, llm_weights=1000, slm_kv=0, llm_kv=0)
QUESTIONS = [
    replace(problem, problem_id=f"{problem.task}{n}", split="test")
    for n in range(2)
    for problem in (MATH, MC)
]


def result(
    index: int, visits: list[Visit], tokens: int, correct: bool, truncated: bool = False
) -> Result:
    answer = Answer("", Policy(always_slm, RULE), (7,) * tokens, (), tuple(visits), truncated)
    trace = Trace.of(5, tokens, visits)
    return Result(QUESTIONS[index], trace, (), correct, truncated, answer.counts)


def routed(index: int, writers: str, correct: bool, truncated: bool = False) -> Result:
    return result(index, by_score(writers), len(writers), correct, truncated)


RULE = Rule("score", 0.5)
ROUTED = Run(
    "router",
    RULE,
    [
        routed(0, "SLS", True),
        routed(1, "SS", False, truncated=True),
        routed(2, "S", True),
        routed(3, "LL", True),
    ],
    PRICES,
)
LLM_VISITS = [Visit(0, 0, 0), Visit(0, 1, 1)]
ALONE = Run("llm", Rule("score", 1.0), [result(n, LLM_VISITS, 2, True) for n in range(4)], PRICES)

# The LLM reads four drafts: it agrees with two, accepts the third at its odds, and rejects the
# fourth. Then it reads a draft that ends the answer, and agrees.
FIRST = Disagreement(2, 7, 8, 0.4)
CORRECTED = [Visit(4, 4, 3, 4, (FIRST, Disagreement(3, 7, 9, 0.01))), Visit(1, 4, 5, 1)]
# The LLM agrees with two drafts and adds a token.
CONFIRMED = [Visit(2, 2, 2, 2)]
AUDITED = Run(
    "audited",
    Rule("risk", 0.5, 0.1),
    [
        result(0, CORRECTED, 5, True),
        result(1, CONFIRMED, 3, True),
        result(2, [], 2, True),
        result(3, CONFIRMED, 3, False),
    ],
    PRICES,
)


def rows(*runs: Run) -> dict[tuple[str, str], dict]:
    return {(row["method"], row["task"]): row for row in point_rows(runs, BATCHES)}


def test_an_outcome_counts_tokens_and_prices_them_at_batch_1():
    first, second, *_ = outcome_rows(ROUTED)
    assert first == {
        "split": "test",
        "method": "router",
        "visit": "score",
        "threshold": 0.5,
        "audit": 0.0,
        "by": None,
        "draft": None,
        "cap": None,
        "problem_id": "math0",
        "task": "math",
        "correct": True,
        "share": None,
        "failure": None,
        "truncated": False,
        "tokens": 3,
        "llm_tokens": 1,
        "visits": 1,
        "audited": 0,
        "disagreed": 0,
        "rejected": 0,
        "slm_steps": 3,
        "bytes": 3 * 100 + 1 * 1000,
    }
    assert (second["truncated"], second["llm_tokens"], second["bytes"]) == (True, 0, 200)


def test_a_point_is_a_mean_over_questions_and_a_share_of_tokens():
    point = rows(ROUTED, ALONE)["router", "all"]
    assert point["questions"] == 4
    assert point["accuracy"] == 0.75
    assert (point["accuracy_low"], point["accuracy_high"]) == share_interval(3, 4)
    assert point["llm_fraction"] == 3 / 8
    assert point["tokens_per_answer"] == 2
    assert point["truncated_share"] == 0.25
    assert point["bytes_per_answer_b1"] == (8 * 100 + 3 * 1000) / 4


def test_an_outcome_counts_audited_disagreed_and_rejected_tokens():
    first, second, third, _ = outcome_rows(AUDITED)
    names = ("visits", "llm_tokens", "audited", "disagreed", "rejected", "slm_steps")
    assert [first[name] for name in names] == [2, 1, 5, 2, 1, 5]
    assert [second[name] for name in names] == [1, 1, 2, 0, 0, 2]
    assert [third[name] for name in names] == [0, 0, 0, 0, 0, 2]
    assert first["bytes"] == 5 * 100 + 2 * 1000


def test_audit_shares_are_relative_to_the_audited_tokens():
    point = rows(AUDITED, ALONE)["audited", "all"]
    assert (point["visit"], point["threshold"], point["audit"]) == ("risk", 0.5, 0.1)
    audited, tokens = 5 + 2 + 0 + 2, 5 + 3 + 2 + 3
    assert point["agreement"] == 1 - 2 / audited
    assert point["rejected_share"] == 1 / audited
    assert point["visits_per_token"] == (2 + 1 + 0 + 1) / tokens
    assert point["llm_fraction"] == 3 / tokens
    assert point["slm_steps_per_token"] == (5 + 2 + 2 + 2) / tokens
    assert point["cost_b1"] == (11 * 100 + 4 * 1000) / 8000


def test_agreement_is_missing_without_audits():
    points_by_key = rows(ROUTED, ALONE)
    for method in ("router", "llm"):
        point = points_by_key[method, "all"]
        assert point["agreement"] is point["rejected_share"] is None
    assert points_by_key["llm", "all"]["slm_steps_per_token"] == 0
    assert points_by_key["llm", "all"]["visits_per_token"] == 1


def test_every_task_has_a_point_of_its_own():
    points_by_key = rows(ROUTED, ALONE)
    assert {task for _, task in points_by_key} == {"all", "math", "mc"}
    assert points_by_key["router", "math"]["questions"] == 2
    assert points_by_key["router", "math"]["accuracy"] == 1.0
    assert points_by_key["router", "mc"]["accuracy"] == 0.5
    assert points_by_key["router", "math"]["llm_fraction"] == 1 / 4


def test_cost_is_relative_to_the_llm_alone_on_its_own_answers_at_the_same_batch():
    points_by_key = rows(ROUTED, ALONE)
    assert points_by_key["llm", "all"]["cost_b1"] == points_by_key["llm", "all"]["cost_b2"] == 1.0
    assert points_by_key["router", "all"]["cost_b1"] == 3800 / 8000
    # Two at a time, math alone: the SLM prefills both, then runs twice; one LLM call. The LLM
    # alone prefills both, then runs once.
    assert points_by_key["router", "math"]["cost_b2"] == (3 * 100 + 1000) / 2000


def test_points_can_be_priced_by_the_llms_points_of_an_earlier_call():
    earlier = point_rows([ALONE], BATCHES)
    assert point_rows([ROUTED], BATCHES, earlier) == point_rows([ALONE, ROUTED], BATCHES)[3:]


def test_a_point_has_its_split_and_tasks_have_points_on_test_only():
    """Costs are relative to the LLM's on the same split."""
    cheap = [result(n, LLM_VISITS[:1], 1, True) for n in range(4)]
    runs = [ROUTED, ALONE, *map(on_validation, (ROUTED, replace(ALONE, results=cheap)))]
    found = {(r["split"], r["method"], r["task"]): r for r in point_rows(runs, BATCHES)}
    tasks = [(split, task) for split, method, task in found if method == "router"]
    assert tasks == [("test", "all"), ("test", "math"), ("test", "mc"), ("validation", "all")]
    assert found["test", "router", "all"]["cost_b1"] == 3800 / 8000
    assert found["validation", "router", "all"]["cost_b1"] == 3800 / 4000


def on_validation(run: Run) -> Run:
    moved = (r._replace(problem=replace(r.problem, split="validation")) for r in run.results)
    return replace(run, results=list(moved))


def findings(*runs: Run) -> Findings:
    return Findings(outcome_table(runs), point_rows(runs, BATCHES))


def names_of(found: Findings) -> dict[str, tuple[set[str], set[str]]]:
    """Return the methods of each split, by the outcomes and by the points."""
    both = found.outcomes.to_pylist(), found.points
    return {
        split: tuple({row["method"] for row in rows if row["split"] == split} for rows in both)
        for split in ("validation", "test")
    }


def test_findings_are_joined_and_kept_by_method_and_split_with_their_outcomes():
    own = findings(ROUTED, ALONE)
    both = own.joined(findings(*map(on_validation, (ROUTED, ALONE))))
    assert names_of(both) == dict.fromkeys(("validation", "test"), ({"router", "llm"},) * 2)
    kept = both.where(lambda row: row["method"] == "llm" and row["split"] == "test")
    assert names_of(kept) == {"validation": (set(), set()), "test": ({"llm"}, {"llm"})}
    assert both.where(lambda row: row["split"] == "test") == own
    assert both.on_test == own.points
    assert not both.where(lambda row: False).outcomes


def test_candidates_are_all_but_the_models_alone_and_the_bounds():
    kinds = {"router": Kind.ROUTER, "audited": Kind.BOUND, "llm": Kind.ALONE}
    runs = [
        replace(run, style=Style(kinds[run.method], "red", "o")) for run in (ROUTED, AUDITED, ALONE)
    ]
    assert names_of(findings(*runs).candidates)["test"] == ({"router"}, {"router"})


def test_only_methods_that_learn_from_an_iterations_labels_get_its_number_and_look():
    styled = replace(ROUTED, style=Style(Kind.ROUTER, "red", "o"))
    known = replace(AUDITED, method="bild", style=Style(Kind.RIVAL, "green", "<"))
    found = findings(styled, known, ALONE).of_iteration("2", "blue", "s")
    looks = {p["method"]: (p["colour"], p["marker"]) for p in found.points}
    assert looks == {"router_2": ("blue", "s"), "bild": ("green", "<"), "llm": ("#000000", ".")}
    assert set(found.outcomes["method"].to_pylist()) == set(looks)
    assert found.outcomes.schema == outcome_table([]).schema


STAMP = {"seed": 1, "dtype": "float32"} | Conditions().fields


@pytest.fixture
def written(tmp_path):
    runs = [ROUTED, AUDITED, ALONE]
    points_by_key = Findings(outcome_table(runs), point_rows(runs, BATCHES))
    write_findings(tmp_path, points_by_key, BATCHES, STAMP)
    return tmp_path, points_by_key


def test_findings_round_trip_through_files(written):
    folder, points_by_key = written
    assert read_findings(folder, BATCHES, STAMP) == points_by_key


@pytest.mark.parametrize(
    ("field", "stored", "here"),
    [("dtype", "float32", "float64"), ("measure", "accuracy", "fidelity")],
)
def test_findings_of_another_study_are_refused_by_field(written, field, stored, here):
    folder, _ = written
    said = rf"outcomes\.parquet: its {field} is {stored}, here it is {here}$"
    with pytest.raises(InputError, match=said):
        read_findings(folder, BATCHES, STAMP | {field: here})
