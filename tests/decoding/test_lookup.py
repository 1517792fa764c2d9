"""Copied drafts against their plain definition, and answers that they make cheap."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from citer.decoding.answer import Answer, Request, Work
from citer.decoding.engine import Engine
from citer.decoding.lookup import Lookup
from citer.decoding.policy import LLM_ALONE, Policy
from citer.evaluation.cost import Trace
from citer.models.pair import Pair
from citer.rule import Rule
from citer.serving.log import audited_positions
from tests.decoding.reference import copied, random_scorer
from tests.decoding.test_any_schedule import Case, cases, check_plain

CUT, ASK, REPEAT = -1, -2, -3
CHANGES = st.lists(
    st.integers(0, 2) | st.sampled_from([CUT, ASK, REPEAT]), min_size=20, max_size=60
)


@given(changes=CHANGES, data=st.data())
def test_a_lookup_finds_what_a_search_of_the_whole_text_finds(
    changes: list[int], data: st.DataObject
) -> None:
    lookup, ids = Lookup(), list[int]()
    for change in [*changes, ASK]:
        if change == ASK:
            assert lookup.draft(ids) == copied(ids)
        elif change == CUT:
            length = data.draw(st.integers(0, len(ids)))
            lookup.cut(length)
            del ids[length:]
        elif change == REPEAT:
            start = data.draw(st.integers(0, len(ids)))
            ids += ids[start : start + data.draw(st.integers(1, 10))]
        else:
            ids.append(change)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ab", None),
        ("aab", None),
        ("abcab", ("c", 2 / 3)),
        ("abxaby ab", ("y", 2 / 3)),  # the last place
        ("cabx aby cab", ("x", 3 / 4)),  # the longest ending
        ("aaaa", ("a", 3 / 4)),  # places may overlap
        ("123456789x 123456789", ("x", 8 / 9)),
    ],
)
def test_the_longest_ending_that_stood_before_says_the_next_token(
    text: str, found: tuple[str, float] | None
) -> None:
    ids = list(map(ord, text))
    assert Lookup().draft(ids) == (found and (ord(found[0]), found[1]))


def requests(pair: Pair) -> list[Request]:
    """Make requests whose prompts contain the LLM's own answers."""
    prompts = [Request(f"q{n}", tuple(range(30 + n, 40 + n))) for n in range(6)]
    engine = Engine(pair, 4, 20)
    return [
        Request(answer.key, (*prompt, *answer.token_ids, *prompt))
        for answer in engine.decode(prompts, LLM_ALONE)
        for prompt in [next(each.prompt_ids for each in prompts if each.key == answer.key)]
    ]


def answered(pair: Pair, asked: list[Request], rule: Rule) -> tuple[dict[str, Answer], Engine]:
    engine, policy = Engine(pair, 1, 20), Policy(random_scorer, rule)
    return {answer.key: answer for answer in engine.decode(asked, policy)}, engine


@pytest.mark.parametrize("draft", ["lookup", "both"])
@pytest.mark.parametrize("visit", [("every", 4), ("risk", 0.3), ("score", 0.5)])
def test_copies_give_the_llms_own_text_for_fewer_of_its_forwards(
    looping: Pair, draft: str, visit: tuple[str, float]
) -> None:
    asked = requests(looping)
    alone, llm = answered(looping, asked, LLM_ALONE.rule)
    answers, engine = answered(looping, asked, Rule(*visit, 1, draft=draft))
    assert {key: answer.token_ids for key, answer in answers.items()} == {
        key: answer.token_ids for key, answer in alone.items()
    }
    assert engine.llm_work.forwards < llm.llm_work.forwards
    assert (engine.slm_work == Work()) == (draft == "lookup")
    kept = dropped = 0
    for request in asked:
        answer = answers[request.key]
        trace = Trace.of(len(request.prompt_ids), len(answer.token_ids), answer.visits)
        kept += sum(n < visit.kept for visit in answer.visits for n in visit.copied)
        dropped += sum(n >= visit.kept for visit in answer.visits for n in visit.copied)
        assert trace.llm.forwards == len(answer.visits)
    assert kept > 20
    assert dropped > 0


@settings(max_examples=10)
@given(case=cases(), draft=st.sampled_from(["lookup", "both"]))
def test_copying_in_any_schedule_is_plain_decoding(looping: Pair, case: Case, draft: str) -> None:
    policies = {
        replace(each, rule=replace(each.rule, audit=each.rule.audit or 0.3, draft=draft))
        for each in case.policies
    }
    check_plain(case, looping, policies)


def test_copied_tokens_are_audited_but_not_counted_as_the_slms(looping: Pair) -> None:
    answers, _ = answered(looping, requests(looping), Rule("every", 4, 1, draft="lookup"))
    assert {writer for answer in answers.values() for writer in answer.writers} == {"llm", "lookup"}
    for answer in answers.values():
        counts = answer.counts
        assert counts.llm_tokens == answer.writers.count("llm") < counts.tokens
        assert counts.audited == counts.disagreed == counts.rejected == 0
    answers, _ = answered(looping, requests(looping), Rule("every", 4, 1, draft="both"))
    for answer in answers.values():
        checked = list(audited_positions(answer.visits))
        assert len(checked) == answer.counts.audited
        assert not {answer.writers[n] for n in checked} & {"lookup"}
    assert sum(answer.counts.audited for answer in answers.values()) > 0
