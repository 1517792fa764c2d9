"""Labels against the paper's algorithm (arXiv 2502.01976), token by token and without a cache."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import pyarrow as pa
import pytest
import torch

from citer.data.prompts import PlainPrompts, PromptSettings
from citer.data.tasks.grading import grade
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import SLM_ALONE, Policy, routed
from citer.labelling.contests import Branch, Contest, Decision
from citer.labelling.labeller import Labeller, Rollout
from citer.models.pair import LanguageModel
from citer.models.router import Router, features
from citer.rule import Rule
from tests.decoding.reference import Uncached
from tests.heads import random_router
from tests.labelling.conftest import Taught

LONGEST = 28  # tokens of an answer; one of the references is longer
Finish = Callable[[list[int], int], list[int]]  # of ids, by at most so many tokens


def _label(taught: Taught, policy: Policy, slots: int = 3) -> pa.Table:
    engine = Engine(taught.pair, slots, LONGEST)
    labeller = Labeller(taught.problems, taught.examples, Rollout(engine, policy), 1)
    return labeller.label(taught.tokens, lambda _: None)


@pytest.fixture(scope="module")
def router() -> Router:
    return random_router(32, seed=5, slope=20.0)


def _greedy(model: LanguageModel, ids: list[int]) -> tuple[torch.Tensor, int]:
    """Return the router's input after `ids` and the next token, from one plain forward."""
    result = model.network(torch.tensor([ids]), output_hidden_states=True)
    logits_1V = result.logits[0, -1:]
    return features(result.hidden_states[-1][0, -1:], logits_1V), int(logits_1V.argmax())


def _alone(taught: Taught) -> Finish:
    def finish(ids: list[int], room: int) -> list[int]:
        slm = taught.pair.slm.network
        return slm.generate(
            torch.tensor([ids]),
            do_sample=False,
            max_new_tokens=room,
            eos_token_id=list(taught.pair.eos_ids),
        )[0, len(ids) :].tolist()

    return finish


def _ends_right(taught: Taught, finish: Finish, key: str, answer: list[int]) -> bool:
    eos, prompt_ids = taught.pair.eos_ids[0], taught.examples[key].prompt_ids
    room = LONGEST - len(answer)
    unfinished = answer[-1] != eos and room > 0
    whole = answer + finish(prompt_ids + answer, room) if unfinished else answer
    return (
        room >= 0 and whole[-1] == eos and grade(taught.problems[key], taught.pair.text(whole[:-1]))
    )


def _expected_row(taught: Taught, finish: Finish, key: str, position: int) -> dict:
    prompt_ids, reference_ids = taught.examples[key]
    before, gt = reference_ids[:position], reference_ids[position]
    slm = _greedy(taught.pair.slm, prompt_ids + before)[1]
    llm = _greedy(taught.pair.llm, prompt_ids + before)[1]
    slm_correct = llm_correct = None
    if slm == gt:
        case, label, origin = "slm_right", 1, "shortcut"
    elif llm == gt:
        case, label, origin = "llm_right", 0, "shortcut"
    elif slm == llm:
        case, label, origin = "same_wrong", 1, "same_token"
    else:
        slm_correct = _ends_right(taught, finish, key, [*before, slm])
        if not slm_correct:
            llm_correct = _ends_right(taught, finish, key, [*before, llm])
        case, label, origin = "contested", 0 if llm_correct else 1, "rollout"
    return {
        "problem_id": key,
        "position": position,
        "case": case,
        "label": label,
        "origin": origin,
        "slm_branch_correct": slm_correct,
        "llm_branch_correct": llm_correct,
        "iteration": 1,
        "failure": None,
        "fall": None,
    }


def _expected(taught: Taught, finish: Finish, keys: Sequence[str]) -> list[dict]:
    return [
        _expected_row(taught, finish, key, position)
        for key in keys
        for position in range(len(taught.examples[key].reference_ids))
    ]


def test_labels_under_router_0_equal_brute_force_with_plain_generate(taught: Taught) -> None:
    rows = _label(taught, SLM_ALONE).to_pylist()
    assert rows == _expected(taught, _alone(taught), list(taught.problems))
    outcomes = {(row["slm_branch_correct"], row["llm_branch_correct"]) for row in rows}
    assert outcomes == {(None, None), (True, None), (False, True), (False, False)}
    task_cases = {(row["problem_id"].split("-")[0], row["case"]) for row in rows}
    all_cases = ("slm_right", "llm_right", "same_wrong", "contested")
    assert task_cases == set(product(("math", "mc"), all_cases))


@pytest.mark.parametrize(
    ("text", "other", "count"),
    [
        ("score 0.5", "score 0", 4),
        # The first token of a branch is not pending: only tokens after it can be rolled back.
        ("risk 0.5 audit 0.5", "risk 0.5", 2),
    ],
)
def test_labels_under_a_router_equal_brute_force(
    taught: Taught, router: Router, text: str, other: str, count: int
) -> None:
    policy, without = (routed(router, Rule.parse(each)) for each in (text, other))

    def finish(ids: list[int], room: int) -> list[int]:
        return Uncached(taught.pair, Request("", tuple(ids)), policy, room).run().written

    rows = _label(taught, policy).to_pylist()
    keys = list(taught.problems)[:count]
    ours = [row for row in rows if row["problem_id"] in keys]
    assert ours == _expected(taught, finish, keys)
    assert rows != _label(taught, without).to_pylist(), "the rule must change labels"


def test_labels_do_not_depend_on_the_number_of_slots(taught: Taught) -> None:
    assert _label(taught, SLM_ALONE, slots=1).equals(_label(taught, SLM_ALONE, slots=64))


def _branch(taught: Taught, key: str, position: int, token: int) -> Branch:
    return Branch(taught.problems[key], taught.examples[key], position, token)


@pytest.mark.parametrize("end", ["first EOS", "second EOS", "stop text"])
def test_a_branch_that_ends_the_answer_is_graded_without_decoding(taught: Taught, end: str) -> None:
    tokenizer, eos = taught.pair.tokenizer, taught.pair.eos_ids[0]
    prompts = PlainPrompts(PromptSettings(stop=["!"]), tokenizer, [eos])
    pair = replace(taught.pair, eos_ids=(eos, 7), prompts=prompts)
    [stop] = tokenizer("!").input_ids
    token = {"first EOS": eos, "second EOS": 7, "stop text": stop}[end]
    last = len(taught.examples["math-0"].reference_ids) - 1
    contests = [
        Contest(*[_branch(taught, "math-0", position, token)] * 2)
        for position in (last, 3)  # the whole reference; its beginning, which has no answer
    ]
    engine = Engine(pair, 2, LONGEST)
    counted: list[float] = []
    decisions = Rollout(engine, SLM_ALONE)(contests, counted.append)
    assert decisions == [Decision(1, "rollout", True), Decision(1, "rollout", False, False)]
    assert engine.slm_work.forwards == engine.llm_work.forwards == 0
    assert sum(counted) == 2 * len(contests)


def test_a_truncated_rollout_is_wrong_even_if_its_answer_is_right(taught: Taught) -> None:
    prompt_ids, reference_ids = taught.examples["math-0"]
    last, eos = len(reference_ids) - 1, taught.pair.eos_ids[0]
    before = prompt_ids + reference_ids[:last]
    token = next(
        token for token in range(1, 300) if _greedy(taught.pair.slm, [*before, token])[1] != eos
    )
    branch = _branch(taught, "math-0", last, token)
    assert grade(branch.problem, taught.pair.text(branch.prefix_ids))
    engine = Engine(taught.pair, 1, len(branch.prefix_ids) + 1)
    [decision] = Rollout(engine, SLM_ALONE)([Contest(branch, branch)], lambda _: None)
    assert decision == Decision(1, "rollout", False, False)


def test_rollouts_of_a_problem_share_one_forward_of_its_prompt_and_reference(
    taught: Taught,
) -> None:
    example = taught.examples["math-0"]
    length = len(example.prompt_ids) + len(example.reference_ids)
    branches = [_branch(taught, "math-0", position, 65) for position in range(2, 10)]
    engine = Engine(taught.pair, 8, max_new_tokens=11)
    Rollout(engine, SLM_ALONE)([Contest(*branches[:1] * 2)], lambda _: None)
    once = engine.slm_work.positions
    assert once >= length - 1
    engine = Engine(taught.pair, 8, max_new_tokens=11)
    contests = [Contest(branch, branch) for branch in branches]
    Rollout(engine, SLM_ALONE)(contests, lambda _: None)
    decoded = sum(11 - len(branch.prefix_ids) for branch in branches)  # each branch twice
    assert engine.slm_work.positions < once + 2 * decoded


def test_a_rollout_is_no_longer_than_an_answer_may_be(taught: Taught) -> None:
    """With its prefix it may have `most` tokens. Here a whole reference is one too many."""
    reference_ids = taught.examples["math-0"].reference_ids
    most, eos = len(reference_ids) - 1, taught.pair.eos_ids[0]
    branches = [
        _branch(taught, "math-0", most - 1, 65),  # no token is left for its end
        _branch(taught, "math-0", most, eos),
        _branch(taught, "math-0", 3, 65),
    ]
    engine, made = Engine(taught.pair, 3, most), list[Request]()
    engine.check = made.append  # type: ignore[method-assign]
    contests = [Contest(branch, branch) for branch in branches]
    decisions = Rollout(engine, SLM_ALONE)(contests, lambda _: None)
    assert decisions[:2] == [Decision(1, "rollout", False, False)] * 2
    assert {request.max_new_tokens for request in made} == {most - 4}
