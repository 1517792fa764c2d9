"""Answer and grade the same questions by many methods and rules, in sweeps of the engine.

A part of the questions is a unit with its own file. A killed run keeps finished ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import chain
from math import ceil
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import torch

from citer.data.problems import Problem
from citer.data.tasks.grading import WRONG, Grade, assess
from citer.decoding.answer import Answer, Counts, Request, Work
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy, Scorer, weight_bytes
from citer.decoding.verifier import Query, Verifier
from citer.evaluation.cost import Batch, Prices, Trace
from citer.evaluation.methods import PLAIN, Row, Style
from citer.executors.base import Executor
from citer.executors.tables import write_tables
from citer.models.pair import Pair
from citer.models.sampling import ALL_GREEDY, Sampler
from citer.progress import Advance, progress
from citer.rule import LLM, Rule
from citer.storage.schema import RESULT
from citer.storage.tables import read_table

REFILLS = 2  # questions of a part per slot: slots fall idle only at the end of a part
LEAST_PARTS = 2  # so that two workers share few questions
FEW = 32  # questions of a part of a large pair on a CPU, which takes minutes


class Result(NamedTuple):
    """The answer of one policy to one question.

    It has `scores` if the SLM wrote all tokens, and `token_ids` if the LLM alone wrote them.
    A new field of a plain type also needs a column of its name in the RESULT schema.
    """

    problem: Problem
    trace: Trace
    scores: Sequence[float]  # in float32
    correct: bool
    truncated: bool
    counts: Counts
    share: float | None = None  # of the answer, where it is neither 0 nor 1
    failure: str | None = None  # why the grader failed
    token_ids: Sequence[int] = ()


def as_row(policy: int, problem: Problem, prompt_len: int, answer: Answer, grade: Grade) -> Row:
    """Return the row of the RESULT table. `policy` is the policy's place in the sweep."""
    forwards, slm, llm = Trace.of(prompt_len, len(answer.token_ids), answer.visits)
    return {
        "policy": policy,
        "problem_id": problem.problem_id,
        "trace": {"forwards": forwards, "slm": asdict(slm), "llm": asdict(llm)},
        "scores": () if answer.visits else answer.scores,
        "correct": grade.correct,
        "truncated": answer.truncated,
        "counts": answer.counts._asdict(),
        "share": None if grade.share == grade.correct else grade.share,
        "failure": grade.failure,
        "token_ids": answer.token_ids if answer.policy.rule == LLM else (),
    }


def from_row(row: Row, problems: Mapping[str, Problem]) -> Result:
    """Return the result of a row, whose question is in `problems` by its id."""
    trace = row["trace"]
    plain = {name: row[name] for name in Result._fields if name in row}
    return Result(
        **plain
        | {
            "problem": problems[row["problem_id"]],
            "trace": Trace(trace["forwards"], Work(**trace["slm"]), Work(**trace["llm"])),
            "counts": Counts(**row["counts"]),
            "token_ids": tuple(row["token_ids"]),
        }
    )


class Line(NamedTuple):
    """Rules of one method, all with the same scorer of the SLM's tokens."""

    method: str
    scorer: Scorer
    rules: Sequence[Rule]
    style: Style = PLAIN

    @property
    def policies(self) -> list[Policy]:
        return [Policy(self.scorer, rule) for rule in self.rules]


@dataclass(frozen=True)
class Run:
    """The results of one method and rule on one split, in the order of the questions."""

    method: str
    rule: Rule
    results: Sequence[Result]
    prices: Prices
    style: Style = PLAIN

    def moved(self, batch: Batch) -> float:
        """Return the bytes that an answer moves in a batch, on average."""
        traces = [result.trace for result in self.results]
        return self.prices.moved(*batch.work(traces)) / len(traces)


def sweep(
    executor: Executor,
    engine: Engine,
    problems: Sequence[Problem],
    lines: Sequence[Line],
    folder: Path,
    sampler: Sampler = ALL_GREEDY,
) -> list[list[Run]]:
    """Answer all problems by every rule of every line. Return a run for each rule of each line.

    The questions are dealt to parts, which are decoded by themselves. The results of each part are
    written to a file in `folder`. A part with a file is not answered again, so `folder` must belong
    to this engine, these problems, these lines and this sampler.
    """
    policies = list(dict.fromkeys(policy for line in lines for policy in line.policies))
    names = ", ".join(dict.fromkeys(line.method for line in lines))
    title, by_id = f"{names} on {problems[0].split}", {p.problem_id: p for p in problems}
    parts, job = parts_of(problems, engine, folder), partial(_answer, engine, policies, sampler)
    missing = {path: part for path, part in parts.items() if not path.exists()}
    total, left = (len(policies) * sum(map(len, some.values())) for some in (parts, missing))
    with progress(title, total, "answers", total - left) as advance:
        write_tables(executor, job, missing, RESULT, {}, advance)
    results: dict[tuple[int, str], Result] = {}
    for row in chain.from_iterable(read_table(path, RESULT).to_pylist() for path in parts):
        results[row["policy"], row["problem_id"]] = from_row(row, by_id)
    ordered = {policy: [results[n, key] for key in by_id] for n, policy in enumerate(policies)}
    return [_runs(line, ordered, engine.pair) for line in lines]


def parts_of(
    problems: Sequence[Problem], engine: Engine, folder: Path
) -> dict[Path, Sequence[Problem]]:
    """Deal the problems to parts. A file's name has their number, which decides what is in it.

    Answers depend a little on the questions that share a batch, in a lower precision than float64.
    So the number of parts does not depend on the number of workers.
    """
    size = FEW if engine.pair.is_slow else REFILLS * engine.slots
    count = min(len(problems), max(LEAST_PARTS, ceil(len(problems) / size)))
    return {folder / f"{n + 1}-of-{count}.parquet": problems[n::count] for n in range(count)}


def _runs(line: Line, results: Mapping[Policy, Sequence[Result]], pair: Pair) -> list[Run]:
    prices = Prices.of(pair, weight_bytes(line.scorer))
    return [Run(line.method, p.rule, results[p], prices, line.style) for p in line.policies]


def _answer(
    engine: Engine,
    policies: Sequence[Policy],
    sampler: Sampler,
    problems: Sequence[Problem],
    advance: Advance,
) -> pa.Table:
    """Answer and grade problems by every policy: the job of a sweep.

    Returns their RESULT table, in the order in which the answers finish. What cannot be graded
    counts as wrong.
    """
    by_id, pair = {problem.problem_id: problem for problem in problems}, engine.pair
    requests = {key: request(each, pair, sampler) for key, each in by_id.items()}
    place = {policy: number for number, policy in enumerate(policies)}
    rows: list[Row] = []

    @lru_cache(1024)  # a question's answers come together, and many policies give the same
    def graded(key: str, token_ids: tuple[int, ...]) -> Grade:
        return assess(by_id[key], pair.text(token_ids))

    for answer in engine.sweep(requests.values(), policies):
        problem = by_id[answer.key]
        can_be_right = problem.gradable and not answer.truncated
        grade = graded(answer.key, answer.token_ids) if can_be_right else WRONG
        prompt_len = len(requests[answer.key].prompt_ids)
        rows.append(as_row(place[answer.policy], problem, prompt_len, answer, grade))
        advance(1)
    return pa.Table.from_pylist(rows, RESULT)


def request(problem: Problem, pair: Pair, sampler: Sampler = ALL_GREEDY) -> Request:
    """Make the request for a problem's answer.

    All methods and rules answer the same request. They thus share its noise.
    """
    key = problem.problem_id
    prompt_ids = tuple(pair.prompts.prompt_ids(problem))
    return Request(key, prompt_ids, sampling=sampler.sampling(key))


@torch.inference_mode()
def choices(verifier: Verifier, asked: Request, token_ids: Sequence[int]) -> list[int]:
    """Return a model's choice at each position of an answer, from one forward over the answer."""
    ids = [*asked.prompt_ids, *token_ids]
    query = Query(ids[:-1], len(asked.prompt_ids), ids[-1], asked.sampling)
    (verdicts,) = verifier.verdicts([query])
    return [verdict.token for verdict in verdicts]
