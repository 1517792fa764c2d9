"""The path back, and where the promise stands after shadow answers."""

from typing import Any

import pytest
from pydantic import ValidationError

from citer.rule import LLM, Rule
from citer.serving.promise import Entry, Promise, Standing, path_back

PATH = ["score 0.1", "score 0.5", "every 4 audit 1.0"]
PROMISE = Promise(path=PATH, graded=0.05, same=0.05, delta=0.05)


def entries(rule: str, losses: list[bool], first: int = 1) -> list[Entry]:
    return [Entry(first + k, "2026-01-01", rule, lost, 0.05) for k, lost in enumerate(losses)]


def standing() -> Standing:
    return Standing(PROMISE, false_alarms=1000)


def test_many_losses_take_one_step_back_and_begin_new_evidence() -> None:
    found = standing()
    [step] = found.take(entries(PATH[0], [True] * 9))  # some were on their way
    assert step.number == 6
    assert (str(step.before), str(step.rule)) == (PATH[0], PATH[1])
    assert str(found.rule) == PATH[1]
    assert found.shadowed == found.lost == 0
    assert found.detector.value == 0


def test_kept_answers_take_no_step() -> None:
    found = standing()
    assert found.take(entries(PATH[0], [False] * 3000)) == []
    assert (found.shadowed, found.lost, str(found.rule)) == (3000, 0, PATH[0])


def test_it_does_not_matter_how_entries_are_dealt_out() -> None:
    losses = [k % 7 == 0 for k in range(400)]
    rows = entries(PATH[0], losses[:200]) + entries(PATH[1], losses[200:], 201)
    whole, bit_by_bit = standing(), standing()
    whole.take(rows)
    for row in rows:
        bit_by_bit.take([row])
    assert whole.steps
    assert whole.steps == bit_by_bit.steps
    assert whole.detector.value == bit_by_bit.detector.value
    assert whole.forward.value == bit_by_bit.forward.value


def test_a_person_may_step_forward_after_enough_kept_answers_by_the_looser_rule() -> None:
    found = standing()
    found.take(entries(PATH[0], [True] * 6))
    found.take(entries(PATH[0], [True, False], 7))
    assert not found.may_step_forward
    found.take(entries(PATH[0], [False] * 300, 9))
    assert found.may_step_forward
    [step] = found.take([Entry(found.seen + 1, "2026-01-02")])
    assert (str(step.before), str(step.rule)) == (PATH[1], PATH[0])
    assert not found.may_step_forward


def test_a_risk_above_the_limit_never_allows_a_step_forward_soon() -> None:
    found = standing()
    found.take(entries(PATH[0], [True] * 6))
    found.take(entries(PATH[0], [k % 10 == 0 for k in range(3000)], 7))
    assert not found.may_step_forward


@pytest.mark.parametrize(
    "wrong", [{"path": ["score 0.1"]}, {"same": 0.0}, {"graded": 1.0}, {"other": 1}]
)
def test_a_promise_without_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Promise.model_validate(PROMISE.model_dump() | wrong)


def row(rule: str, cost: float, lost: int, held_out: int = 0, *, passed: bool = True) -> Any:
    validation = {"n": 300, "discordant": lost, "cost": cost}
    held = {"n": 100, "discordant": held_out, "cost": cost}
    return {"rule": rule, "validation": validation, "held_out": held, "passed": passed}


def test_the_path_back_halves_the_losses_at_the_least_cost() -> None:
    steps = [
        row("every 4 audit 1.0", 0.5, 0),
        row("every 2 audit 1.0", 0.6, 0),
        row("score 0.9", 0.4, 2),
        row("score 0.8", 0.35, 5),
        row("score 0.7", 0.3, 4, passed=False),
        row("score 0.6", 0.33, 4, held_out=9),
        row("score 0.5", 0.25, 9),
        row("score 0.4", 0.2, 10, held_out=3),
    ]
    path = path_back(Rule.parse("score 0.4"), steps)
    assert list(map(str, path)) == ["score 0.4", "score 0.8", "score 0.9", "every 4 audit 1.0"]


@pytest.mark.parametrize(
    ("steps", "resort"),
    [
        pytest.param([], LLM, id="no exact rule"),
        pytest.param(
            [row("every 1 audit 1.0", 1.2, 0), row("score 0.9", 1.0, 1)],
            LLM,
            id="no rule cheaper than the LLM alone",
        ),
        pytest.param(  # in half precision an exact rule may lose an answer, so others are safer
            [row("every 4 audit 1", 0.25, 1), row("score 0.9", 0.6, 0)],
            Rule.parse("every 4 audit 1"),
            id="no rule cheaper than the exact one",
        ),
    ],
)
def test_no_rule_of_the_path_costs_more_than_its_end(steps: list[Any], resort: Rule) -> None:
    deployed = Rule.parse("score 0.4")
    assert path_back(deployed, [*steps, row("score 0.4", 0.2, 9)]) == [deployed, resort]


def test_a_step_forward_without_evidence_is_none() -> None:
    """Two people may have asked for the same step at once."""
    found = standing()
    found.take(entries(PATH[0], [True] * 6))
    found.take(entries(PATH[1], [True] * 6, 7))
    found.take(entries(PATH[1], [False] * 300, 13))
    found.take([Entry(313, "2026-01-02"), Entry(314, "2026-01-02")])
    assert [(step.back, str(step.rule)) for step in found.steps] == [
        (True, PATH[1]),
        (True, PATH[2]),
        (False, PATH[1]),
    ]
    assert standing().take([Entry(1, "2026-01-02")]) == []


def test_a_step_has_the_figures_of_the_rule_before() -> None:
    found = standing()
    [back] = found.take(entries(PATH[0], [False, *[True] * 7]))
    alternatives = [0.05 * worse for worse in (1.25, 1.5, 2, 3, 5)]
    bets = [(1 - q) / 0.95 * (q / 0.05) ** back.lost for q in alternatives]
    assert (back.shadowed, back.lost) == (back.number, back.number - 1)
    assert back.e_value == pytest.approx(sum(bets) / 5)
    assert back.e_detector >= 1000
    found.take(entries(PATH[0], [False] * 300, 9))
    [forward] = found.take([Entry(309, "2026-01-02")])
    assert forward.e_value >= 1 / 0.05
