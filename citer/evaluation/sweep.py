"""Methods over thresholds: the same questions, answered and graded."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from citer.data.answers import grade
from citer.data.problems import Problem
from citer.data.prompts import encode
from citer.decoding.engine import Answer, Engine, Request
from citer.decoding.policy import Scorer
from citer.evaluation.cost import Prices, Trace
from citer.progress import progress
from citer.spread import spread


class Method(NamedTuple):
    """Who scores the SLM's tokens, and the weight bytes that it reads to do so at every token."""

    name: str
    scorer: Scorer
    weight_bytes: int = 0


class Result(NamedTuple):
    """A question as it was answered at `tau`; `scores` of its tokens, in float32."""

    problem: Problem
    tau: float
    trace: Trace
    scores: Sequence[float]
    correct: bool
    truncated: bool


@dataclass(frozen=True)
class Run:
    """One method at one threshold on one split; `results` in the order of its questions."""

    method: str
    threshold: float
    results: Sequence[Result]
    prices: Prices


def sweep(
    engine: Engine, problems: Sequence[Problem], method: Method, thresholds: Sequence[float]
) -> list[Run]:
    """A run for each threshold, ascending; none at all for none."""
    if not thresholds:
        return []
    asked = {problem.problem_id: problem for problem in problems}
    results: dict[float, dict[str, Result]] = {tau: {} for tau in sorted({*thresholds})}
    work = partial(_answered, engine, scorer=method.scorer, taus=list(results))
    title = f"{method.name} on {problems[0].split}"
    with progress(title, len(asked) * len(results), "answers") as advance:
        for result in spread(work, list(asked.values())):
            key = result.problem.problem_id
            # The problem as we have it: of another process it is a copy for every threshold.
            results[result.tau][key] = result._replace(problem=asked[key])
            advance(1)
    prices = Prices.of(engine.pair, method.weight_bytes)
    return [
        Run(method.name, tau, [found[key] for key in asked], prices)
        for tau, found in results.items()
    ]


def _answered(
    engine: Engine, problems: Sequence[Problem], scorer: Scorer, taus: Sequence[float]
) -> Iterator[Result]:
    """Every problem at every threshold, decoded and graded, as they finish."""
    asked = {problem.problem_id: problem for problem in problems}
    requests = {key: _request(engine, problem) for key, problem in asked.items()}
    for answer in engine.sweep(requests.values(), scorer, taus):
        yield Result(
            problem=asked[answer.key],
            tau=answer.tau,
            trace=_trace(requests[answer.key], answer),
            scores=array("f", answer.scores),
            correct=_correct(engine, asked[answer.key], answer),
            truncated=answer.truncated,
        )


def _request(engine: Engine, problem: Problem) -> Request:
    prompt_ids = encode(problem, engine.pair.tokenizer, engine.pair.eos_id).prompt_ids
    return Request(problem.problem_id, tuple(prompt_ids))


def _trace(request: Request, answer: Answer) -> Trace:
    return Trace(len(request.prompt_ids), bytes(answer.by_llm), asks_slm=answer.tau < 1)


def _correct(engine: Engine, problem: Problem, answer: Answer) -> bool:
    return not answer.truncated and grade(problem, engine.pair.text(answer.token_ids))
