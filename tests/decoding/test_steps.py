"""Requests that come and go one by one: events, mixed policies, cancelled requests."""

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from citer.decoding.answer import Answer, Limits, Request, Written
from citer.decoding.engine import Engine, Settled
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy
from citer.decoding.sequence import Handle
from citer.errors import InputError
from citer.models.graphs import no_graphs
from citer.models.pair import Pair
from citer.rule import Rule
from tests.decoding.reference import by_llm, random_scorer, uncached
from tests.decoding.test_any_schedule import POLICIES, Case, cases, pair_of
from tests.decoding.test_engine import MAX_NEW_TOKENS, make_requests
from tests.graphs import uncaptured


class Log:
    """The events of an engine, as a caller would collect them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.settled: dict[Handle, list[int]] = defaultdict(list)
        self.written: dict[Handle, list[Written]] = defaultdict(list)
        self.answers: dict[Handle, list[Answer]] = defaultdict(list)

    def step(self) -> bool:
        """Run a step and return whether a forward ran. Finished requests have no more events."""
        before = self.engine.slm_work.forwards + self.engine.llm_work.forwards
        for event in self.engine.step():
            if isinstance(event, Settled):
                assert event.written
                assert event.handle not in self.answers
                self.settled[event.handle] += [token.token_id for token in event.written]
                self.written[event.handle] += event.written
            else:
                self.answers[event.handle].append(event.answer)
        return self.engine.slm_work.forwards + self.engine.llm_work.forwards > before

    def drain(self) -> "Log":
        while self.step():
            pass
        return self


def engine_of(case: Case, pair: Pair) -> Engine:
    make_graphs = uncaptured if case.filled_up else no_graphs
    return Engine(pair, case.slots, case.max_new_tokens, case.delayed, make_graphs)


@settings(max_examples=30)
@given(case=cases(), data=st.data())
def test_settled_tokens_make_up_the_answer_whatever_the_policies_in_flight(
    pair: Pair, kin: Pair, case: Case, data: st.DataObject
) -> None:
    """Requests arrive at any time, each with a policy and a scorer of its own."""
    pair = pair_of(pair, kin, case)
    log, submitted = Log(engine_of(case, pair)), {}
    for request in [request for wave in case.waves for request in wave]:
        policy = data.draw(POLICIES)
        submitted[log.engine.submit(request, policy)] = request, policy
        for _ in range(data.draw(st.integers(0, 4))):
            log.step()
            check_settled(log)
    log.drain()
    assert log.answers.keys() == submitted.keys()
    for handle, (request, policy) in submitted.items():
        [answer] = log.answers[handle]
        assert (answer.key, answer.policy) == (request.key, policy)
        tokens, own = uncached(pair, request, policy, case.max_new_tokens)
        assert (list(answer.token_ids), list(by_llm(answer))) == (tokens, own)
        assert log.settled[handle] == tokens
        check_writers(log.written[handle], answer)


def check_writers(written: list[Written], answer: Answer) -> None:
    """Compare what settled with what the visits tell."""
    assert tuple(token.by for token in written) == answer.writers
    assert not any(token.rejected for token in written if token.by != "llm")
    for visit in (each for each in answer.visits if each.kept < len(written)):
        rejected = written[visit.kept].rejected
        assert len(rejected) - (visit.seen - visit.kept) in (0, 1)  # an EOS at the end is unread
        if visit.rejects:
            assert rejected[0] == visit.disagreements[-1].slm_token


def check_settled(log: Log) -> None:
    """Check that all written tokens have settled, except pending ones under an audit."""
    for handle, sequence in log.engine._sequences.items():
        [path] = sequence._paths
        settled, written = len(log.settled[handle]), sequence.ids[sequence.begin :]
        assert log.settled[handle] == written[:settled]
        assert settled == min(len(written), path.pending_from if path.rule.audit else len(written))


def test_tokens_settle_at_once_without_audits_and_at_visits_with_them(kin: Pair) -> None:
    log = Log(Engine(kin, 2, MAX_NEW_TOKENS))
    [request] = make_requests(1)
    plain = log.engine.submit(request, SLM_ALONE)
    audited = log.engine.submit(request, Policy(random_scorer, Rule("every", 4, 0.1)))
    for steps in range(1, 5):
        log.step()
        assert len(log.settled[plain]) == steps
        assert not log.settled[audited]
    log.step()
    assert 1 <= len(log.settled[audited]) <= 5


@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("rule", ["score 0", "score 0.4", "risk 0.5", "score 1"])
def test_a_cancelled_request_costs_as_much_as_one_that_ends_there(
    pair: Pair, slots: int, rule: str
) -> None:
    requests, policy = make_requests(9), Policy(random_scorer, Rule.parse(rule))
    logs = [Log(Engine(pair, slots, MAX_NEW_TOKENS)) for _ in range(2)]
    for log in logs:
        handles = [log.engine.submit(request, policy) for request in requests]
    cancelled, ended = logs
    victims = {
        handle: 1 + n
        for n, handle in enumerate(handles)
        if len(uncached(pair, requests[n], policy, MAX_NEW_TOKENS)[0]) > n + 1
    }
    assert len(victims) > 3
    for handle, tokens in victims.items():
        ended.engine._sequences[handle].limits = Limits(pair.eos_ids, tokens)
    ended.drain()
    while cancelled.step():
        for handle, tokens in victims.items():
            if len(cancelled.settled[handle]) == tokens:
                cancelled.engine.cancel(handle)
    assert cancelled.answers.keys() == set(handles) - set(victims)
    assert cancelled.answers == {handle: ended.answers[handle] for handle in cancelled.answers}
    assert cancelled.engine.slm_work == ended.engine.slm_work
    assert cancelled.engine.llm_work == ended.engine.llm_work


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize(
    ("policy", "slots"),
    [
        pytest.param(LLM_ALONE, 2, id="queued"),
        pytest.param(SLM_ALONE, 2, id="queued, the LLM idle"),
        pytest.param(LLM_ALONE, 9, id="waiting for the LLM"),
    ],
)
def test_a_request_cancelled_before_it_has_run_leaves_no_trace(
    pair: Pair, policy: Policy, slots: int, steps: int
) -> None:
    """A delayed LLM lets one request wait while two other requests are drafting."""
    others = [(request, SLM_ALONE if slots == 9 else policy) for request in make_requests(4)]
    logs = [Log(Engine(pair, slots, MAX_NEW_TOKENS, delayed=True)) for _ in range(2)]
    for log in logs:
        for request, own in others:
            log.engine.submit(request, own)
    with_victim, without_victim = logs
    victim = with_victim.engine.submit(Request("victim", (1, 2, 3)), policy)
    for log in logs:
        for _ in range(steps):
            log.step()
    assert victim in with_victim.engine._sequences
    with_victim.engine.cancel(victim)
    with_victim.drain()
    assert with_victim.answers == without_victim.drain().answers
    assert with_victim.engine.slm_work == without_victim.engine.slm_work
    assert with_victim.engine.llm_work == without_victim.engine.llm_work


TWO_POLICIES = st.lists(POLICIES, min_size=1, max_size=2, unique=True).filter(
    lambda policies: len({policy.rule.draft for policy in policies}) == 1
)


@settings(max_examples=25)
@given(case=cases(), data=st.data())
def test_whatever_is_cancelled_the_others_are_answered_as_if_alone(
    pair: Pair, kin: Pair, case: Case, data: st.DataObject
) -> None:
    pair = pair_of(pair, kin, case)
    log, submitted = Log(engine_of(case, pair)), {}
    for request in [request for wave in case.waves for request in wave]:
        policies = data.draw(TWO_POLICIES)
        submitted[log.engine.submit(request, *policies)] = request, policies
    victims = data.draw(st.sets(st.sampled_from(sorted(submitted))))
    for victim in sorted(victims):
        for _ in range(data.draw(st.integers(0, 6))):
            log.step()
        log.engine.cancel(victim)
        log.answers.pop(victim, None)
    log.drain()
    assert log.answers.keys() == submitted.keys() - victims
    for handle, answers in log.answers.items():
        request, policies = submitted[handle]
        assert {answer.policy for answer in answers} == set(policies)
        assert len(policies) == 1 or not log.settled[handle]
        for answer in answers:
            tokens, _ = uncached(pair, request, answer.policy, case.max_new_tokens)
            assert list(answer.token_ids) == tokens
    assert sorted(log.engine._free) == list(range(case.slots))


def test_cancelling_a_finished_or_cancelled_request_does_nothing(pair: Pair) -> None:
    log = Log(Engine(pair, 1, MAX_NEW_TOKENS))
    first, second = (log.engine.submit(request, SLM_ALONE) for request in make_requests(2))
    log.engine.cancel(second)
    log.engine.cancel(second)
    log.drain()
    log.engine.cancel(first)
    assert log.answers.keys() == {first}
    assert log.engine.step() == []


def test_requests_queue_for_a_slot_in_the_order_of_their_submission(pair: Pair) -> None:
    log = Log(Engine(pair, 1, MAX_NEW_TOKENS))
    handles = [log.engine.submit(request, SLM_ALONE) for request in make_requests(5)]
    assert list(log.drain().answers) == handles


def test_an_abandoned_iterator_leaves_no_request_behind(pair: Pair) -> None:
    policy, requests = Policy(random_scorer, Rule("risk", 0.6, 0.5)), make_requests(9)
    engine, fresh = (Engine(pair, 4, MAX_NEW_TOKENS) for _ in range(2))
    left = engine.decode(make_requests(9, seed=1), policy)
    next(left)
    with pytest.raises(RuntimeError, match="other requests in flight"):
        next(engine.decode(make_requests(1), policy))
    left.close()
    before = replace(engine.slm_work)
    assert engine.step() == []
    assert engine.slm_work == before
    assert list(engine.decode(requests, policy)) == list(fresh.decode(requests, policy))


def test_the_engine_is_usable_after_a_failed_step(pair: Pair) -> None:
    def fails(view: object) -> None:
        raise ValueError("no score")

    engine, requests = Engine(pair, 3, MAX_NEW_TOKENS), make_requests(5)
    with pytest.raises(ValueError, match="no score"):
        list(engine.decode(requests, Policy(fails, Rule("score", 0.5))))
    answers = list(engine.decode(requests, SLM_ALONE))
    assert answers == list(Engine(pair, 3, MAX_NEW_TOKENS).decode(requests, SLM_ALONE))


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (0, "q: no tokens, expected a prompt"),
        (1020, r"q: 1020 tokens and up to 24 more \(max_new_tokens\), exp"),
    ],
)
def test_a_request_of_no_fitting_length_is_refused_when_it_is_submitted(
    pair: Pair, length: int, message: str
) -> None:
    engine = Engine(pair, 1, MAX_NEW_TOKENS)
    with pytest.raises(InputError, match=message):
        engine.submit(Request("q", (5,) * length), SLM_ALONE)
    assert engine.step() == []
