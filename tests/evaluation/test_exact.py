"""Forecasts of exact rules, from one forward of the SLM, against the engine's own visits."""

from collections.abc import Iterator, Sequence

import pytest

from citer.decoding.answer import Visit
from citer.decoding.engine import Engine
from citer.decoding.lookup import Guess
from citer.decoding.policy import LLM_ALONE, routed
from citer.evaluation.cost import Prices, Trace
from citer.evaluation.study import Study
from citer.evaluation.sweep import request
from citer.models.router import Router
from citer.pairs.exact import COLUMNS, Forced, agreement, best, priced, read_by_slm, rules, visits
from citer.pairs.probe import Reply, ask
from citer.pairs.profile import ALONE, BOUND
from citer.rule import Rule

EVERY = Rule("every", 3, 1.0)

Both = tuple[Sequence[Visit], Sequence[Visit]]


@pytest.fixture(scope="module")
def finished(study: Study) -> list[Reply]:
    """The LLM's answers that are not cut off."""
    engine = Engine(study.pair, 6, study.params.decode.max_new_tokens)
    asked = ask(engine, [*study.validation, *study.test], LLM_ALONE, lambda _: None)
    found = [reply for reply in asked.replies if not reply.truncated]
    assert found
    return found


@pytest.fixture(scope="module")
def answers(study: Study, finished: list[Reply]) -> list[Forced]:
    return read_by_slm(study.pair, finished, 16384, study.params.decode.max_new_tokens)


def by_the_engine(study: Study, finished: list[Reply], rule: Rule) -> Iterator[Both]:
    """Yield the visits that the engine makes by a rule, and those that are foreseen."""
    limit = study.params.decode.max_new_tokens
    engine, policy = Engine(study.pair, 6, limit), routed(Router({}), rule)
    for reply in finished:
        [own] = read_by_slm(study.pair, [reply], 1, limit)
        [answer] = engine.decode([request(reply.problem, study.pair)], policy)
        yield answer.visits, visits(rule, own)


@pytest.mark.parametrize(
    "text", ["every 1 audit 1", "every 3 audit 1", "every 8 audit 1", "every 3 audit 1 cap 3"]
)
def test_visits_by_count_are_those_of_the_engine(
    study: Study, finished: list[Reply], text: str
) -> None:
    """Scores play no part, so that even drafts after a wrong one are foreseen.

    A wrong draft may be an EOS, which ends a run of drafts: answers with one are left out.
    """
    rule, compared, whole = Rule.parse(text), 0, 0
    for both in by_the_engine(study, finished, rule):
        made, seen = ([(visit.drafted, visit.kept) for visit in each] for each in both)
        if all(drafted == rule.at for drafted, _ in made[bool(rule.cap) : -1]):
            assert seen[:-1] == made[:-1]
            compared += 1
            if made[-1][0] == rule.at:
                assert seen[-1] == made[-1]
                whole += 1
    assert compared
    assert whole or rule.at == 8  # these last runs end by an EOS


@pytest.mark.parametrize("drafter", ["lookup", "both"])
def test_single_copies_are_those_of_the_engine(
    study: Study, finished: list[Reply], drafter: str
) -> None:
    made = list[Visit]()
    for both in by_the_engine(study, finished, Rule.parse(f"every 1 audit 1 from {drafter}")):
        own, seen = ([(v.drafted, v.kept, v.copied) for v in each] for each in both)
        assert seen == own
        made += both[0]
    assert any(visit.copied for visit in made)
    assert any(visit.drafted for visit in made) == (drafter == "both")


def test_a_lookup_drafts_where_it_finds_the_text_and_the_slm_elsewhere() -> None:
    copies = [None, Guess(True, 0.5), Guess(False, 0.9), None, Guess(True, 0.9)]
    answer = Forced(5, [True, False, True, True, True], {"probability": [0.9] * 5}, copies)
    both = Rule("risk", 0.5, 1.0, "probability", "both")
    assert visits(both, answer) == [Visit(1, 2, 2, copied=(1,)), Visit(1, 4, 5, copied=(4,))]
    alone = Rule("every", 2, 1.0, draft="lookup")
    assert visits(alone, answer) == [
        Visit(0, 0, 0),
        Visit(0, 3, 2, copied=(1, 2)),
        Visit(0, 3, 3),
        Visit(0, 4, 5, copied=(4,)),
    ]
    assert {rule.draft for rule in rules([answer]) if rule} == {"slm", "lookup", "both"}
    assert {
        rule.draft for rule in rules([answer] + [answer._replace(copies=[None] * 5)] * 4) if rule
    } == {"slm"}


def test_costs_are_those_of_the_visits(study: Study, answers: list[Forced]) -> None:
    found = priced(study.pair, answers)
    [own] = (each for each in found if each.rule == EVERY)
    prices = Prices.of(study.pair)
    made = [visits(EVERY, answer) for answer in answers]
    routed, alone = (
        sum(
            prices.moved(trace.slm, trace.llm)
            for answer, each in zip(answers, list_of_visits, strict=True)
            for trace in [Trace.of(answer.prompt_len, len(answer.agrees), each)]
        )
        for list_of_visits in (
            made,
            [[Visit(0, n, n) for n in range(len(answer.agrees))] for answer in answers],
        )
    )
    assert own.costs[COLUMNS[0]] == pytest.approx(routed / alone)
    [cheapest] = (each for each in found if each.rule == best(found, COLUMNS[0]))
    assert cheapest.costs[COLUMNS[0]] <= own.costs[COLUMNS[0]]


def test_the_oracle_visits_where_the_slm_is_wrong(study: Study, answers: list[Forced]) -> None:
    oracle = priced(study.pair, answers)[-1]
    wrong = sum(answer.agrees.count(False) for answer in answers)
    assert oracle.rule is None
    assert oracle.visits == pytest.approx(wrong / sum(len(a.agrees) for a in answers))


def test_drafts_go_on_after_a_wrong_one_until_a_visit_is_due() -> None:
    answer = Forced(
        5, [True, False, True, True, True], {"probability": [0.9, 0.9, 0.9, 0.5, 1.0]}, [None] * 5
    )
    rule = Rule("risk", 0.5, 1.0, "probability")
    assert visits(rule, answer) == [Visit(4, 4, 1), Visit(2, 4, 4)]
    assert visits(Rule("every", 2, 1.0), answer) == [Visit(2, 2, 1), Visit(2, 4, 4)]


def test_after_a_wrong_draft_the_slm_does_not_end_with_the_answer() -> None:
    """It drafts on by its last known score, 16 tokens at most; a lookup ends."""
    answer = Forced(5, [True, False], {"probability": [1.0, 0.8]}, [Guess(False, 0.8)] * 2)
    assert visits(Rule("every", 4, 1.0), answer) == [Visit(4, 4, 1)]
    assert visits(Rule("risk", 0.5, 1.0, "probability"), answer) == [Visit(5, 5, 1)]
    sure = answer._replace(scores={"probability": [1.0, 1.0]})
    assert visits(Rule("risk", 0.5, 1.0, "probability"), sure) == [Visit(18, 17, 1)]
    lookup = Rule("every", 4, 1.0, draft="lookup")
    assert visits(lookup, answer)[0] == Visit(0, 2, 0, copied=(0, 1))


def test_an_agreement_has_the_forwards_of_each_rule_in_each_batch() -> None:
    """The answers are alike, so that a batch of n shares each forward among n."""
    answer = Forced(
        5, [False, *[True] * 6], {"probability": [0.5] * 7, "entropy": [1.0] * 7}, [None] * 7
    )
    found = agreement([answer] * 128)
    assert (found.agreement, found.tokens) == (pytest.approx(6 / 7), 7 * 128)
    for rule, slm, llm in (
        (ALONE, 0, 7),
        (BOUND, 7, 1),
        ("every 2 audit 1", 6, 3),  # the first draft is rejected; then twice two, and a token more
        ("risk 0.4 audit 1 by probability", 6, 3),  # .5 x .5 < .4: the same
        ("risk 0.4 audit 1 by entropy", 7 + 16 + 6, 2),  # far beyond the end, and once again
    ):
        shared = [pytest.approx((slm / batch.slots, llm / batch.slots)) for batch in COLUMNS]
        assert found.rules[rule] == shared
