"""Lockstep drafting against the engine: the same rules give the same answers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy, routed
from citer.decoding.runner import MakeGraphs, ModelRunner
from citer.evaluation.cost import Trace, work_of
from citer.models.graphs import no_graphs
from citer.models.pair import Pair
from citer.models.router import Router
from citer.models.sampling import Sampling
from citer.rule import Rule
from citer.vllm.drafting import Drafter, Row
from tests.graphs import uncaptured
from tests.heads import random_router
from tests.vllm.lockstep import Lockstep

LIMIT = 24
PROMPTS = {f"q{n}": tuple(range(20 + 3 * n, 26 + 5 * n)) for n in range(12)}
RULES = [
    Rule.parse(text)
    for text in (
        "score 0.5",
        "score 0",
        "risk 0.3",
        "every 3",
        "every 4 audit 1",
        "risk 0.2 audit 1",
    )
]


@pytest.fixture(scope="module")
def router(kin: Pair) -> Router:
    return random_router(kin.slm.hidden_size, dtype=torch.float64)


def answers(pair: Pair, policy: Policy, firsts: dict[str, int] | None = None) -> dict[str, Answer]:
    """Decode with the engine, with the first token given if `firsts` has it."""
    requests = [Request(key, ids, (firsts[key],) if firsts else ()) for key, ids in PROMPTS.items()]
    engine = Engine(pair, slots=4, max_new_tokens=LIMIT)
    with torch.inference_mode():
        return {answer.key: answer for answer in engine.decode(requests, policy)}


def run(pair: Pair, router: Router, rule: Rule, cap: int = LIMIT, pauses: float = 0.0) -> Lockstep:
    return Lockstep(pair, Drafter(pair, router, 4, 128), rows=4, cap=cap, pauses=pauses)


@torch.inference_mode()
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_answers_are_those_of_the_engine_after_the_llms_first_token(
    kin: Pair, router: Router, rule: Rule
) -> None:
    written = run(kin, router, rule).run(PROMPTS, dict.fromkeys(PROMPTS, rule), LIMIT)
    firsts = {key: own[0] for key, own in written.items()}
    own = answers(kin, routed(router, rule), firsts)
    compared = 0
    for key, ids in written.items():
        if ids[0] in kin.eos_ids:
            continue
        after = ids[1 : LIMIT - 1]  # the limit's last token is always the LLM's
        engine = list(own[key].token_ids[: len(after)])
        assert by_one_eos(kin, after) == by_one_eos(kin, engine)
        compared += len(after)
    assert compared > 50


@torch.inference_mode()
@pytest.mark.parametrize("rule", [*RULES, Rule.parse("risk 0.3 audit 0.4")], ids=str)
def test_under_a_cap_the_engine_answers_as_vllm_and_the_cost_has_its_forwards(
    kin: Pair, router: Router, rule: Rule
) -> None:
    lockstep, capped = run(kin, router, rule), replace(rule, cap=5)
    written = lockstep.run(PROMPTS, dict.fromkeys(PROMPTS, capped), LIMIT)
    own = answers(kin, routed(router, capped))
    for key, ids in written.items():
        assert len(ids) == len(own[key].token_ids)
        after = LIMIT - 1  # the limit's last token is always the LLM's
        assert by_one_eos(kin, ids[:after]) == by_one_eos(kin, list(own[key].token_ids[:after]))
    traces = [
        Trace.of(len(ids), len(own[key].token_ids), own[key].visits) for key, ids in PROMPTS.items()
    ]
    assert work_of(traces, 4, "lockstep")[1].forwards == lockstep.forwards


def by_one_eos(pair: Pair, ids: list[int]) -> list[int]:
    return [pair.eos_ids[0] if token in pair.eos_ids else token for token in ids]


@torch.inference_mode()
def test_exact_rules_write_the_llms_own_answers_though_rows_move_and_pause(
    kin: Pair, router: Router
) -> None:
    rules = {
        key: Rule.parse(["risk 0.2 audit 1", "every 5 audit 1", "score 1"][n % 3])
        for n, key in enumerate(PROMPTS)
    }
    lockstep = run(kin, router, RULES[0], cap=6, pauses=0.3)
    written = lockstep.run(PROMPTS, rules, LIMIT)
    own = answers(kin, LLM_ALONE)
    for key, ids in written.items():
        assert by_one_eos(kin, ids) == list(own[key].token_ids)


@torch.inference_mode()
def test_requests_of_different_rules_do_not_change_each_other(kin: Pair, router: Router) -> None:
    mixed = {key: RULES[n % len(RULES)] for n, key in enumerate(PROMPTS)}
    together = run(kin, router, RULES[0], cap=6, pauses=0.3).run(PROMPTS, mixed, LIMIT)
    assert len({str(rule) for rule in mixed.values()}) == len(RULES)
    for key, rule in mixed.items():
        alone = run(kin, router, rule, cap=6).run({key: PROMPTS[key]}, {key: rule}, LIMIT)
        assert together[key] == alone[key]


@torch.inference_mode()
def test_moved_and_returning_requests_are_not_read_again(kin: Pair, router: Router) -> None:
    rule = Rule.parse("every 4 audit 1")
    lockstep = run(kin, router, rule, cap=6, pauses=0.3)
    four = dict(list(PROMPTS.items())[:4])
    written = lockstep.run(four, dict.fromkeys(four, rule), LIMIT)
    needed = sum(len(four[key]) + len(ids) for key, ids in written.items())
    total = lockstep.drafter.runner.total.positions
    drafts = lockstep.drafter.runner.total.forwards * 4
    assert total <= needed + drafts  # every prompt once; rejected drafts are all that is repeated


@torch.inference_mode()
def test_drafts_end_at_the_cap_the_stops_and_where_nobody_asks(kin: Pair, router: Router) -> None:
    drafter = Drafter(kin, router, 4, 128)
    ids = np.array(PROMPTS["q1"], np.int32)
    free = Rule.parse("score 0")

    def drafted(rule: Rule, room: int, stops: set[int]) -> list[int]:
        return drafter.draft([Row("q", ids, rule, room, stops)])[0].ids

    long = drafted(free, 20, {*kin.eos_ids})
    assert 3 < len(long) <= 20
    assert drafted(free, 2, {*kin.eos_ids}) == long[:2]
    assert drafted(free, 20, {*kin.eos_ids, long[2]}) == long[: long.index(long[2]) + 1]
    assert drafted(free, 0, set()) == drafted(Rule.parse("score 1"), 20, set()) == []


@torch.inference_mode()
def test_an_id_that_only_the_llm_has_is_left_to_the_llm(kin: Pair, router: Router) -> None:
    drafter, rule = Drafter(kin, router, 4, 128), Rule.parse("score 0")
    rows = [
        Row(str(last), np.array([20, last], np.int32), rule, 8, set(kin.eos_ids))
        for last in (kin.slm.vocab_size - 1, kin.slm.vocab_size)
    ]
    known, unknown = drafter.draft(rows)
    assert known.ids
    assert unknown.ids == []


@torch.inference_mode()
def test_an_eos_at_which_vllm_does_not_stop_is_left_to_the_llm(kin: Pair, router: Router) -> None:
    drafter = Drafter(kin, router, 4, 128)
    row = Row("q", np.array(PROMPTS["q0"], np.int32), Rule.parse("score 0"), 100, set())
    rows = [row._replace(key=key, ids=np.array(ids, np.int32)) for key, ids in PROMPTS.items()]
    endless = drafter.draft(rows[:4])
    stopping = drafter.draft([row._replace(stops=set(kin.eos_ids)) for row in rows[:4]])
    assert any(own.ids[-1] == kin.eos_ids[0] for own in stopping)
    assert all(kin.eos_ids[0] not in own.ids for own in endless)


def graphed(pair: Pair, router: Router, make_graphs: MakeGraphs) -> Drafter:
    drafter = Drafter(pair, router, 4, 128)
    drafter.runner = ModelRunner(pair.slm, 4, make_graphs)
    return drafter


@torch.inference_mode()
@pytest.mark.parametrize("make_graphs", [no_graphs, uncaptured])
def test_drafts_have_noise_for_the_rows_that_sample_only(
    kin: Pair, router: Router, noisy_rows: list[int], make_graphs: MakeGraphs
) -> None:
    """A greedy draft beside them is the same, and drafted longer than the sampled one."""
    ids, free = np.array(PROMPTS["q2"], np.int32), Rule.parse("score 0")
    rows = [Row(key, ids, free, 8, set()) for key in "abc"]
    sampled = Row("d", ids, free, 3, set(), Sampling(1.5, 0, 1.0, 5))
    [_, greedy, _] = graphed(kin, router, make_graphs).draft(rows)
    assert noisy_rows == []
    drafted = graphed(kin, router, make_graphs).draft([*rows, sampled])
    assert drafted[1] == greedy
    assert noisy_rows == [1] * drafted[3].steps
    assert len(drafted[3].ids) > 0


def test_sampled_drafts_depend_on_their_seed_alone(kin: Pair, router: Router) -> None:
    def drafts(keys: str, seeds: tuple[int, ...]) -> list[list[int]]:
        rule, ids = Rule.parse("score 0"), np.array(PROMPTS["q2"], np.int32)
        rows = [
            Row(key, ids, rule, 8, set(), Sampling(1.5, 0, 1.0, seed))
            for key, seed in zip(keys, seeds, strict=True)
        ]
        return [own.ids for own in Drafter(kin, router, 4, 128).draft(rows)]

    one, two = drafts("ab", (1, 2))
    assert one != two
    assert drafts("cd", (2, 1)) == [two, one]


@torch.inference_mode()
def test_graphs_draft_the_same(kin: Pair, router: Router) -> None:
    rule = Rule.parse("risk 0.2 audit 1")
    written = [
        Lockstep(kin, graphed(kin, router, make), rows=4, cap=6).run(
            PROMPTS, dict.fromkeys(PROMPTS, rule), LIMIT
        )
        for make in (uncaptured, lambda *_: None)
    ]
    assert written[0] == written[1]
