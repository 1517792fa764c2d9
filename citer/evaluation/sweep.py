"""Methods over rules: the same questions, answered and graded."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from citer.data.answers import grade
from citer.data.problems import Problem
from citer.data.prompts import encode
from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import Scorer
from citer.evaluation.cost import Prices, Trace
from citer.progress import progress
from citer.rule import Rule
from citer.spread import spread


class Method(NamedTuple):
    """Who scores the SLM's tokens, and the weight bytes that it reads to do so at every token."""

    name: str
    scorer: Scorer
    weight_bytes: int = 0


class Result(NamedTuple):
    """A question as a rule answered it; `scores` of its tokens, in float32."""

    problem: Problem
    rule: Rule
    trace: Trace
    scores: Sequence[float]
    correct: bool
    truncated: bool
    counts: dict[str, int]
    digest: int = 0  # of its token ids: answers that are the same have the same


@dataclass(frozen=True)
class Run:
    """One method by one rule on one split; `results` in the order of its questions."""

    method: str
    rule: Rule
    results: Sequence[Result]
    prices: Prices


def sweep(
    engine: Engine, problems: Sequence[Problem], method: Method, rules: Sequence[Rule]
) -> list[Run]:
    """A run for each rule, in their order; none at all for none."""
    if not rules:
        return []
    asked = {problem.problem_id: problem for problem in problems}
    results: dict[Rule, dict[str, Result]] = {rule: {} for rule in rules}
    work = partial(_answered, engine, scorer=method.scorer, rules=list(results))
    title = f"{method.name} on {problems[0].split}"
    with progress(title, len(asked) * len(results), "answers") as advance:
        for result in spread(work, list(asked.values()), fork=engine.pair.is_small):
            key = result.problem.problem_id
            # The problem as we have it: of another process it is a copy for every rule.
            results[result.rule][key] = result._replace(problem=asked[key])
            advance(1)
    prices = Prices.of(engine.pair, method.weight_bytes)
    return [
        Run(method.name, rule, [found[key] for key in asked], prices)
        for rule, found in results.items()
    ]


def _answered(
    engine: Engine, problems: Sequence[Problem], scorer: Scorer, rules: Sequence[Rule]
) -> Iterator[Result]:
    """Every problem by every rule, decoded and graded, as they finish."""
    asked = {problem.problem_id: problem for problem in problems}
    requests = {key: _request(engine, problem) for key, problem in asked.items()}
    for answer in engine.sweep(requests.values(), scorer, rules):
        prompt_len = len(requests[answer.key].prompt_ids)
        yield Result(
            problem=asked[answer.key],
            rule=answer.rule,
            trace=Trace.of(prompt_len, len(answer.token_ids), answer.visits),
            scores=array("f", answer.scores),
            correct=_correct(engine, asked[answer.key], answer),
            truncated=answer.truncated,
            counts=counts(answer),
            digest=hash(answer.token_ids),
        )


def counts(answer: Answer) -> dict[str, int]:
    """Tokens of an answer, and what became of those that an audit looked at."""
    return {
        "tokens": len(answer.token_ids),
        "llm_tokens": sum(answer.by_llm),
        "visits": len(answer.visits),
        "audited": sum(visit.audited for visit in answer.visits),
        "disagreed": sum(len(visit.disagreements) for visit in answer.visits),
        "rejected": sum(visit.rejects for visit in answer.visits),
    }


def _request(engine: Engine, problem: Problem) -> Request:
    prompt_ids = encode(problem, engine.pair.tokenizer, engine.pair.eos_id).prompt_ids
    return Request(problem.problem_id, tuple(prompt_ids))


def _correct(engine: Engine, problem: Problem, answer: Answer) -> bool:
    return not answer.truncated and grade(problem, engine.pair.text(answer.token_ids))
