"""Methods over thresholds: the same questions, answered and graded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from citer.data.answers import grade
from citer.data.problems import Problem
from citer.data.prompts import encode
from citer.decoding.engine import Answer, Engine, Request
from citer.decoding.policy import Scorer
from citer.evaluation.cost import Prices, Trace
from citer.progress import progress


class Method(NamedTuple):
    """Who scores the SLM's tokens, and the weight bytes that it reads to do so at every token."""

    name: str
    scorer: Scorer
    weight_bytes: int = 0


class Result(NamedTuple):
    """A question as it was answered."""

    problem: Problem
    trace: Trace
    answer: Answer
    correct: bool


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
    asked = {problem.problem_id: (problem, _request(engine, problem)) for problem in problems}
    results: dict[float, dict[str, Result]] = {tau: {} for tau in sorted({*thresholds})}
    title = f"{method.name} on {problems[0].split}"
    with progress(title, len(asked) * len(results), "answers") as advance:
        requests = (request for _, request in asked.values())
        for answer in engine.sweep(requests, method.scorer, list(results)):
            problem, request = asked[answer.key]
            result = Result(
                problem, _trace(request, answer), answer, _correct(engine, problem, answer)
            )
            results[answer.tau][answer.key] = result
            advance(1)
    prices = Prices.of(engine.pair, method.weight_bytes)
    return [
        Run(method.name, tau, [found[key] for key in asked], prices)
        for tau, found in results.items()
    ]


def _request(engine: Engine, problem: Problem) -> Request:
    prompt_ids = encode(problem, engine.pair.tokenizer, engine.pair.eos_id).prompt_ids
    return Request(problem.problem_id, tuple(prompt_ids))


def _trace(request: Request, answer: Answer) -> Trace:
    return Trace(len(request.prompt_ids), answer.by_llm, asks_slm=answer.tau < 1)


def _correct(engine: Engine, problem: Problem, answer: Answer) -> bool:
    return not answer.truncated and grade(problem, engine.pair.text(answer.token_ids))
