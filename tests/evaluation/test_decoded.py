"""Transcripts of a tiny engine run, compared with the engine's answers."""

from dataclasses import replace
from itertools import accumulate

import pytest

from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine, Finished
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, routed
from citer.evaluation.study import Study
from citer.evaluation.sweep import request
from citer.models.router import Router
from citer.report.decoded import spread, transcript
from citer.report.tokens import Spoken, Transcript, count_spoken, kind_of
from citer.rule import Rule
from tests.evaluation.transcripts import ANSWERS
from tests.tiny import MATH, MC

RULES = [
    "score 0.5",
    "risk 0.3 audit 0.5",
    "every 3 audit 1",
    "score 0",
    "score 1",
    "every 2 audit 1 from lookup",
]


@pytest.fixture(scope="module", params=RULES)
def both(request, study: Study, router: Router) -> tuple[Study, Transcript, dict[str, Answer]]:
    """A transcript by a rule, and the engine's own answers by it."""
    return (study, *made(study, router, Rule.parse(request.param)))


def made(study: Study, router: Router, rule: Rule) -> tuple[Transcript, dict[str, Answer]]:
    policy = routed(router, rule)
    engine = Engine(study.pair, 1, study.params.decode.max_new_tokens)
    answers = engine.decode([request(each, study.pair) for each in study.test], policy)
    told = transcript(study.executor, study.pair, study.test, policy, study.params)
    return told, {answer.key: answer for answer in answers}


def next_token(study: Study, asked: Request, before: tuple[int, ...], policy: object) -> str:
    """What a model alone writes after the first tokens of an answer."""
    engine = Engine(study.pair, 1, 1)
    (answer,) = engine.decode([replace(asked, prefix_ids=before)], policy)
    return study.pair.tokenizer.decode([*before[-1:], *answer.token_ids])


def test_tokens_are_those_of_the_answer_with_writer_score_and_rejected_draft(both):
    study, told, answers = both
    assert sorted(each.problem_id for each in told.answers) == sorted(answers)
    for each in told.answers:
        answer = answers[each.problem_id]
        text = study.pair.tokenizer.decode(list(answer.token_ids))
        assert "".join(token.text for token in each.tokens) == text
        assert tuple(token.by for token in each.tokens) == answer.writers
        scores = [token.score or 0 for token in each.tokens]
        assert scores == pytest.approx(answer.scores, abs=1e-6)
        rejected = {visit.kept: visit for visit in answer.visits if visit.rejects}
        assert {n for n, token in enumerate(each.tokens) if token.rejected} == rejected.keys()
        for position, visit in rejected.items():
            first, slm = each.tokens[position].rejected[0], each.tokens[position].slm
            assert first == slm != each.tokens[position].text
            taken_back = max(1, visit.seen - position)
            assert len(each.tokens[position].rejected) == taken_back


def test_both_models_choices_are_what_each_alone_would_write_there(both):
    study, told, answers = both
    problems = {problem.problem_id: problem for problem in study.test}
    for each in told.answers[:2]:
        asked = request(problems[each.problem_id], study.pair)
        ids = answers[each.problem_id].token_ids
        befores = accumulate(ids, lambda before, token: (*before, token), initial=())
        for before, token in zip(befores, each.tokens, strict=False):
            start = study.pair.tokenizer.decode(list(before[-1:]))
            assert start + token.slm == next_token(study, asked, before, SLM_ALONE)
            assert start + token.llm == next_token(study, asked, before, LLM_ALONE)


def test_some_audit_rejects_a_draft_and_those_after_it(study, router):
    """So that the tests above are about something."""
    told, _ = made(study, router, Rule.parse("risk 0.3 audit 0.5"))
    dropped = [token.rejected for each in told.answers for token in each.tokens if token.rejected]
    assert max(map(len, dropped)) > 1


def test_some_copied_token_is_not_the_slms_choice(study, router):
    told, _ = made(study, router, Rule.parse("every 2 audit 1 from lookup"))
    copied = [token for each in told.answers for token in each.tokens if token.by == "lookup"]
    assert any(token.slm != token.text for token in copied)


def test_rejected_drafts_are_those_that_the_engine_dropped(study, router):
    """Also where some of them were copied, and the SLM alone would have written other ones."""
    rule, decode = Rule.parse("every 4 audit 1 from both"), study.pair.tokenizer.decode
    told, _ = made(study, router, rule)
    engine = Engine(study.pair, 1, study.params.decode.max_new_tokens)
    compared = 0
    for each in told.answers:
        [problem] = [p for p in study.test if p.problem_id == each.problem_id]
        engine.submit(request(problem, study.pair), routed(router, rule))
        events = []
        while not events or not isinstance(events[-1], Finished):
            events += engine.step()
        written = [token for event in events[:-1] for token in event.written]
        for token, own in zip(each.tokens, written, strict=True):
            found = zip(token.rejected, own.rejected, strict=False)
            assert all(text.strip() == decode([n]).strip() for text, n in found)
            compared += len(token.rejected)
    assert compared > 5


def test_questions_are_spread_over_tasks_and_do_not_depend_on_their_order():
    problems = [replace(MATH, problem_id=f"m{n}") for n in range(9)]
    problems += [replace(MC, problem_id=f"c{n}") for n in range(3)]
    chosen = spread(problems, 17, 8)
    assert [problem.task for problem in chosen] == ["math", "mc"] * 3 + ["math"] * 2
    assert spread(problems[::-1], 17, 8) == chosen
    assert spread(problems, 18, 8) != chosen
    assert len(spread(problems, 17, 100)) == 12


@pytest.mark.parametrize(
    ("text", "kind"),
    [(" cat", "word"), ("7", "number"), (" (", "punctuation"), ("+", "symbol"), ("\n", "space")],
)
def test_the_kind_of_a_token_is_that_of_its_first_visible_character(text, kind):
    assert kind_of(text) == kind


def test_tokens_are_counted_by_tenth_of_their_answer_and_by_kind():
    """The first answer has four tokens, in tenths 0, 2, 5 and 7; the second has one, in tenth 0."""
    assert count_spoken(ANSWERS) == [
        Spoken(0, "word", 2, 0),
        Spoken(2, "symbol", 1, 0),
        Spoken(5, "number", 1, 1),
        Spoken(7, "space", 1, 1),
    ]


def test_a_slow_pair_answers_no_more_questions_than_are_shown(
    study: Study, router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citer.report.decoded.SHOWN", 2)
    assert made(study, router, Rule.parse("score 1"))[0].questions > 2
    monkeypatch.setattr("citer.models.pair.SMALL", 0)
    assert made(study, router, Rule.parse("score 1"))[0].questions == 2
