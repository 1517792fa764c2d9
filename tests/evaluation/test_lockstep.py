"""The replay of lockstep drafting, against a simulation that drafts and verifies token by token."""

import random
from dataclasses import dataclass
from itertools import islice

import pytest

from citer.decoding.answer import Visit, Work
from citer.evaluation.cost import AT_ONCE, Prices, Trace
from citer.evaluation.lockstep import Lockstep, best_cap

PROMPT = 5


@dataclass(frozen=True)
class Question:
    """Where the SLM agrees with the LLM, and where its score is low. The last token is EOS."""

    agrees: list[bool]
    low: list[bool]

    def drafts(self, start: int, most: int) -> tuple[list[bool], int]:
        """Draft from a position. Return which drafts agree, and the number of SLM steps.

        A draft with a low score ends the run and is not written. After a wrong draft the SLM never
        writes EOS.
        """
        agrees, low = self.agrees[start : start + most], self.low[start : start + most]
        if True in low:
            return agrees[: low.index(True)], low.index(True) + 1
        return agrees, len(agrees)


def question(draw: random.Random, length: int) -> Question:
    """Beyond the answer's end, scores are low: a run on a wrong branch ends there, too."""
    agrees = [draw.random() < 0.9 for _ in range(length)]
    low = [draw.random() < 0.1 for _ in range(length)]
    return Question(agrees, low)


def advance(asked: Question, start: int, most: int) -> tuple[Visit, int]:
    """Draft, visit the LLM, audit with β = 1. Return the visit and the position after it."""
    drafts, steps = asked.drafts(start, most)
    kept = drafts.index(False) if False in drafts else len(drafts)
    return Visit(steps, start + len(drafts), start + kept, kept), start + kept + 1


def trace(asked: Question) -> Trace:
    """Make the trace of `score τ audit 1`, as the engine decodes it."""
    visits, position = [], 0
    while position < len(asked.agrees):
        visit, position = advance(asked, position, most=len(asked.agrees))
        visits.append(visit)
    return Trace.of(PROMPT, len(asked.agrees), visits)


def simulated(questions: list[Question], slots: int, cap: int) -> tuple[int, int]:
    """Decode in rounds. Return the forwards of the SLM and of the LLM."""
    queue, rows = iter(questions), list[tuple[Question, int]]()
    slm = llm = 0
    while True:
        fresh = list(islice(queue, slots - len(rows)))
        if not rows and not fresh:
            return slm, llm
        moved = [(asked, *advance(asked, position, cap)) for asked, position in rows]
        slm += max((visit.drafted for _, visit, _ in moved), default=0)
        llm += 1
        rows = [(asked, position) for asked, _, position in moved] + [(q, 1) for q in fresh]
        rows = [(asked, position) for asked, position in rows if position < len(asked.agrees)]


@pytest.mark.parametrize("cap", [1, 2, 5, 16, 100])
@pytest.mark.parametrize("slots", [1, 3, 8, 64])
def test_a_replay_counts_the_forwards_of_drafting_and_verifying(slots: int, cap: int) -> None:
    draw = random.Random(slots * cap)
    questions = [question(draw, draw.randint(1, 60)) for _ in range(40)]
    slm, llm = Lockstep(cap).work([trace(asked) for asked in questions], slots)
    assert (slm.forwards, llm.forwards) == simulated(questions, slots, cap)


def drafted(*runs: int) -> Trace:
    """Make a trace with a visit after each run of drafts, all accepted, and no audit at the end."""
    visits, position = [], 0
    for run in runs[:-1]:
        visits.append(Visit(run, position + run, position + run))
        position += run + 1
    return Trace.of(PROMPT, position + runs[-1], visits)


def forwards(lockstep: Lockstep, traces: list[Trace], slots: int) -> tuple[int, int]:
    slm, llm = lockstep.work(traces, slots)
    return slm.forwards, llm.forwards


def test_the_llm_alone_runs_one_forward_for_the_prefill_and_the_next_tokens() -> None:
    alone = Trace.of(PROMPT, 3, [Visit(0, n, n) for n in range(3)])
    assert Lockstep(8).work([alone], 1) == AT_ONCE.work([alone], 1)
    # Two slots: the third answer starts when the first two are complete.
    assert forwards(Lockstep(8), [alone] * 3, 2) == (0, 3 + 3)


def test_the_llm_writes_the_first_token_and_verifies_the_last_drafts() -> None:
    assert forwards(Lockstep(8), [drafted(5)], 1) == (4, 2)


def test_a_cap_adds_visits_which_write_a_token_each() -> None:
    # Ten tokens: the LLM's, three drafts, the LLM's, three, the LLM's, one that is verified.
    assert forwards(Lockstep(3), [drafted(10)], 1) == (7, 4)


def test_all_rows_wait_for_the_longest_draft_and_share_a_visit() -> None:
    # The first round prefills. The rows then draft 2, 4 and 8 tokens, and one forward visits all.
    assert forwards(Lockstep(16), [drafted(3), drafted(5), drafted(9)], 3) == (8, 2)


def test_at_a_quorum_rows_that_still_draft_visit_too() -> None:
    # Two of three rows wait after 4 drafts. The third has 8 - 4 - 1 drafts left: the LLM wrote one.
    assert forwards(Lockstep(16, 0.5), [drafted(3), drafted(5), drafted(9)], 3) == (4 + 3, 3)


def test_no_draft_follows_a_rejected_one_that_an_added_visit_sees() -> None:
    # The LLM's token, then six drafts, of which the second is rejected; the answer has 4 tokens.
    rejected = Trace.of(PROMPT, 4, [Visit(0, 0, 0), Visit(6, 7, 2), Visit(1, 4, 4)])
    assert rejected.forwards == b"LSdddddlsl"
    assert forwards(Lockstep(16), [rejected], 1) == (7, 3)
    assert forwards(Lockstep(2), [rejected], 1) == (2 + 1, 3)
    assert forwards(Lockstep(1), [rejected], 1) == (1 + 1, 3)  # the LLM writes the second itself


def test_more_visits_read_more_keys_and_values_but_no_position_twice() -> None:
    traces = [drafted(9, 4, 20), drafted(30)]
    rare, frequent = Lockstep(16).work(traces, 2), Lockstep(2).work(traces, 2)
    assert frequent[1].kv_read > rare[1].kv_read
    assert frequent[0].kv_read < rare[0].kv_read  # the LLM writes tokens that the SLM would draft
    for few, many in zip(rare, frequent, strict=True):
        assert few.positions == many.positions == sum(each.slm.positions for each in traces)


def test_the_best_cap_grows_with_the_llm() -> None:
    traces = [drafted(7, 30, 2), drafted(3, 3, 40), drafted(60), drafted(12, 5, 9, 9)] * 4
    caps = []
    for llm_weights in (100, 500, 5000):
        prices = Prices(100, llm_weights, 0, 0)
        caps.append(best_cap(traces, 8, prices.moved))
        best = min(prices.moved(*Lockstep(cap).work(traces, 8)) for cap in (4, 8, 16, 64))
        assert prices.moved(*Lockstep(caps[-1]).work(traces, 8)) <= best
    assert caps == sorted(caps)
    assert caps[0] < caps[-1]


def test_one_row_s_work_is_that_of_its_own_forwards() -> None:
    slm, llm = Lockstep(64).work([drafted(5)], 1)
    mean = (5 + 6 + 7 + 8 + 9) // 5
    assert slm == Work(forwards=4, positions=9, kv_read=4 * mean)
    assert llm == Work(forwards=2, positions=9, kv_read=2 * mean)
