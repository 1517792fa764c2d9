"""Audited decoding against the algorithms that it contains as special cases, and its cost."""

import math
from typing import NamedTuple

import pytest

from citer.decoding.answer import Answer, Limits, Request, Visit
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy, always_slm
from citer.decoding.sequence import Draft, Handle, Need, Sequence
from citer.decoding.verifier import Verdict
from citer.evaluation.cost import Trace
from citer.models.pair import LanguageModel, Pair
from citer.rule import Rule
from tests.decoding.reference import Scorer, Uncached, by_llm, next_logits, random_scorer, rounded
from tests.noise import SAMPLINGS

MAX_NEW_TOKENS = 20
REQUESTS = [
    Request(f"q{n}", tuple(range(20 + 3 * n, 25 + 4 * n)), sampling=SAMPLINGS[0] if n % 2 else None)
    for n in range(10)
]


def answered(pair: Pair, rule: Rule, scorer: Scorer = random_scorer) -> dict[str, Answer]:
    engine = Engine(pair, 4, MAX_NEW_TOKENS)
    return {answer.key: answer for answer in engine.decode(REQUESTS, Policy(scorer, rule))}


def chosen(pair: Pair, model: LanguageModel, ids: list[int], request: Request) -> int:
    return int(next_logits(pair, model, ids, request.sampling).argmax())


class Speculation:
    """Speculative decoding (arXiv 2211.17192) by choices: draft γ, keep what agrees, add one."""

    def __init__(self, pair: Pair, request: Request, gamma: int) -> None:
        self.pair, self.gamma = pair, gamma
        self.request, self.prompt = request, list(request.prompt_ids)
        self.written: list[int] = []
        self.calls = self.drafts = 0

    def run(self) -> "Speculation":
        while not self.over(self.written):
            draft = self.draft()
            self.calls += 1
            for token in draft:
                own = self.choice(self.pair.llm, self.written)
                self.written.append(own)
                if own != token:
                    break
            else:
                if not self.over(self.written):
                    self.written.append(self.choice(self.pair.llm, self.written))
        return self

    def draft(self) -> list[int]:
        draft: list[int] = []
        while len(draft) < self.gamma and not self.over(self.written + draft):
            draft.append(self.choice(self.pair.slm, self.written + draft))
            self.drafts += 1
        return draft

    def choice(self, model: LanguageModel, written: list[int]) -> int:
        return chosen(self.pair, model, self.prompt + written, self.request)

    def over(self, written: list[int]) -> bool:
        return bool(written) and (
            written[-1] in self.pair.eos_ids or len(written) == MAX_NEW_TOKENS
        )


@pytest.mark.parametrize("gamma", [1, 2, 5])
def test_every_gamma_with_full_audits_is_speculative_decoding(kin: Pair, gamma: int) -> None:
    answers = answered(kin, Rule("every", gamma, 1), always_slm)
    accepted = 0
    for request in REQUESTS:
        plain, answer = Speculation(kin, request, gamma).run(), answers[request.key]
        assert list(answer.token_ids) == plain.written
        assert len(answer.visits) == plain.calls
        trace = Trace.of(len(request.prompt_ids), len(answer.token_ids), answer.visits)
        assert (trace.slm.forwards, trace.llm.forwards) == (plain.drafts, plain.calls)
        accepted += sum(visit.audited - visit.rejects for visit in answer.visits)
    assert accepted > 0, "no draft was accepted: the test would prove little"


def test_without_audits_and_visits_the_slm_answers_alone(kin: Pair) -> None:
    alone = answered(kin, SLM_ALONE.rule)
    for rule in (Rule("risk", 0.0), Rule("risk", 0.0, 0.5), Rule("every", 1000, 0.5)):
        for key, answer in answered(kin, rule).items():
            assert (answer.token_ids, answer.visits) == (alone[key].token_ids, ())


def test_an_exact_rule_without_visits_audits_at_the_end_and_after_each_correction(
    kin: Pair,
) -> None:
    alone = answered(kin, LLM_ALONE.rule)
    for key, answer in answered(kin, Rule("risk", 0.0, 1)).items():
        assert answer.token_ids == alone[key].token_ids
        assert all(visit.rejects for visit in answer.visits[:-1])
        ends_with_llms = by_llm(answer)[-1]
        assert answer.visits[-1].rejects == ends_with_llms


@pytest.mark.parametrize("cap", [1, 3])
def test_under_a_cap_the_llm_writes_the_first_token_and_reads_all_others(
    kin: Pair, cap: int
) -> None:
    for answer in answered(kin, Rule("score", 0.0, cap=cap)).values():
        first, *later = answer.visits
        assert first == Visit(0, 0, 0)
        assert len(later) == -(-(len(answer.token_ids) - 1) // (cap + 1))
        assert by_llm(answer) == tuple(n % (cap + 1) == 0 for n in range(len(answer.token_ids)))
        assert sum(visit.drafted for visit in later) == by_llm(answer).count(False)
        assert max(answer.visits[-1].kept, answer.visits[-1].seen) >= len(answer.token_ids) - 1
        assert not any(visit.audited for visit in later)


@pytest.mark.parametrize(
    ("beta", "odds", "written"),
    [
        pytest.param(1, 1.0, [3], id="a tie goes to the LLM's choice"),
        pytest.param(0.5, 0.5, [4, 7], id="odds equal to beta"),
        pytest.param(0.5, 0.4, [3], id="odds below beta"),
        pytest.param(0.1, math.nan, [3], id="logits of the LLM that overflowed"),
    ],
)
def test_a_draft_is_accepted_if_its_odds_reach_beta(
    beta: float, odds: float, written: list[int]
) -> None:
    policy = Policy(always_slm, Rule("every", 1, beta))
    sequence = Sequence(
        Handle(0), Request("q", (5,)), {policy: 0}, Limits(eos_ids=(0,), max_new_tokens=9)
    )
    assert sequence.go_on() == (Need.SLM, [])
    sequence.take_draft(Draft(token=4, scores=[0.9]))
    assert sequence.go_on() == (Need.LLM, [])
    sequence.take_verdicts([Verdict(token=3, odds=odds), Verdict(token=7, odds=None)])
    assert sequence.go_on() == (Need.SLM, [])
    assert sequence.ids == [5, *written]


ALL_KINDS = [
    *(Rule("score", tau) for tau in (0.0, 0.4, 1.0)),
    *(Rule("score", 0.4, beta) for beta in (0.3, 1.0)),
    *(Rule("risk", 0.3, beta) for beta in (0.0, 0.3, 0.9, 1.0)),
    *(Rule("every", 3, beta) for beta in (0.0, 0.3, 1.0)),
    *(Rule("every", 1, 1), Rule("risk", 1.0, 1), Rule("risk", 0.0, 1), Rule("score", 1.0, 1)),
    *(Rule("score", tau, beta, cap=3) for tau in (0.0, 0.4, 1.0) for beta in (0.0, 0.3)),
    *(Rule("risk", 0.3, beta, cap=2) for beta in (0.0, 1.0)),
    *(Rule("every", 3, 1, draft="lookup"), Rule("risk", 0.7, 0.5, draft="both")),
]


class Single(NamedTuple):
    """The answers by one rule alone, and the positions that each model computed for them."""

    answers: dict[str, Answer]
    slm: int
    llm: int


@pytest.fixture(scope="module")
def singles(kin: Pair) -> dict[Rule, Single]:
    singles = {}
    for rule in ALL_KINDS:
        engine = Engine(kin, 4, MAX_NEW_TOKENS)
        answers = {a.key: a for a in engine.decode(REQUESTS, Policy(random_scorer, rule))}
        singles[rule] = Single(answers, engine.slm_work.positions, engine.llm_work.positions)
    return singles


@pytest.mark.parametrize(("slots", "delayed"), [(1, False), (4, False), (4, True)])
def test_a_sweep_of_all_kinds_of_rules_gives_the_same_answers_for_less_work(
    kin: Pair, singles: dict[Rule, Single], slots: int, delayed: bool
) -> None:
    engine = Engine(kin, slots, MAX_NEW_TOKENS, delayed)
    policies = [Policy(random_scorer, rule) for rule in ALL_KINDS]
    swept = {(a.key, a.policy.rule): a for a in engine.sweep(REQUESTS, policies)}
    assert len(swept) == len(REQUESTS) * len(ALL_KINDS)
    for rule, single in singles.items():
        for key, expected in single.answers.items():
            answer = swept[key, rule]
            assert answer.token_ids == expected.token_ids
            assert answer.truncated == expected.truncated
            assert rounded(answer.visits) == rounded(expected.visits)
    assert engine.slm_work.positions < sum(single.slm for single in singles.values())
    assert engine.llm_work.positions < sum(single.llm for single in singles.values())


@pytest.mark.parametrize("rule", ["every 4 audit 1", "risk 0.3 audit 0.5", "score 0.3 audit 0.7"])
def test_each_model_recomputes_rolled_back_positions_only_once(kin: Pair, rule: str) -> None:
    """At batch 1 the engine's work equals the definition's."""
    policy, rolled_back = Policy(random_scorer, Rule.parse(rule)), 0
    for request in REQUESTS:
        engine = Engine(kin, 1, MAX_NEW_TOKENS)
        list(engine.decode([request], policy))
        plain = Uncached(kin, request, policy, MAX_NEW_TOKENS).run()
        assert (engine.slm_work, engine.llm_work) == (plain.slm.work, plain.llm.work)
        assert plain.llm.work.positions - len(plain.llm.held) <= plain.undone
        assert plain.slm.work.positions - len(plain.slm.held) <= plain.undone
        rolled_back += plain.undone
    assert rolled_back > 0
