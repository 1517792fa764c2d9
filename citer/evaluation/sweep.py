"""Answer and grade the same questions by many methods and rules, in one sweep of the engine."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from citer.data.problems import Problem
from citer.data.tasks.grading import WRONG, Grade, assess
from citer.decoding.answer import Answer, Counts, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy, ScoredBy, Scorer
from citer.evaluation.cost import Prices, Trace
from citer.evaluation.methods import PLAIN, Style
from citer.executor import Unit, deal, executor_for
from citer.models.pair import Pair
from citer.models.router import Head
from citer.progress import Advance, progress
from citer.rule import Rule


class Method(NamedTuple):
    """A scorer of the SLM's tokens, with a name and a style. It reads `weight_bytes` per token."""

    name: str
    scorer: Scorer
    weight_bytes: int = 0
    style: Style = PLAIN


def by_head(name: str, head: Head, style: Style = PLAIN) -> Method:
    return Method(name, ScoredBy(head), head.weight_bytes, style)


class Line(NamedTuple):
    """The rules of one method, safest first if one of them is to be chosen."""

    method: Method
    rules: Sequence[Rule]

    @property
    def policies(self) -> list[Policy]:
        return [Policy(self.method.scorer, rule) for rule in self.rules]


class Result(NamedTuple):
    """The answer of one policy to one question. It has `scores` if the SLM wrote all tokens."""

    problem: Problem
    trace: Trace
    scores: Sequence[float]  # in float32
    correct: bool
    truncated: bool
    counts: Counts
    digest: int = 0  # of its token ids: equal answers have equal digests
    share: float | None = None  # of the answer, where it is neither 0 nor 1
    failure: str | None = None  # why the grader failed


@dataclass(frozen=True)
class Run:
    """The results of one method and rule on one split, in the order of the questions."""

    method: str
    rule: Rule
    results: Sequence[Result]
    prices: Prices
    style: Style = PLAIN


def sweep(engine: Engine, problems: Sequence[Problem], lines: Sequence[Line]) -> list[list[Run]]:
    """Answer all problems by every rule of every line. Return a run for each rule of each line."""
    policies = list(dict.fromkeys(policy for line in lines for policy in line.policies))
    title = f"{', '.join(dict.fromkeys(line.method.name for line in lines))} on {problems[0].split}"
    executor = executor_for(engine.pair.is_small)
    parts = deal(problems, executor.workers)
    units = [Unit(f"{title}, part {n} of {len(parts)}", part) for n, part in enumerate(parts, 1)]
    place = {problem.problem_id: number for number, problem in enumerate(problems)}
    with progress(title, len(place) * len(policies), "answers") as advance:
        answered = list(executor.run(_Answering(engine, policies), units, advance))
    results = {}
    for policy, *shares in zip(policies, *answered, strict=True):
        results[policy] = sorted(chain(*shares), key=lambda r: place[r.problem.problem_id])
    return [_runs(line, results, engine.pair) for line in lines]


def _runs(line: Line, results: Mapping[Policy, Sequence[Result]], pair: Pair) -> list[Run]:
    prices = Prices.of(pair, line.method.weight_bytes)
    name, style = line.method.name, line.method.style
    return [Run(name, policy.rule, results[policy], prices, style) for policy in line.policies]


@dataclass(frozen=True)
class _Answering:
    """The job of a sweep: answer and grade problems by every policy."""

    engine: Engine
    policies: Sequence[Policy]

    def __call__(self, problems: Sequence[Problem], /, *, advance: Advance) -> list[list[Result]]:
        """Return each policy's results, in the order in which the answers finish."""
        by_id = {problem.problem_id: problem for problem in problems}
        requests = {key: request(problem, self.engine.pair) for key, problem in by_id.items()}
        results: dict[Policy, list[Result]] = {policy: [] for policy in self.policies}

        @lru_cache(1024)  # a question's answers come together, and many policies give the same
        def graded(key: str, token_ids: tuple[int, ...]) -> Grade:
            return assess(by_id[key], self.engine.pair.text(token_ids))

        for answer in self.engine.sweep(requests.values(), self.policies):
            grade = WRONG if answer.truncated else graded(answer.key, answer.token_ids)
            prompt_len = len(requests[answer.key].prompt_ids)
            results[answer.policy].append(_result(by_id[answer.key], prompt_len, answer, grade))
            advance(1)
        return list(results.values())


def _result(problem: Problem, prompt_len: int, answer: Answer, grade: Grade) -> Result:
    return Result(
        problem=problem,
        trace=Trace.of(prompt_len, len(answer.token_ids), answer.visits),
        scores=() if answer.visits else array("f", answer.scores),
        correct=grade.correct,
        truncated=answer.truncated,
        counts=answer.counts,
        digest=hash(answer.token_ids),
        share=grade.partial,
        failure=grade.failure,
    )


def request(problem: Problem, pair: Pair) -> Request:
    prompt_ids = pair.prompts.prompt_ids(problem)
    return Request(problem.problem_id, tuple(prompt_ids))
