"""Lockstep drafting against the engine: the same rules give the same answers."""

from dataclasses import replace

import pytest
import torch

from citer.decoding.answer import Answer, Disagreement, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy, routed
from citer.evaluation.cost import Batch, Trace
from citer.models.pair import Pair
from citer.models.router import Router
from citer.rule import Rule
from citer.serving.log import audited_positions
from citer.vllm.chats import visits
from tests.heads import random_router
from tests.vllm.lockstep import Lockstep

LIMIT = 24
PROMPTS = {f"q{n}": tuple(range(20 + 3 * n, 26 + 5 * n)) for n in range(12)}
TEXTS = ("score 0.5", "score 0", "risk 0.3", "every 3", "every 4 audit 1", "risk 0.2 audit 1")
RULES = [Rule.parse(text) for text in TEXTS]


@pytest.fixture(scope="module")
def router(kin: Pair) -> Router:
    return random_router(kin.slm.hidden_size, dtype=torch.float64)


def answers(pair: Pair, policy: Policy) -> dict[str, Answer]:
    requests = [Request(key, ids) for key, ids in PROMPTS.items()]
    engine = Engine(pair, slots=4, max_new_tokens=LIMIT)
    return {answer.key: answer for answer in engine.decode(requests, policy)}


def disagreements(pair: Pair, answer: Answer) -> list[Disagreement]:
    """Return those of an answer whose two tokens are not both an end."""
    found = [each for visit in answer.visits for each in visit.disagreements]
    return [each for each in found if not {each.slm_token, each.llm_token} <= {*pair.eos_ids}]


def by_one_eos(pair: Pair, ids: list[int]) -> list[int]:
    return [pair.eos_ids[0] if token in pair.eos_ids else token for token in ids]


@torch.inference_mode()
@pytest.mark.parametrize("rule", [*RULES, Rule.parse("risk 0.3 audit 0.4")], ids=str)
def test_under_a_cap_the_engine_answers_as_vllm_and_the_cost_has_its_forwards(
    kin: Pair, router: Router, rule: Rule
) -> None:
    lockstep, capped = Lockstep(kin, router, 4, LIMIT), replace(rule, cap=5)
    written = lockstep.run(PROMPTS, dict.fromkeys(PROMPTS, capped), LIMIT)
    own = answers(kin, routed(router, capped))
    for key, ids in written.items():
        assert len(ids) == len(own[key].token_ids)
        assert by_one_eos(kin, ids) == by_one_eos(kin, list(own[key].token_ids))
    traces = [
        Trace.of(len(ids), len(own[key].token_ids), own[key].visits) for key, ids in PROMPTS.items()
    ]
    assert Batch("", 4, "lockstep").forwards(traces)[1] == lockstep.forwards


@torch.inference_mode()
def test_exact_rules_write_the_llms_own_answers_though_rows_move_and_pause(
    kin: Pair, router: Router
) -> None:
    texts = ["risk 0.2 audit 1", "every 5 audit 1", "score 1"]
    rules = {key: Rule.parse(texts[n % 3]) for n, key in enumerate(PROMPTS)}
    written = Lockstep(kin, router, 4, cap=6, pauses=0.3).run(PROMPTS, rules, LIMIT)
    own = answers(kin, LLM_ALONE)
    for key, ids in written.items():
        assert by_one_eos(kin, ids) == list(own[key].token_ids)


@torch.inference_mode()
def test_requests_of_different_rules_do_not_change_each_other(kin: Pair, router: Router) -> None:
    mixed = {key: RULES[n % len(RULES)] for n, key in enumerate(PROMPTS)}
    together = Lockstep(kin, router, 4, cap=6, pauses=0.3).run(PROMPTS, mixed, LIMIT)
    assert len({str(rule) for rule in mixed.values()}) == len(RULES)
    for key, rule in mixed.items():
        alone = Lockstep(kin, router, 4, cap=6).run({key: PROMPTS[key]}, {key: rule}, LIMIT)
        assert together[key] == alone[key]


@torch.inference_mode()
def test_visits_have_the_audits_of_the_engine(kin: Pair, router: Router) -> None:
    rule = Rule.parse("every 3 audit 0.5 cap 5")
    prompts = {f"{key}-of-vllm": ids for key, ids in PROMPTS.items()}
    lockstep = Lockstep(kin, router, 4, cap=5)
    written = lockstep.run(prompts, dict.fromkeys(prompts, rule), LIMIT)
    disagreed = 0
    for key, own in answers(kin, routed(router, rule)).items():
        audited = lockstep.routing.counts.take(f"{key}-of")
        ids = written[f"{key}-of-vllm"]
        if by_one_eos(kin, ids) != [*own.token_ids]:  # vLLM has no one id for all ends
            continue
        answer = replace(own, visits=tuple(visits(audited, len(ids))))
        assert [*audited_positions(answer.visits)] == [*audited_positions(own.visits)]
        found, expected = (disagreements(kin, each) for each in (answer, own))
        assert [d[:3] for d in found] == [d[:3] for d in expected]
        assert [d.odds for d in found] == pytest.approx([d.odds for d in expected])
        disagreed += len(found)
        assert lockstep.routing.counts.take(f"{key}-of") == []
    assert lockstep.routing.counts.total["disagreed"] >= disagreed > 0
