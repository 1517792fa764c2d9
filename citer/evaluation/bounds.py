"""Bounds: what other ways to divide the work reach on the same questions, engine and cost.

They are no candidates: query-level routing chooses a model for a whole answer, the oracle knows the
LLM's answer in advance, and random calls need no reason.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from torch import Tensor

from citer.decoding.answer import Visit, Work
from citer.decoding.policy import StepView
from citer.decoding.served import verifier_of
from citer.evaluation.candidates import quantiles
from citer.evaluation.cost import Trace
from citer.evaluation.methods import Kind, Style
from citer.evaluation.sweep import Line, Result, Run, choices, request
from citer.executors.base import Unit
from citer.models.pair import Pair
from citer.models.router import HIGHEST, Head
from citer.models.sampling import Sampler
from citer.models.vocabulary import GOLDEN, mixed, shifted
from citer.progress import Advance, progress, say
from citer.rule import SLM, Rule
from citer.sections import BoundName

if TYPE_CHECKING:
    from citer.evaluation.study import Study
AGREES = Rule("score", 0.5)  # the oracle's score is 1 where both choose the same token, else 0
FRACTIONS = tuple(tenth / 10 for tenth in range(1, 10))  # of the questions, for the LLM
FOLDS = 5


class Alone(NamedTuple):
    """The runs of each model alone on the same questions."""

    slm: Run
    llm: Run


# Makes its runs on test, perhaps of those of the models alone.
Bound = Callable[["Study", Alone], Sequence[Run]]


class Lessons(NamedTuple):
    """What a bound learns from: the preference questions. Nothing of it is from test.

    The SLM's features at the end of Q prompts, the ids of their problems, and the runs of each
    model alone on those that can be graded. Each question is asked once.
    """

    feature_QF: np.ndarray
    problem_Q: np.ndarray
    alone: Alone


class NothingToLearnError(Exception):
    """The data of a task does not contain what a bound learns from. The message says what."""


def random(seed: int, view: StepView) -> Tensor:
    """Return uniform scores: with `score τ` the LLM writes a share τ of the tokens.

    They depend on the seed, the request and the position, and not on the batch.
    """
    counter_N = mixed(view.seed_N ^ seed) + GOLDEN * view.position_N
    return (shifted(mixed(counter_N), 40).float() * 2.0**-24).clamp(max=HIGHEST)


def random_bound(study: "Study", _: Alone) -> Sequence[Run]:
    """Let random calls write the middle LLM fraction.

    More rules would be slow, since their answers share few tokens. They would add little, since the
    frontier is almost straight.
    """
    fractions = study.params.evaluate.fractions
    middle = fractions[(len(fractions) - 1) // 2 :][:1]
    scorer = partial(random, study.sampler.seed)
    rules = [Rule("score", share) for share in middle]
    line = Line("random", scorer, rules, Style(Kind.BOUND, "#666666", "x"))
    [runs] = study.answered(study.test, [line])
    return runs


def oracle_bound(study: "Study", alone: Alone) -> list[Run]:
    """The oracle of exact routing: no method, since it knows the LLM's answer in advance.

    The SLM writes each token of the LLM's own answer that is also its own choice. The LLM is
    visited only for the others. No rule that gives the same text by drafts of the SLM visits less
    often, because a visit writes at most one token. A relaxed rule may, since it may write another
    text. Nothing is decoded: a forward of the SLM over each of the LLM's answers finds where the
    two differ.
    """
    job, own = partial(_compared, study.pair, study.sampler), alone.llm.results
    with progress("oracle on test", len(own), "answers") as advance:
        [results] = study.executor.run(job, [Unit("the oracle", own)], advance)
    style = Style(Kind.BOUND, "#BBBBBB", "P")
    return [replace(alone.llm, method="oracle", rule=AGREES, results=results, style=style)]


def _compared(
    pair: Pair, sampler: Sampler, results: Sequence[Result], advance: Advance
) -> list[Result]:
    """Return the LLM's results, with a visit at each token that is not the SLM's choice."""
    verifier = verifier_of(pair.slm, pair.vocabulary)
    compared = []
    for result in results:
        asked = request(result.problem, pair, sampler)
        both = zip(choices(verifier, asked, result.token_ids), result.token_ids, strict=True)
        places = [n for n, (own, token) in enumerate(both) if own != token]
        visits = [Visit(at - last, at, at) for last, at in pairwise([-1, *places])]
        counts = result.counts._replace(llm_tokens=len(visits), visits=len(visits))
        trace = Trace.of(len(asked.prompt_ids), len(result.token_ids), visits)
        compared.append(result._replace(trace=trace, counts=counts))
        advance(1)
    return compared


def query_bound(study: "Study", alone: Alone, lessons: Lessons) -> list[Run]:
    """Query-level routing: one model answers the whole question (RouteLLM, arXiv 2406.18665).

    A linear head reads the SLM's features at the end of the prompt. Its score is the probability
    that the SLM's answer will do: it is right, or the LLM's is wrong, too. It is trained on the
    preference questions. The SLM alone, decoded with this scorer, scores the test: each answer is
    that of one model alone. A threshold has its share of the held-out scores of the preference
    questions below it.
    """
    from citer.training.router import logistic  # its imports take a second

    feature_QF, label_Q = examples(lessons)
    scorer = Head(logistic(feature_QF, label_Q)).to(study.pair.slm.device)
    held_out = _held_out(feature_QF, label_Q).tolist()
    rules = [Rule("score", tau) for tau in quantiles(held_out, FRACTIONS)]
    line = Line("query", scorer, [SLM], Style(Kind.BOUND, "#333333", "h"))
    [[scored]] = study.answered(study.test, [line])
    return mixtures(rules, scored, alone.llm)


def examples(lessons: Lessons) -> tuple[np.ndarray, np.ndarray]:
    """Return feature_QF at the end of each prompt, and label_Q: whether the SLM's answer will do.

    Raises NothingToLearnError if fewer than `FOLDS` questions have either label.
    """
    feature_QF, problem_Q, (slm, llm) = lessons
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


def mixtures(rules: Sequence[Rule], scored: Run, llm_alone: Run) -> list[Run]:
    """Make the runs of `rules` of the SLM's run, whose first scores are the questions' scores.

    A rule takes the LLM's answer to each question that scores below its τ. It pays for the SLM's
    prefill and for the LLM's own work.
    """
    pairs = list(zip(scored.results, llm_alone.results, strict=True))
    mixes = []
    for rule in rules:
        own = [slm if slm.scores[0] >= rule.at else _prefilled(llm) for slm, llm in pairs]
        mixes.append(replace(scored, rule=rule, results=own))
    return mixes


def _prefilled(result: Result) -> Result:
    """Add the SLM's forward over the prompt to the LLM's own answer."""
    forwards, _, llm = result.trace
    prompt_len = llm.positions - result.counts.tokens + 1
    trace = Trace(b"D" + forwards, Work(1, prompt_len, prompt_len), llm)
    return result._replace(trace=trace)


LEARNS = "query"
BOUNDS: Mapping[BoundName, Bound] = {"random": random_bound, "oracle": oracle_bound}


def bound_runs(
    study: "Study", alone: Alone, lessons: Callable[[], Lessons] | None
) -> Iterator[Run]:
    """Run the bounds that the parameters list; `query` only with `lessons`."""
    for name in dict.fromkeys(study.params.evaluate.bounds):
        if name in BOUNDS:
            yield from BOUNDS[name](study, alone)
        elif lessons:
            try:
                yield from query_bound(study, alone, lessons())
            except NothingToLearnError as error:
                say(f"rivals: {name} is left out: {error}")
