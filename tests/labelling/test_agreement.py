"""Labels by agreement, by hand: finish the SLM's branch with `generate` and compare the texts."""

from dataclasses import replace

import pytest
import torch

from citer.data.problems import Problem
from citer.data.tasks import find_task
from citer.data.tasks.task import GraderError
from citer.decoding.engine import Engine
from citer.decoding.policy import SLM_ALONE
from citer.labelling.agreement import Agreement
from citer.labelling.contests import Branch, Contest
from citer.labelling.preference import Decision
from tests.labelling.conftest import Taught

NEW_TOKENS = 20


def finish(taught: Taught, branch: Branch) -> str | None:
    ids = [*branch.example.prompt_ids, *branch.prefix_ids]
    if ids[-1] in taught.pair.eos_ids:
        return taught.pair.text(branch.prefix_ids)
    whole = taught.pair.slm.network.generate(
        torch.tensor([ids]),
        do_sample=False,
        max_new_tokens=NEW_TOKENS,
        eos_token_id=list(taught.pair.eos_ids),
    )[0].tolist()
    text = taught.pair.text(whole[len(branch.example.prompt_ids) :])
    return text if whole[-1] in taught.pair.eos_ids else None


def same_end(_: object, problem: Problem, one: str, other: str) -> bool:
    """Compare the last words. The models end a sentence in different ways."""
    return one.rstrip(".!").split()[-1:] == other.rstrip(".!").split()[-1:]


def make_contests(taught: Taught, written_by: str | None) -> list[Contest]:
    columns = ("problem_id", "position", "gt_token", "slm_token", "llm_token")
    contests = []
    for row in taught.tokens.select(columns).to_pylist():
        if row["slm_token"] not in (row["gt_token"], row["llm_token"]):
            problem = replace(taught.problems[row["problem_id"]], written_by=written_by)
            place = (problem, taught.examples[row["problem_id"]], row["position"])
            contests.append(
                Contest(Branch(*place, row["slm_token"]), Branch(*place, row["llm_token"]))
            )
    return contests


@pytest.mark.parametrize("written_by", [None, "llm"])
def test_a_token_stands_if_its_answer_is_the_llms(
    taught: Taught, written_by: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in ("math", "mc"):
        monkeypatch.setattr(type(find_task(task)), "same", same_end, raising=False)
    contests = make_contests(taught, written_by)[::3]
    counted: list[float] = []
    decisions = Agreement(Engine(taught.pair, 4, NEW_TOKENS), SLM_ALONE)(contests, counted.append)
    for contest, decision in zip(contests, decisions, strict=True):
        target = contest.problem.reference if written_by else finish(taught, contest.llm)
        text = finish(taught, contest.slm)
        same = None not in (target, text) and same_end(None, contest.problem, target, text)
        assert decision == Decision(int(same), "agreement")
    assert {decision.label for decision in decisions} == {0, 1}
    assert sum(counted) == 2 * len(contests)


def test_an_answer_that_is_cut_off_is_not_the_same(taught: Taught) -> None:
    contests = make_contests(taught, "llm")[:6]
    engine = Engine(taught.pair, 4, max_new_tokens=1)
    decisions = Agreement(engine, SLM_ALONE)(contests, lambda _: None)
    assert {decision.label for decision in decisions} == {0}


def test_a_comparison_that_fails_is_noted(taught: Taught, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> bool:
        raise GraderError("it failed")

    contests = [c for c in make_contests(taught, "llm") if c.problem.task == "math"]
    monkeypatch.setattr(type(find_task("math")), "same", fails, raising=False)
    decisions = Agreement(Engine(taught.pair, 4, 60), SLM_ALONE)(contests, lambda _: None)
    assert Decision(0, "agreement", failure="it failed") in decisions
