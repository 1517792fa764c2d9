"""Methods over rules: the same questions, answered and graded in one go."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from citer.data.problems import Problem
from citer.data.tasks.grading import grade
from citer.decoding.answer import Counts, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy, ScoredBy, Scorer
from citer.evaluation.cost import Prices, Trace
from citer.evaluation.methods import PLAIN, Style
from citer.models.pair import Pair
from citer.models.router import Head
from citer.progress import progress
from citer.rule import Rule
from citer.spread import spread


class Method(NamedTuple):
    """Who scores the SLM's tokens, and the weight bytes that it reads to do so at every token."""

    name: str
    scorer: Scorer
    weight_bytes: int = 0
    style: Style = PLAIN


def by_head(name: str, head: Head, style: Style = PLAIN) -> Method:
    return Method(name, ScoredBy(head), head.weight_bytes, style)


class Line(NamedTuple):
    """A method's rules; where one of them is to be chosen, the safest first."""

    method: Method
    rules: Sequence[Rule]

    @property
    def policies(self) -> list[Policy]:
        return [Policy(self.method.scorer, rule) for rule in self.rules]


class Result(NamedTuple):
    """A question as a policy answered it; `scores` of its tokens where the SLM wrote them all."""

    problem: Problem
    trace: Trace
    scores: Sequence[float]  # in float32
    correct: bool
    truncated: bool
    counts: Counts
    digest: int = 0  # of its token ids: answers that are the same have the same


@dataclass(frozen=True)
class Run:
    """One method by one rule on one split; `results` in the order of its questions."""

    method: str
    rule: Rule
    results: Sequence[Result]
    prices: Prices
    style: Style = PLAIN


def sweep(engine: Engine, problems: Sequence[Problem], lines: Sequence[Line]) -> list[list[Run]]:
    """Of each line a run for each of its rules, all of them from one sweep of the engine."""
    asked = {problem.problem_id: problem for problem in problems}
    policies = list(dict.fromkeys(policy for line in lines for policy in line.policies))
    results: list[list[Result]] = [[] for _ in policies]
    title = f"{', '.join(dict.fromkeys(line.method.name for line in lines))} on {problems[0].split}"
    work = partial(_answered, engine, policies=policies)
    with progress(title, len(asked) * len(policies), "answers") as advance:
        for number, result in spread(work, problems, fork=engine.pair.is_small):
            # The problem as we have it: of another process it is a copy for every policy.
            results[number].append(result._replace(problem=asked[result.problem.problem_id]))
            advance(1)
    place = {key: number for number, key in enumerate(asked)}
    for answered in results:
        answered.sort(key=lambda result: place[result.problem.problem_id])
    found = dict(zip(policies, results, strict=True))
    return [_runs(line, found, engine.pair) for line in lines]


def _runs(line: Line, found: Mapping[Policy, Sequence[Result]], pair: Pair) -> list[Run]:
    prices = Prices.of(pair, line.method.weight_bytes)
    name, style = line.method.name, line.method.style
    return [Run(name, policy.rule, found[policy], prices, style) for policy in line.policies]


def _answered(
    engine: Engine, problems: Sequence[Problem], policies: Sequence[Policy]
) -> Iterator[tuple[int, Result]]:
    """Every problem by every policy, by its number: decoded and graded, as they finish."""
    asked = {problem.problem_id: problem for problem in problems}
    requests = {key: request(problem, engine.pair) for key, problem in asked.items()}
    numbers = {policy: number for number, policy in enumerate(policies)}

    @lru_cache(1024)  # the policies' answers to a question come together, and many are the same
    def correct(key: str, token_ids: tuple[int, ...]) -> bool:
        return grade(asked[key], engine.pair.text(token_ids))

    for answer in engine.sweep(requests.values(), policies):
        prompt_len = len(requests[answer.key].prompt_ids)
        yield (
            numbers[answer.policy],
            Result(
                problem=asked[answer.key],
                trace=Trace.of(prompt_len, len(answer.token_ids), answer.visits),
                scores=() if answer.visits else array("f", answer.scores),
                correct=not answer.truncated and correct(answer.key, answer.token_ids),
                truncated=answer.truncated,
                counts=answer.counts,
                digest=hash(answer.token_ids),
            ),
        )


def request(problem: Problem, pair: Pair) -> Request:
    prompt_ids = pair.prompts.prompt_ids(problem)
    return Request(problem.problem_id, tuple(prompt_ids))
