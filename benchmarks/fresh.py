"""Candidates on questions that nobody has seen.

The embedded tasks make new questions. None of them is in a split of the last run, and none was used
to train the pair. They are answered by the LLM alone and by all rules that validation tested for
the last router. Nothing is chosen on these questions: the rules of the methods are those of
`chosen.json`.

The promise is P(routed wrong | LLM right) ≤ ε. The regret is what the deployed rule costs above the
cheapest of all candidates that keep it on these questions.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from benchmarks.workshop import Workshop
from citer.config.params import Params
from citer.data.importing import parse_row
from citer.data.problems import Problem, question_key, read_problems
from citer.decoding.policy import scorer_for
from citer.demo import toy
from citer.errors import InputError
from citer.evaluation.choice import Candidate, Chosen, ChosenRule, deployed
from citer.evaluation.evidence import Tried, compared
from citer.evaluation.place import counted, schedules
from citer.evaluation.points import ROUTER_STAMP, read_findings, rule_of
from citer.evaluation.study import ALONE_LINES
from citer.evaluation.sweep import Line, Method
from citer.models.bundle import read_bundle
from citer.rule import LLM, Rule
from citer.stages import paths
from citer.storage.schema import SPLITS
from citer.storage.tables import read_as, table_metadata


class Seen(NamedTuple):
    """The candidates on fresh questions, and the chosen rules by method."""

    answered: dict[Tried, Candidate]
    chosen: Chosen
    epsilon: float

    @property
    def deployed(self) -> Candidate:
        method = deployed(self.chosen)
        return self.answered[Tried(method, self.chosen[method].rule)]

    @property
    def cheapest(self) -> Candidate:
        """The cheapest candidate that keeps the promise on these questions."""
        keeping = (c for c in self.answered.values() if c.discordant <= self.epsilon * c.n)
        return min(keeping, key=lambda candidate: candidate.cost)

    @property
    def regret(self) -> float:
        """What the deployed rule costs above the cheapest candidate, as a share of the latter."""
        return self.deployed.cost / self.cheapest.cost - 1


def answered_fresh(questions: int, seed: int) -> Seen:
    """Answer so many fresh questions of each task after the run in the current folder."""
    shop = Workshop.open()
    if shop.params.prepare.toy is None or shop.params.evaluate.against == "llm":
        raise InputError("params.yaml: expected embedded tasks that are graded by their answers")
    problems = fresh_questions(shop.tasks, questions, seed, asked_before())
    return answered(replace(shop, test=problems))


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


def answered(shop: Workshop) -> Seen:
    """Answer the workshop's test questions by the LLM and all candidates of the last router."""
    params, number = shop.params, max(int(name) for name in shop.params.iterations)
    router, _ = read_bundle(paths.router(number))
    own, report = router.to(shop.pair.slm.device), paths.report(number)
    methods: dict[str, dict[Rule, None]] = {}
    for tried in tested(report, params):
        methods.setdefault(tried.method, {})[tried.rule] = None
    lines = [
        Line(Method.of(name, scorer_for(own, rule)), [rule])
        for name, rules in methods.items()
        for rule in rules
    ]
    [llm], *runs = shop.sweep(shop.test, [ALONE_LINES[1], *lines])
    place = schedules(params.serve)
    found = {Tried(run.method, run.rule): compared(run, llm, place) for [run] in runs}
    chosen = read_as(report / "chosen.json", dict[str, ChosenRule])
    found |= {Tried(name, LLM): compared(llm, llm, place) for name in chosen}  # where none passes
    return Seen(found, chosen, params.evaluate.epsilon)


def tested(report: Path, params: Params) -> list[Tried]:
    """Return the candidates that validation tested."""
    stamp = table_metadata(report / "points.parquet") | ROUTER_STAMP
    points = read_findings(report, counted(params.evaluate, params.serve), stamp).on_test
    return [Tried(row["method"], rule_of(row)) for row in points if row["task"] == "all"]
