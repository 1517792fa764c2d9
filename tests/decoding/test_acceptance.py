"""Acceptance rules: their numbers by hand, and whole answers by their definitions."""

from dataclasses import dataclass, replace
from functools import cache
from math import inf, log, nan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from citer.decoding.acceptance import Drafted, Pending, accept, masked_kl, ranked
from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine
from citer.decoding.judge import LocalJudge
from citer.decoding.policy import LLM_ALONE, Policy, routed
from citer.errors import InputError
from citer.models.features import EXTRAS, judge_features
from citer.models.pair import Pair
from citer.models.router import HIGHEST, Head, Router, RouterMLP
from citer.models.vocabulary import Vocabulary
from citer.rule import Rule
from tests.decoding.reference import Uncached, random_scorer, rounded
from tests.decoding.remote import remote
from tests.decoding.test_any_schedule import Case, answers, cases, pair_of
from tests.noise import SAMPLINGS

REQUESTS = [Request(f"q{n}", tuple(range(20 + 3 * n, 25 + 4 * n))) for n in range(10)]
MAX_NEW_TOKENS = 20


@dataclass(frozen=True)
class Mirror:
    """A model whose hidden states are its logits."""

    hidden_size: int
    device = torch.device("cpu")
    dtype = torch.float64

    def logits(self, hidden_NH: torch.Tensor) -> torch.Tensor:
        return hidden_NH.clone()


def pending(token: int, p: list[float], q: list[float]) -> Pending:
    p_MV, q_MV = (torch.tensor([row], dtype=torch.float64).log() for row in (p, q))
    drafted = Drafted(Mirror(len(q)), q_MV)  # type: ignore[arg-type]
    return Pending(torch.tensor([token]), p_MV, p_MV, Vocabulary(len(p), (0,)), drafted)


@pytest.mark.parametrize(
    ("p", "q", "expected"),
    [
        ([0.5, 0.25, 0.25], [0.25, 0.5, 0.25], 0.5 * log(2) - 0.25 * log(2)),
        ([0.5, 0.25, 0.25], [0.5, 0.25, 0.25], 0.0),
        ([0.8, 0.1, 0.1], [0.1, 0.1, 0.8], 0.8 * log(8) - 0.1 * log(8)),
        pytest.param([0.92, 0.04, 0.04], [0.9, 0.05, 0.05], inf, id="the LLM is sure"),
        pytest.param([0.88, 0.06, 0.06], [0.88, 0.06, 0.06], 0.0, id="and here it is not"),
    ],
)
def test_kl_is_that_of_the_llm_from_the_slm_and_infinite_under_the_mask(
    p: list[float], q: list[float], expected: float
) -> None:
    assert masked_kl(pending(1, p, q)).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("token", "expected"), [(0, 3), (1, 1), (2, 1), (3, 4)])
def test_a_rank_counts_the_tokens_that_are_likelier(token: int, expected: int) -> None:
    assert ranked(pending(token, [0.2, 0.35, 0.35, 0.1], [0.25] * 4)).item() == expected


def test_the_judge_reads_the_slms_features_the_llms_state_and_five_numbers() -> None:
    p = [0.5, 0.2, 0.1, *[0.04] * 5]
    slm_NF, llm_NH = torch.ones(1, 3), torch.full((1, 2), 2.0)
    logprob_NV = torch.tensor([p], dtype=torch.float64).log()
    (feature_F,) = judge_features(slm_NF, llm_NH, logprob_NV, torch.tensor([1])).tolist()
    entropy = -sum(each * log(each) for each in p)
    expected = [log(0.2), log(0.5), log(0.5 / 0.2), entropy, log(2)]
    assert feature_F == pytest.approx([1, 1, 1, 2, 2, *expected])


@pytest.mark.parametrize(
    ("rule", "accepted", "rejected"),
    [
        ("audit 0.5", [0.5, 1.0], [0.0, 0.49]),
        ("audit 1", [], [0.0, 0.5, 1.0]),
        ("judge 0.9", [0.9, HIGHEST], [0.0, 0.89]),
        ("judge 1", [], [0.0, 0.9, HIGHEST]),
        ("kl 0.5", [0.0, 0.5], [0.51, inf]),
        ("kl 1e9", [0.0, 1e9], [inf]),
        ("top 3", [1.0, 2.0, 3.0], [4.0]),
        ("top 1", [], [1.0, 2.0]),
    ],
)
def test_accept_compares_a_number_with_the_threshold(
    rule: str, accepted: list[float], rejected: list[float]
) -> None:
    parsed = Rule.parse(f"risk 0.5 {rule}")
    assert all(accept(parsed, number) for number in accepted)
    assert not any(accept(parsed, number) for number in [*rejected, nan])


@cache
def make_judge(pair: Pair) -> Head:
    """Make an untrained head that spreads its scores."""
    inputs = pair.slm.hidden_size + EXTRAS + pair.local_llm.hidden_size + 5
    with torch.random.fork_rng():
        torch.manual_seed(1)
        mlp = RouterMLP(8, 0.0, inputs).double().eval().requires_grad_(False)
    return Head(mlp, slope=12.0)


def by_rule(pair: Pair, rule: Rule) -> Policy:
    return Policy(random_scorer, rule, make_judge(pair) if rule.by == "judge" else None)


def answered(pair: Pair, *rules: str) -> list[dict[str, Answer]]:
    """Answer by the first policy alone, by the second one alone, and so on."""
    found = []
    for rule in rules:
        engine = Engine(pair, 4, MAX_NEW_TOKENS)
        policy = by_rule(pair, Rule.parse(rule))
        found.append({answer.key: answer for answer in engine.decode(REQUESTS, policy)})
    return found


READING = ["risk 0.4 kl 0.02", "every 3 kl 0.1", "score 0.4 judge 0.5", "risk 0.4 judge 0.6"]
READING += ["risk 0.6 judge 1", "every 4 judge 0.4", "risk 0.3 kl 1e9", "every 3 top 4"]


@settings(max_examples=25)
@given(case=cases(), rules=st.lists(st.sampled_from(READING), min_size=1, max_size=4, unique=True))
def test_rules_that_read_both_models_are_those_of_plain_decoding(
    pair: Pair, kin: Pair, case: Case, rules: list[str]
) -> None:
    pair = pair_of(pair, kin, case)
    waves = [[replace(request, sampling=None) for request in wave] for wave in case.waves]
    case = replace(case, waves=waves)
    policies = [*case.policies[:2], *(by_rule(pair, Rule.parse(rule)) for rule in rules)]
    for request, answer in answers(case, pair, policies):
        plain = Uncached(pair, request, answer.policy, case.max_new_tokens).run()
        assert list(answer.token_ids) == plain.written
        assert rounded(answer.visits) == rounded(plain.visits)


@pytest.mark.parametrize("rule", READING[:4])
def test_these_rules_accept_some_tokens_and_reject_others(kin: Pair, rule: str) -> None:
    """Without this, the test above would prove little."""
    [by_key] = answered(kin, rule)
    visits = [visit for answer in by_key.values() for visit in answer.visits]
    rejected = sum(visit.rejects for visit in visits)
    assert 0 < rejected < sum(len(visit.disagreements) for visit in visits)


@pytest.mark.parametrize("lax", ["top 384", "audit 1e-300"])
def test_the_laxest_thresholds_reject_nothing(kin: Pair, lax: str) -> None:
    unaudited, audited = answered(kin, "risk 0.4", f"risk 0.4 {lax}")
    for key, answer in audited.items():
        assert answer.token_ids == unaudited[key].token_ids
        assert not any(visit.rejects for visit in answer.visits)
    assert any(visit.disagreements for answer in audited.values() for visit in answer.visits)


@pytest.mark.parametrize("strict", ["top 1", "judge 1", "audit 1"])
@pytest.mark.parametrize("visit", ["risk 0.4", "every 3", "score 0.4"])
def test_the_strictest_thresholds_give_the_llms_own_answers(
    kin: Pair, visit: str, strict: str
) -> None:
    [exact] = answered(kin, f"{visit} {strict}")
    engine = Engine(kin, 4, MAX_NEW_TOKENS)
    alone = {answer.key: answer.token_ids for answer in engine.decode(REQUESTS, LLM_ALONE)}
    assert {key: answer.token_ids for key, answer in exact.items()} == alone


@pytest.mark.parametrize("rule", ["kl 1", "judge 0.5"])
def test_a_sampled_request_is_refused_by_rules_without_a_meaning_for_it(
    kin: Pair, rule: str
) -> None:
    engine, policy = Engine(kin, 1, 9), by_rule(kin, Rule.parse(f"risk 0.5 {rule}"))
    with pytest.raises(InputError, match=r"q0: a rule with `.*`: answers are sampled, expected"):
        engine.submit(replace(REQUESTS[0], sampling=SAMPLINGS[0]), policy)
    engine.submit(
        replace(REQUESTS[0], sampling=SAMPLINGS[0]), by_rule(kin, Rule("risk", 0.5, 2, "top"))
    )
    engine.submit(REQUESTS[0], policy)


@pytest.mark.parametrize("rule", ["kl 1", "judge 0.5", "top 2"])
def test_an_llm_elsewhere_knows_audits_only(kin: Pair, rule: str) -> None:
    policy = by_rule(kin, Rule.parse(f"risk 0.5 {rule}"))
    with remote(kin, LocalJudge(kin.local_llm, kin.vocabulary, 1)) as far:
        engine = Engine(far, 1, 9)
        with pytest.raises(InputError, match=r"q0: .* only odds are known, expected `audit β`"):
            engine.submit(REQUESTS[0], policy)


def test_a_judging_rule_needs_the_routers_head(kin: Pair) -> None:
    stand = Router({"stand": Head(None)})
    with pytest.raises(InputError, match="no head `judge`, only stand"):
        routed(stand, Rule.parse("risk 0.5 judge 0.5"))
    both = Router({**stand.heads, "judge": make_judge(kin)})
    assert routed(both, Rule.parse("risk 0.5 judge 0.5")).judge is both.heads["judge"]
    assert routed(both, Rule.parse("risk 0.5 audit 0.5")).judge is None
