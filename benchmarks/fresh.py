"""Candidates on questions that nobody has seen.

The embedded tasks make new questions. None of them is in a split of the last run, and none was used
to train the pair. They are answered by the LLM alone and by all rules that validation tested for
the last router. Nothing is chosen on these questions: the deployed rule is that of `chosen.json`.

The promise is P(routed wrong | LLM right) ≤ ε. The regret is what a rule costs above the cheapest
of all candidates that keep it on these questions.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from citer.config.params import Params, load_params
from citer.data.importing import parse_row
from citer.data.problems import Problem, question_key, read_problems
from citer.decoding.engine import Engine
from citer.decoding.policy import scorer_for
from citer.demo import toy
from citer.errors import InputError
from citer.evaluation.choice import Candidate, ChosenRule, Tried, compared, deployed
from citer.evaluation.cost import counted, schedules
from citer.evaluation.points import ROUTER_STAMP, read_findings, rule_of
from citer.evaluation.study import ALONE_LINES
from citer.evaluation.sweep import Line, Method, sweep
from citer.executors.choose import executor_for
from citer.models.bundle import read_bundle
from citer.models.pair import Pair, load_pair
from citer.rule import LLM
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.schema import SPLITS
from citer.storage.tables import read_as, table_metadata


@dataclass(frozen=True)
class Answered:
    """A candidate of a method on fresh questions."""

    method: str
    candidate: Candidate


@dataclass(frozen=True)
class Seen:
    """All candidates on fresh questions."""

    deployed: Answered
    answered: Sequence[Answered]
    epsilon: float

    @property
    def keeping(self) -> list[Answered]:
        """The candidates that keep the promise on these questions, the cheapest first."""
        found = [each for each in self.answered if self._keeps(each.candidate)]
        return sorted(found, key=lambda each: each.candidate.cost)

    def _keeps(self, candidate: Candidate) -> bool:
        return candidate.discordant <= self.epsilon * candidate.n

    def regret(self, each: Answered) -> float:
        """Return what a rule costs above the cheapest, as a share of the latter."""
        return each.candidate.cost / self.keeping[0].candidate.cost - 1


def answered_fresh(questions: int, seed: int) -> Seen:
    """Answer so many fresh questions of each task after the run in the current folder."""
    params = load_params()
    if params.prepare.toy is None or params.evaluate.against == "llm":
        raise InputError("params.yaml: expected embedded tasks that are graded by their answers")
    tasks = {problem.task for problem in read_problems(paths.referenced("test"))}
    problems = fresh_questions(sorted(tasks), questions, seed, asked_before())
    return answered(params, load_pair(finetuned_pair(params), params.pair), problems)


def asked_before() -> set[str]:
    """Return the `question_key` of every question in the four splits."""
    splits = (read_problems(paths.problems(split)) for split in SPLITS)
    return {question_key(problem.conversation) for split in splits for problem in split}


def fresh_questions(
    tasks: Collection[str], count: int, seed: int, known: Collection[str]
) -> list[Problem]:
    """Make `count` questions of each task that are not `known`, and not of the pair's training."""
    return [
        replace(problem, split="test")
        for task in tasks
        for problem in islice(_unknown(task, count, seed, known), count)
    ]


def _unknown(task: str, count: int, seed: int, known: Collection[str]) -> Iterator[Problem]:
    for row in toy.rows(task, count + len(known), seed, part="pipeline"):
        problem = parse_row(row, task, "reference", source="fresh")
        if question_key(problem.conversation) not in known:
            yield problem


def answered(params: Params, pair: Pair, problems: Sequence[Problem]) -> Seen:
    """Answer questions by the LLM alone and by all candidates of the last router."""
    number = max(int(name) for name in params.iterations)
    router, _ = read_bundle(paths.router(number))
    own, report = router.to(pair.slm.device), paths.report(number)
    lines = [
        Line(Method(each.method, scorer_for(own, each.rule)), [each.rule])
        for each in tested(report, params)
    ]
    engine = Engine(pair, params.decode.slots, params.decode.max_new_tokens, delayed=True)
    with TemporaryDirectory() as folder:
        asked = engine, problems, [ALONE_LINES[1], *lines], Path(folder)
        [llm], *runs = sweep(executor_for(pair), *asked)
    place = schedules(params.serve)
    found = [Answered(run.method, compared(run, llm, place)) for run in [llm, *chain(*runs)]]
    return Seen(_deployed(report, found), found, params.evaluate.epsilon)


def _deployed(report: Path, found: Sequence[Answered]) -> Answered:
    """Return the deployed rule among those found: the LLM alone if none is certified."""
    chosen = read_as(report / "chosen.json", dict[str, ChosenRule])
    method = deployed(chosen)
    rule = chosen[method].rule
    own = (each for each in found if rule == LLM or each.method == method)
    return next(each for each in own if each.candidate.rule == rule)


def tested(report: Path, params: Params) -> list[Tried]:
    """Return the candidates that validation tested."""
    stamp = table_metadata(report / "points.parquet") | ROUTER_STAMP
    points = read_findings(report, counted(params.evaluate, params.serve), stamp).on_test
    return [Tried(row["method"], rule_of(row)) for row in points if row["task"] == "all"]
