"""Rivals that learn: losses, labels and mixtures against values computed by hand."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from citer.evaluation.rivals import enlist
from citer.evaluation.rivals.learnt import citer_s_rival, co_llm_rival, labels, marginal_loss
from citer.evaluation.rivals.query import examples, mixed, query_rival
from citer.evaluation.rivals.rival import Alone, Learnt, Setting, Tokens

from citer.decoding.answer import Work
from citer.evaluation.cost import Prices
from citer.evaluation.points import outcome_rows
from citer.evaluation.study import Study
from citer.models.router import EXTRAS
from citer.rule import LLM, SLM, Rule
from tests.heads import random_head

CASES = np.array(["slm_right", "llm_right", "same_wrong", "contested", "audited"], object)


@dataclass
class Lessons:
    """Five tokens of every case, repeated for each problem of a run. Keeps what is trained on."""

    alone: Alone
    hidden_size: int = 3
    case_N: np.ndarray = field(default_factory=lambda: CASES)
    taught: list[tuple] = field(default_factory=list)

    @property
    def tokens(self) -> Tokens:
        ids = [result.problem.problem_id for result in self.alone.slm.results]
        rows = len(self.case_N)
        feature_NF = np.random.default_rng(0).normal(size=(len(ids) * rows, self.width))
        return Tokens(
            feature_NF.astype(np.float16),
            np.repeat(np.array(ids, object), rows),
            np.tile(np.arange(rows), len(ids)),
            np.tile(self.case_N, len(ids)),
            np.log(np.full(len(ids) * rows, 0.25)),
            np.log(np.full(len(ids) * rows, 0.75)),
        )

    @property
    def width(self) -> int:
        return self.hidden_size + EXTRAS

    def train(self, name, rows_N, target_N, loss) -> Learnt:
        self.taught.append((name, rows_N, target_N, loss))
        return Learnt(random_head(self.hidden_size), {"0": 0.0, "0.2": 0.3, "1": 1.0})


@pytest.fixture(scope="module")
def alone(study: Study) -> Alone:
    return study.alone_on(study.test)


@pytest.fixture
def setting(study: Study) -> Setting:
    return study.setting


def test_the_marginal_loss_and_its_gradient_are_those_of_three_tokens_by_hand():
    logit = [0.0, 2.0, -1.0]
    p_slm, p_llm = [0.5, 0.1, 0.9], [0.1, 0.8, 0.9]
    logit_B = torch.tensor(logit, dtype=torch.float64, requires_grad=True)
    logprob_B2 = torch.tensor([p_slm, p_llm], dtype=torch.float64).T.log()
    loss = marginal_loss(logit_B, logprob_B2)
    loss.backward()
    keep = [1 / (1 + np.exp(-z)) for z in logit]  # 1 - φ
    likelihood = [k * s + (1 - k) * p for k, s, p in zip(keep, p_slm, p_llm, strict=True)]
    assert likelihood[0] == pytest.approx(0.3)
    assert loss.item() == pytest.approx(-np.log(likelihood).mean())
    slope = [
        -k * (1 - k) * (s - p) / m / 3
        for k, s, p, m in zip(keep, p_slm, p_llm, likelihood, strict=True)
    ]
    assert slope[0] == pytest.approx(-0.25 * 0.4 / 0.3 / 3)
    assert logit_B.grad.tolist() == pytest.approx(slope)
    assert slope[2] == 0, "equal likelihoods say nothing about who wrote the token"


def test_the_marginal_loss_is_finite_where_a_model_finds_the_token_impossible():
    loss = marginal_loss(torch.tensor([80.0, -80.0]), torch.tensor([[-200.0, 0.0], [0.0, -200.0]]))
    assert loss.item() == pytest.approx(80)


def test_co_llm_learns_from_every_token_what_both_models_expect(setting, alone):
    lessons = Lessons(alone)
    rival = co_llm_rival(setting, lessons)
    [(_, rows_N, logprob_N2, loss)] = lessons.taught
    assert rows_N.all()
    assert np.exp(logprob_N2[0]).tolist() == pytest.approx([0.25, 0.75])
    assert loss is marginal_loss
    # Held-out thresholds at the fractions .1 and .4, between 0, .2 and 1.
    assert [rule.at for rule in rival.line.rules] == pytest.approx([0.15, 0.3 + 0.7 / 4])


def test_citer_s_gives_contested_tokens_to_the_llm_and_leaves_audited_answers_out(setting, alone):
    assert labels(CASES[:4]).tolist() == [True, False, True, False]
    lessons = Lessons(alone)
    citer_s_rival(setting, lessons)
    [(_, rows_N, label_N, loss)] = lessons.taught
    assert rows_N[:5].tolist() == [True] * 4 + [False]
    assert label_N[:4].tolist() == [True, False, True, False]
    assert loss is None


def test_a_rival_without_data_is_left_out_with_its_reason(setting, alone, capsys):
    lessons = Lessons(Alone(alone.slm, alone.slm), case_N=CASES[:3])
    listed = setting.params.model_copy(update={"rivals": ("citer_s", "query", "entropy")})
    rivals = list(enlist(replace(setting, params=listed), lessons))
    assert [rival.line.method.name for rival in rivals] == ["entropy"]
    printed = capsys.readouterr().out
    assert "rivals: citer_s is left out: no contested tokens\n" in printed
    total = len(alone.slm.results)
    assert f"is needed for 0 of {total} preference questions" in printed


def test_query_labels_say_whether_the_slms_answer_will_do(alone, monkeypatch):
    monkeypatch.setattr("citer.evaluation.rivals.query.FOLDS", 1)
    right = [(True, True), (True, False), (False, True), (False, False)]
    slm, llm = (
        replace(
            run,
            results=[
                result._replace(correct=pair[side])
                for result, pair in zip(run.results, right, strict=False)
            ],
        )
        for side, run in enumerate(alone)
    )
    feature_QF, label_Q = examples(Lessons(Alone(slm, llm)))
    assert label_Q.tolist() == [True, True, False, True]
    assert np.array_equal(feature_QF, Lessons(Alone(slm, llm)).tokens.feature_NF[::5])


@pytest.fixture(scope="module")
def scored(study: Study, alone: Alone):
    """The SLM's run with first scores 0, .1, .2, … and a head of 100 bytes."""
    results = [
        result._replace(scores=[n / 10, *result.scores[1:]])
        for n, result in enumerate(alone.slm.results)
    ]
    prices = Prices.of(study.pair, 100)
    return replace(alone.slm, method="query", results=results, prices=prices)


@pytest.mark.parametrize(("rule", "model"), [(SLM, "slm"), (LLM, "llm")])
def test_query_level_routing_at_its_ends_is_one_model_alone(alone, scored, rule, model):
    [end] = mixed([rule], [scored], alone)
    own = {"method": "query"}
    assert [row | own for row in outcome_rows(getattr(alone, model))] == list(outcome_rows(end))


def test_a_question_below_the_threshold_gets_the_llms_answer_and_pays_for_the_slms_prefill(
    study, alone, scored
):
    [run] = mixed([Rule("score", 0.25)], [scored], alone)
    rows = list(outcome_rows(run))
    for n, (row, slm, llm) in enumerate(
        zip(rows, outcome_rows(alone.slm), outcome_rows(alone.llm), strict=True)
    ):
        model = llm if n < 3 else slm
        assert row["correct"] == model["correct"]
        assert row["llm_tokens"] == model["llm_tokens"]
        prompt_len = len(study.pair.prompts.prompt_ids(study.test[n]))
        prefill = scored.prices.moved(Work(1, prompt_len, prompt_len), Work())
        extra = prefill if n < 3 else 100 * slm["slm_steps"]
        assert row["bytes"] == model["bytes"] + extra
    assert {row["llm_tokens"] > 0 for row in rows} == {True, False}


def test_a_query_head_ranks_questions_by_what_it_learnt(setting, alone):
    """Half of the questions need the LLM. Their first feature says so."""
    count = 40
    result = alone.slm.results[0]
    results = [
        result._replace(problem=replace(result.problem, problem_id=str(n)), correct=n % 2 == 0)
        for n in range(count)
    ]
    right = [each._replace(correct=True) for each in results]
    lessons = Lessons(Alone(replace(alone.slm, results=results), replace(alone.llm, results=right)))
    tokens = lessons.tokens
    tokens.feature_NF[::5, 0] = np.tile([1, -1], count // 2)
    told = type("Told", (Lessons,), {"tokens": tokens})(lessons.alone)
    scorer = query_rival(setting, told).line.method.scorer
    view = type("View", (), {"feature_NF": torch.from_numpy(tokens.feature_NF[::5].copy())})
    score_Q = scorer(view)
    assert score_Q[::2].min() > score_Q[1::2].max()
