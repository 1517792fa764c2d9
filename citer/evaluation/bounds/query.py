"""Query-level routing: one model answers the whole question (RouteLLM's role, arXiv 2406.18665).

A linear head reads the SLM's features at the end of the prompt. Its score is the probability that
the SLM's answer will do: it is right, or the LLM's is wrong, too. No question is decoded for it:
each answer is that of one model alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from citer.decoding.answer import Work
from citer.decoding.policy import ScoredBy
from citer.evaluation.bounds.bound import Alone, Bound, Lessons, NothingToLearnError, Setting
from citer.evaluation.candidates import quantiles
from citer.evaluation.cost import Trace
from citer.evaluation.methods import Kind, Style
from citer.evaluation.result import Result
from citer.evaluation.sweep import Line, Method, Run
from citer.models.router import Head
from citer.rule import LLM, SLM, Rule

STYLE = Style(Kind.BOUND, "#333333", "h")
FRACTIONS = tuple(tenth / 10 for tenth in range(1, 10))  # of the questions, for the LLM
FOLDS = 5


def query_bound(setting: Setting, lessons: Lessons) -> Bound:
    """Train on the preference questions. The SLM alone, decoded with this scorer, scores the test.

    A threshold has its share of the held-out scores of the preference questions below it.
    """
    from citer.training.router import logistic  # its imports take a second

    feature_QF, label_Q = examples(lessons)
    scorer = ScoredBy(Head(logistic(feature_QF, label_Q)).to(setting.pair.slm.device))
    method, held_out_Q = Method("query", scorer, STYLE), _held_out(feature_QF, label_Q)
    rules = [Rule("score", tau) for tau in quantiles(held_out_Q.tolist(), FRACTIONS)]
    return Bound(Line(method, [SLM]), partial(mixed, rules))


def examples(lessons: Lessons) -> tuple[np.ndarray, np.ndarray]:
    """Return feature_QF at the end of each prompt, and label_Q: whether the SLM's answer will do.

    Raises NothingToLearnError if fewer than `FOLDS` questions have either label.
    """
    (feature_QF, problem_Q), (slm, llm) = lessons.prompts, lessons.alone
    label = {
        own.problem.problem_id: own.correct or not other.correct
        for own, other in zip(slm.results, llm.results, strict=True)
    }
    asked_Q = np.isin(problem_Q, list(label))
    label_Q = np.array([label[key] for key in problem_Q[asked_Q]], bool)
    needed, total = int((~label_Q).sum()), len(label_Q)
    if min(needed, total - needed) < FOLDS:
        raise NothingToLearnError(
            f"the LLM's answer is needed for {needed} of {total} preference questions; "
            f"expected {FOLDS} or more of either kind"
        )
    return feature_QF[asked_Q].astype(np.float64), label_Q


def _held_out(feature_QF: np.ndarray, label_Q: np.ndarray) -> np.ndarray:
    """Return the score of each question by a fit without it."""
    # These take a second to import, and `evaluate` imports this module, too.
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    held_out_Q2 = cross_val_predict(model, feature_QF, label_Q, cv=FOLDS, method="predict_proba")
    return held_out_Q2[:, 1]


def mixed(rules: Sequence[Rule], runs: Sequence[Run], alone: Alone) -> list[Run]:
    """Make the runs of `rules` of the SLM's run, whose first scores are the questions' scores.

    A rule takes the LLM's answer to each question that scores below its τ. It pays for the SLM's
    prefill and for the LLM's own work. The rules of a model alone ask no score and pay for none.
    """
    (scored,) = runs
    ends = {SLM: alone.slm, LLM: alone.llm}
    pairs = list(zip(scored.results, alone.llm.results, strict=True))
    mixes = []
    for rule in rules:
        if rule in ends:
            mixes.append(replace(ends[rule], method=scored.method, style=scored.style))
        else:
            own = [slm if slm.scores[0] >= rule.at else _prefilled(llm) for slm, llm in pairs]
            mixes.append(replace(scored, rule=rule, results=own))
    return mixes


def _prefilled(result: Result) -> Result:
    """Add the SLM's forward over the prompt to the LLM's own answer."""
    forwards, _, llm = result.trace
    prompt_len = llm.positions - result.counts.tokens + 1
    trace = Trace(b"D" + forwards, Work(1, prompt_len, prompt_len), llm)
    return result._replace(trace=trace)
