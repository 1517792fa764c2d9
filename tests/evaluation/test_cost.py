from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citer.decoding.answer import Request, Visit, Work
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy
from citer.evaluation.bounds import random
from citer.evaluation.cost import Batch, Prices, Schedule, Trace, batches
from citer.models.pair import Pair
from citer.rule import Rule
from tests.decoding.reference import by_score

PRICES = Prices(slm_weights=100, llm_weights=1000, slm_kv=1, llm_kv=10)


def work_of(traces: list[Trace], slots: int, schedule: Schedule = "plain") -> tuple[Work, Work]:
    """Return the work of these answers, each of them once, as an engine counts it."""
    batch = Batch("", slots, schedule)
    slm, llm = batch.work(traces)
    slm.forwards, llm.forwards = batch.forwards(traces)
    return slm, llm


def work(trace: Trace) -> tuple[Work, Work]:
    return trace.slm, trace.llm


def routed(prompt_len: int, writers: str) -> Trace:
    return Trace.of(prompt_len, len(writers), by_score(writers))


def test_prices_are_those_of_each_models_card():
    slm, llm = (
        SimpleNamespace(card=SimpleNamespace(weight_bytes=weights, kv_bytes=kv))
        for weights, kv in ((100, 1), (1000, 10))
    )
    assert Prices.of(SimpleNamespace(slm=slm, llm=llm), 17) == Prices(117, 1000, 1, 10)


def test_bytes_are_the_weights_of_each_forward_and_the_keys_and_values_read_and_written():
    slm, llm = work(routed(5, "SLSSL"))
    by_hand = 5 * 100 + 2 * 1000 + (35 + 9) * 1 + (15 + 9) * 10
    assert PRICES.moved(slm, llm) == by_hand == 2784


def test_the_llm_alone_is_a_prefill_and_a_forward_for_each_further_token():
    alone = Trace.of(4, 2, [Visit(0, 0, 0), Visit(0, 1, 1)])
    expected = Work(0, 0, 0), Work(forwards=2, positions=5, kv_read=4 + 5)
    assert work(alone) == work_of([alone], slots=1) == expected


def test_rows_share_forwards_but_prefill_in_their_own():
    # Step 1: both prefill (1). Steps 2, 3: both continue (1 each). In step 2 only a needs the LLM,
    # and prefills. In step 3 a continues, and b prefills.
    a, b = routed(5, "SLL"), routed(5, "SSL")
    slm, llm = work_of([a, b], slots=2)
    assert (slm.forwards, llm.forwards) == (3, 1 + 2)


def test_a_freed_slot_is_refilled_at_the_next_step():
    # Slot 1: the long answer, steps 1-4. Slot 2: the short ones, steps 1, 2 and 3.
    traces = [routed(5, "SSSS"), routed(5, "S"), routed(5, "S"), routed(5, "S")]
    slm, _ = work_of(traces, slots=2)
    assert slm.forwards == 1 + 2 + 2 + 1


@pytest.mark.parametrize("schedule", ["plain", "delayed", "lockstep"])
def test_few_answers_share_forwards_as_many_equal_ones_do(schedule: Schedule) -> None:
    """An answer costs the same whether 20 or 256 of its kind fill a batch of 128."""
    batch, each = Batch("", 128, schedule), routed(5, "SSLSL")
    few, many = batch.work([each] * 20), batch.work([each] * 256)
    assert PRICES.moved(*few) / 20 == PRICES.moved(*many) / 256
    assert many[1].forwards == 2 * 2  # two batches of two visits


def test_batching_never_changes_positions():
    traces = [routed(5, "SLS"), routed(3, "S"), routed(4, "LLSL")]
    one, many = work_of(traces, slots=1), work_of(traces, slots=3, schedule="delayed")
    for single, shared in zip(one, many, strict=True):
        assert (single.positions, single.kv_read) == (shared.positions, shared.kv_read)
        assert shared.forwards <= single.forwards


@pytest.mark.parametrize(("schedule", "llm_forwards"), [("plain", 2), ("delayed", 1)])
@pytest.mark.parametrize("slots", [3, 128])
def test_a_delayed_llm_waits_until_half_of_the_answers_need_it(schedule, llm_forwards, slots):
    # a waits from step 1; b needs the LLM at step 2: one prefill for both. c never needs the LLM.
    a, b, c = routed(5, "L"), routed(5, "SL"), routed(5, "SSSS")
    assert work_of([a, b, c], slots, schedule)[1].forwards == llm_forwards


def test_a_delayed_llm_does_not_wait_for_answers_that_never_come():
    assert work_of([routed(5, "LSL")], slots=2, schedule="delayed")[1].forwards == 2


def test_batches_contain_batch_1_and_every_other_size_with_and_without_delay():
    usual = [
        ("b1", 1, "plain"),
        ("b3", 3, "plain"),
        ("b8", 8, "plain"),
        ("b3_delayed", 3, "delayed"),
        ("b8_delayed", 8, "delayed"),
    ]
    assert batches([8, 3]) == usual
    lockstep = batches([3, 8], ["delayed", "lockstep"])[len(usual) :]
    assert lockstep == [("b3_lockstep", 3, "lockstep"), ("b8_lockstep", 8, "lockstep")]
    assert [each.column for each in lockstep] == ["cost_b3_lockstep", "cost_b8_lockstep"]


def test_in_lockstep_a_step_takes_the_longest_run_and_one_forward_of_the_llm() -> None:
    # Slot 1: a drafts 3 and visits; then its last token. Slot 2: b drafts 1 and visits. c begins
    # in step 2 with a visit, which takes no draft; in step 3 it drafts 2 and visits.
    a, b, c = routed(5, "SSLS"), routed(5, "L"), Trace.of(5, 3, [Visit(0, 0, 0), Visit(2, 2, 3)])
    assert [each.forwards for each in (a, b, c)] == [b"SsdLs", b"DL", b"LSsl"]
    slm, llm = work_of([a, b, c], slots=2, schedule="lockstep")
    assert (slm.forwards, llm.forwards) == (3 + 1 + 2, 1 + 1 + 1)
    slm, llm = work_of([a, b, c], slots=3, schedule="lockstep")
    assert (slm.forwards, llm.forwards) == (3 + 2, 1 + 1)


@given(
    writers=st.lists(st.text("SSSL", min_size=1, max_size=12), min_size=1, max_size=9),
    slots=st.integers(1, 10),
)
def test_lockstep_never_adds_forwards_and_is_plain_at_batch_1(
    writers: list[str], slots: int
) -> None:
    traces = [routed(5, text) for text in writers]
    alone, shared = work_of(traces, 1), work_of(traces, slots, "lockstep")
    assert work_of(traces, 1, "lockstep") == work_of(traces, 1, "plain") == alone
    longest = [max(getattr(trace, name).forwards for trace in traces) for name in ("slm", "llm")]
    for own, total, least in zip(shared, alone, longest, strict=True):
        assert least <= own.forwards <= total.forwards
        assert replace(own, forwards=total.forwards) == total


def test_a_freed_slot_is_refilled_before_the_llm_runs():
    # a waits. b ends; d takes its slot and needs the LLM before c does: one prefill for a and d.
    a, b, c, d = routed(5, "L"), routed(5, "S"), routed(5, "SSS"), routed(5, "L")
    assert work_of([a, b, c, d], slots=3, schedule="delayed")[1].forwards == 1


def test_a_rolled_back_token_costs_its_step_and_all_discarded_steps_after_it():
    # Prompt 5. The LLM reads four drafts and rejects the second; two more are discarded. The
    # LLM writes token 1. One more draft ends the answer, and the LLM reads that too.
    slm, llm = work(Trace.of(5, 3, [Visit(4, 4, 1), Visit(1, 2, 3)]))
    assert slm == Work(forwards=5, positions=(5 + 1 + 1 + 1) + 1, kv_read=5 + 6 + 7 + 8 + 7)
    # At the last visit it lacks only its own token: positions from the second draft on were cut.
    assert llm == Work(forwards=2, positions=9 + 1, kv_read=9 + 7)


def test_a_token_that_the_llm_adds_lets_the_slm_read_two_at_once():
    slm, llm = work(Trace.of(5, 4, [Visit(2, 2, 2)]))
    assert slm == Work(forwards=3, positions=5 + 1 + 2, kv_read=5 + 6 + 8)
    assert llm == Work(forwards=1, positions=7, kv_read=7)


def test_a_copied_draft_is_no_forward_and_read_with_the_next_one_of_the_slm() -> None:
    # Prompt 5. The LLM writes token 0. Tokens 1 and 3 are copied; the SLM drafts 2 and, dropped
    # with a copied 5, 4. The LLM rejects 4. The last token is copied, and the SLM reads no more.
    first = Visit(drafted=2, seen=6, kept=4, copied=(1, 3, 5))
    trace = Trace.of(5, 6, [Visit(0, 0, 0), first, Visit(0, 5, 6, copied=(5,))])
    assert trace.forwards == b"LSdll"
    assert trace.slm == Work(forwards=2, positions=7 + 2, kv_read=7 + 9)
    assert trace.llm == Work(forwards=3, positions=5 + 6 + 1, kv_read=5 + 11 + 10)


RULES = [
    *(Rule("score", tau) for tau in (0.0, 0.2, 0.7, 1.0)),
    Rule("score", 0.4, 0.7),
    Rule("risk", 0.3, 0.7),
    Rule("risk", 0.3, 1.0),
    Rule("every", 3, 1.0),
    Rule("score", 0.2, cap=4),
    Rule("risk", 0.3, 0.7, cap=4),
    Rule("every", 3, 1.0, draft="lookup"),
    Rule("score", 0.7, 0.5, draft="both", cap=4),
]


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize(
    ("slots", "questions"), [(1, 11), (3, 11), (8, 11), (8, 8), (8, 5), (128, 8), (128, 3)]
)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_replay_counts_the_same_work_as_the_engine(
    pair: Pair,
    kin: Pair,
    looping: Pair,
    slots: int,
    questions: int,
    delayed: bool,
    rule: Rule,
) -> None:
    fitting = looping if rule.draft != "slm" else kin if rule.audit else pair
    engine = Engine(fitting, slots, max_new_tokens=24, delayed=delayed)
    requests = [Request(f"q{n}", tuple(range(20, 25 + n))) for n in range(questions)]
    answers = {
        answer.key: answer for answer in engine.decode(requests, Policy(partial(random, 0), rule))
    }
    traces = [
        Trace.of(len(request.prompt_ids), len(answer.token_ids), answer.visits)
        for request in requests
        for answer in [answers[request.key]]
    ]
    assert len({trace.forwards for trace in traces}) >= min(questions // 2, 4)
    schedule: Schedule = "delayed" if delayed else "plain"
    assert work_of(traces, slots, schedule) == (engine.slm_work, engine.llm_work)
    fewer_slots = min(slots, questions)
    assert work_of(traces, fewer_slots, schedule) == (engine.slm_work, engine.llm_work)


def test_forwards_say_which_drafts_were_dropped() -> None:
    assert routed(5, "SLSS").forwards == b"SdLss"  # by their score
    assert Trace.of(5, 3, [Visit(4, 4, 1), Visit(1, 2, 3)]).forwards == b"SdddLsl"  # by an audit
    assert routed(5, "LS").forwards == b"DLs"
