"""The worth of the deployed rule on three questions, computed by hand."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from citer.evaluation.measure import FIDELITY
from citer.evaluation.methods import Kind, Style
from citer.evaluation.points import rule_columns
from citer.report.worth import ACCURACY, COST, PART, content, parts, worth
from citer.rule import LLM, SLM, Rule
from citer.storage.schema import OUTCOME

# By method and rule: right answers and bytes, one for each question.
ANSWERS = {
    ("slm", "score 0"): ("100", (1, 1, 1)),
    ("llm", "score 1"): ("111", (10, 10, 10)),
    ("entropy", "score 0.5 by entropy"): ("010", (5, 5, 5)),
    ("citer_s", "score 0.5 by contested_llm"): ("110", (2, 2, 2)),
    ("router", "score 0.7 by stand"): ("011", (2, 2, 5)),
    ("router", "score 0.9 by stand"): ("111", (8, 8, 8)),
    ("random", "score 0.3"): ("110", (1, 1, 1)),
}
DEPLOYED = Rule("score", 0.7, by="stand")
KINDS = {
    "slm": Kind.ALONE,
    "llm": Kind.ALONE,
    "entropy": Kind.RIVAL,
    "citer_s": Kind.RIVAL,
    "router": Kind.ROUTER,
    "random": Kind.BOUND,
    "audited": Kind.AUDITED,
    "policy": Kind.POLICY,
    "exact": Kind.EXACT,
    "speculative": Kind.EXACT,
}
METHODS = {name: Style(kind, "red", "o") for name, kind in KINDS.items()}


def outcomes(answers: dict, tasks: str = "aab") -> pa.Table:
    return pa.Table.from_pylist([*_rows(answers, tasks)], OUTCOME)


def _rows(answers: dict, tasks: str) -> Iterator[dict]:
    for (method, rule), (right, moved) in answers.items():
        columns = {"method": method, **rule_columns(Rule.parse(rule))}
        for n, (correct, size) in enumerate(zip(right, moved, strict=True)):
            own = {"problem_id": f"q{n}", "task": tasks[n], "correct": correct == "1"}
            counts = dict.fromkeys(OUTCOME.names[9:-1], 1)
            nothing = {"share": None, "failure": None, "truncated": False}
            test = {"split": "test", "bytes": size}
            yield counts | columns | own | nothing | test
            yield counts | columns | own | nothing | test | {"split": "validation", "bytes": 99}


def found(answers: dict, method: str = "router", rule: Rule = DEPLOYED) -> list[dict]:
    methods = {name: METHODS[name] for name, _ in answers}
    return worth([outcomes(answers)], methods, method, rule)


def beside(rows: list[dict], other: str, task: str = "all") -> dict:
    [row] = (r for r in rows if (r["other"], r["task"], r["kind"] == PART) == (other, task, False))
    return row


def test_cost_and_accuracy_beside_other_methods():
    """The deployed rule has 2 of 3 right for 9 bytes.

    `entropy` never beats the line from the SLM (1 right, 3 bytes) to the LLM (3 right, 30 bytes):
    half way, 2 right cost 16.5 bytes, and 9 bytes give 1 + 6/27 x 2 right. CITER-S has 2 right for
    6 bytes; 9 bytes give 2 + 3/24 right.
    """
    weak, strong = (beside(found(ANSWERS), other) for other in ("entropy", "CITER-S"))
    assert weak[COST] == pytest.approx(9 / 16.5 - 1)
    assert weak[ACCURACY] == pytest.approx((2 - 1 - 12 / 27) / 3)
    assert strong[COST] == pytest.approx(9 / 6 - 1)
    assert strong[ACCURACY] == pytest.approx(-(3 / 24) / 3)
    assert (weak["kind"], strong["kind"]) == ("rival", "rival")
    assert beside(found(ANSWERS), "random")["kind"] == "bound"


def test_a_task_has_its_own_numbers():
    """On `a` the deployed rule has 1 of 2 right for 4 bytes; the SLM has as many for 2."""
    row = beside(found(ANSWERS), "CITER-S", "a")
    assert row[COST] == pytest.approx(4 / 2 - 1)
    assert row[ACCURACY] == pytest.approx((1 - 2) / 2)


def test_each_task_has_a_row_for_each_changed_part_then_for_each_other_method():
    own = [row["other"] for row in found(ANSWERS)]
    assert own == ["certainty alone", "entropy", "CITER-S", "random"] * 3
    wide = Rule("score", 0.7, by="narrow")
    answers = ANSWERS | {("policy", str(wide)): ("111", (1, 1, 1))}
    rows = found(answers, "policy", wide)
    names = [row["other"] for row in rows if (row["task"], row["kind"]) == ("all", PART)]
    assert names == [
        f"{WIDE} in place of {STATE}",
        "contested → LLM in place of preferences",
        "certainty alone",
    ]
    assert "router" in [row["other"] for row in rows]


def test_a_changed_part_is_compared_with_all_rules_that_have_it_of_any_method():
    """With audits the head has 2 right for 3 bytes. Bounds have no scorer, but are no part."""
    audits = {
        ("audited", "risk 0.5 audit 0.3 by stand"): ("110", (1, 1, 1)),
        ("exact", "risk 0.5 audit 1 by stand"): ("111", (9, 9, 9)),
        ("policy", "every 4 audit 0.3"): ("110", (1, 1, 1)),
    }
    rows = found(ANSWERS | audits)
    by_part = {row["other"]: row for row in rows if (row["task"], row["kind"]) == ("all", PART)}
    relaxed, exact = (f"{accepts} in place of {NO_AUDIT}" for accepts in (BETA, ONE))
    assert list(by_part) == [relaxed, exact, "certainty alone"]
    assert by_part[relaxed][COST] == pytest.approx(9 / 3 - 1)
    # 3 right for 27 bytes: half way from the SLM's 3, at 15, are 2 right.
    assert by_part[exact][COST] == pytest.approx(9 / 15 - 1)
    for name in (COST, ACCURACY):
        assert by_part["certainty alone"][name] == beside(rows, "entropy")[name]


NO_AUDIT, BETA, ONE = "no audit", "audit β", "audit 1"
VISIT = "every γ in place of scores"
OTHER_LABELS = ("agreement", "contested → LLM", "contested → SLM", "Co-LLM's likelihood")
WIDE, STATE, NUMBERS = "the hidden state, a wide head", "the hidden state", "ten numbers"


@pytest.mark.parametrize(
    ("rule", "changed"),
    [
        (
            "score 0.7 by stand",
            [
                f"{BETA} in place of {NO_AUDIT}",
                f"{ONE} in place of {NO_AUDIT}",
                VISIT,
                f"{STATE} in place of {WIDE}",
                f"{NUMBERS} in place of {WIDE}",
                "certainty alone",
            ],
        ),
        (
            "risk 0.5 audit 0.25 by logistic",
            [
                f"{NO_AUDIT} in place of {BETA}",
                f"{ONE} in place of {BETA}",
                VISIT,
                f"{WIDE} in place of {NUMBERS}",
                f"{STATE} in place of {NUMBERS}",
                *(f"{labels} in place of preferences" for labels in OTHER_LABELS),
                "certainty alone",
            ],
        ),
        (
            "score 0.5 audit 1 by agree",
            [
                f"{NO_AUDIT} in place of {ONE}",
                f"{BETA} in place of {ONE}",
                VISIT,
                "preferences in place of agreement",
                f"{NUMBERS} in place of {STATE}",
                *(f"{labels} in place of agreement" for labels in OTHER_LABELS[1:]),
                "certainty alone",
            ],
        ),
        (
            "score 0.5 by entropy",
            [f"{BETA} in place of {NO_AUDIT}", f"{ONE} in place of {NO_AUDIT}", VISIT],
        ),
        ("every 4 audit 1", [f"{NO_AUDIT} in place of {ONE}", f"{BETA} in place of {ONE}"]),
        ("score 1", []),
    ],
)
def test_a_candidate_that_differs_in_one_part_has_one_other_scorer_or_acceptance(rule, changed):
    found = parts(Rule.parse(rule))
    assert [other.name for other in found] == changed
    assert {other.kind for other in found} <= {PART}


@pytest.mark.parametrize(
    ("rule", "part", "has"),
    [
        ("score 0.7 by stand", VISIT, ()),
        ("risk 0.5 audit 0.25 by stand", VISIT, ("every 4 audit 0.3",)),
        ("score 0.5 audit 1 by stand", VISIT, ("every 4 audit 1",)),
        ("every 4 audit 1", f"{NO_AUDIT} in place of {ONE}", ()),
        (
            "score 0.5 audit 1 by stand",
            "certainty alone",
            ("risk 0.5 audit 1 by entropy", "score 0.5 audit 1 by probability"),
        ),
        (
            "score 0.5 audit 1 by stand from both",
            "certainty alone",
            ("risk 0.5 audit 1 by entropy from both",),
        ),
        (
            "every 4 audit 1 from lookup",
            f"{BETA} in place of {ONE}",
            ("risk 0.5 audit 0.3 from lookup",),
        ),
        ("score 0.7 by stand", f"{STATE} in place of {WIDE}", ("score 0.5 by narrow",)),
        ("risk 0.5 audit 0.25 by stand", f"{NO_AUDIT} in place of {BETA}", ("score 0.3 by stand",)),
    ],
)
def test_no_part_has_a_bound_a_model_alone_or_another_drafter(rule, part, has):
    tried = [
        *("every 4 audit 0.3", "every 4 audit 1", "risk 0.5 audit 1 by entropy"),
        *("score 0.5 audit 1 by probability", "risk 0.5 audit 1 by entropy from both"),
        "risk 0.5 audit 0.3 from lookup",
        *("score 0.5 by narrow", "score 0.3 by stand", "score 0.5"),  # the last one of a bound
        *map(str, (SLM, LLM)),
    ]
    [other] = (each for each in parts(Rule.parse(rule)) if each.name == part)
    assert tuple(text for text in tried if other.has("any", Rule.parse(text))) == has


def test_questions_are_resampled_in_pairs():
    """Another method with the same answers and bytes is neither cheaper nor better."""
    same = "111", (1, 9, 4)
    both = {("exact", "risk 0.3 audit 1 by stand"): same, ("router", str(DEPLOYED)): same}
    row = beside(found(ANSWERS | both), "exact")
    for name in (COST, ACCURACY):
        assert [row[name], row[f"{name}_low"], row[f"{name}_high"]] == [0, 0, 0]


def test_what_is_not_reached_has_no_number():
    """The LLM is wrong where we are right, and our rule is cheaper than the SLM alone."""
    unreached = ANSWERS | {
        ("slm", "score 0"): ("100", (2, 2, 2)),
        ("llm", "score 1"): ("110", (10, 10, 10)),
        ("router", str(DEPLOYED)): ("111", (1, 1, 1)),
    }
    row = beside(found(unreached), "entropy")
    for name in (COST, ACCURACY):
        assert row[name] is row[f"{name}_low"] is row[f"{name}_high"] is None


def test_an_interval_keeps_the_end_that_few_resamples_without_a_number_do_not_reach():
    """Where the first question is drawn four times, our rule is cheaper than the SLM alone.

    This is so in 1.6 % of all resamples, and only the upper end is that of the 2.5 % above it.
    """
    answers = {
        ("slm", "score 0"): ("1" + 19 * "0", (125, *[100] * 19)),
        ("llm", "score 1"): (20 * "1", [1000] * 20),
        ("entropy", "score 0.5 by entropy"): (20 * "1", [500] * 20),
        ("router", str(DEPLOYED)): (20 * "1", (100, *[105] * 19)),
    }
    row = beside(worth([outcomes(answers, 20 * "a")], METHODS, "router", DEPLOYED), "entropy")
    assert 0.5 < row[f"{ACCURACY}_low"] < row[ACCURACY] <= row[f"{ACCURACY}_high"] <= 1


def test_an_uncertified_rule_is_compared_as_the_llm_alone():
    rows = found(ANSWERS, rule=LLM)
    assert beside(rows, "entropy")[COST] == pytest.approx(0)
    assert not [row for row in rows if row["kind"] == PART]


def test_a_run_that_lacks_a_question_is_an_error():
    with pytest.raises(AssertionError, match="lacks questions"):
        worth([outcomes(ANSWERS).slice(0, 40)], METHODS, "router", DEPLOYED)


def test_under_fidelity_no_number_is_called_accuracy():
    written = content(found(ANSWERS), FIDELITY)
    assert written["others"][0]["cost_at_equal_fidelity"] is not None
    assert "accuracy" not in str(written)
