"""Candidates on questions that nobody has seen: the part `fresh` of a study.

The embedded tasks make new questions. None of them is in a split of the last run, and none was used
to train the pair. They are answered by each model alone and by all rules that validation tested for
the last router. Nothing is chosen on these questions: the rules of the methods are those of
`chosen.json`. A method without a certified rule is left out.

Code and grid are frozen: the study refuses to run unless the working tree is that of a commit, and
the run's params.yaml is that of the commit. The results hold the commit. A seed is used up once
its results exist: the study then asks for another.

The promise is P(routed wrong | LLM right) ≤ ε, with Wilson's interval. The regret is what the
deployed rule costs above the cheapest of all candidates that keep it on these questions.
"""

import subprocess
from collections.abc import Collection, Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.workshop import Workshop
from citer.config.params import Params
from citer.data.importing import parse_row
from citer.data.problems import Problem, question_key, read_problems
from citer.decoding.policy import scorer_for
from citer.demo import toy
from citer.errors import InputError, read_text
from citer.evaluation.choice import Candidate, Chosen, ChosenRule, deployed
from citer.evaluation.evidence import Tried, compared
from citer.evaluation.metrics import share_interval
from citer.evaluation.place import counted, schedules
from citer.evaluation.points import ROUTER_STAMP, read_findings, rule_of
from citer.evaluation.study import ALONE_LINES
from citer.evaluation.sweep import Line, Method
from citer.models.bundle import read_bundle
from citer.rule import LLM, Rule
from citer.sections import Count, Section
from citer.stages import paths
from citer.storage.schema import SPLITS
from citer.storage.tables import digest, read_as, table_metadata

CODE = Path(__file__).parent


class Fresh(Section):
    questions: Count  # of each task


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


def answered_fresh(fresh: Fresh, seed: int, commit: str) -> dict[str, Any]:
    """Answer the fresh questions of a seed. Return the table and the header."""
    frozen = {"commit": commit, "seed": seed, "questions of each task": fresh.questions}
    print(frozen, flush=True)
    shop = Workshop.open()
    if shop.params.prepare.toy is None or shop.params.evaluate.against == "llm":
        raise InputError("params.yaml: expected embedded tasks that are graded by their answers")
    problems = fresh_questions(shop.tasks, fresh.questions, seed, asked_before())
    seen = answered(replace(shop, test=problems))
    rules = {name: Tried(name, each.rule) for name, each in seen.chosen.items() if each.certified}
    shown = {name: seen.answered[tried] for name, tried in rules.items()}
    shown |= {"deployed": seen.deployed, "cheapest": seen.cheapest}
    return frozen | {
        "digest": digest(*(problem.problem_id for problem in problems)),
        "chosen": {name: asdict(each) for name, each in seen.chosen.items()},
        "regret": seen.regret,
        "candidates": [
            {"method": tried.method} | asdict(each) | {"rule": str(tried.rule)}
            for tried, each in seen.answered.items()
        ],
        "tasks": {"all": columns(shown)},
        "note": f"{frozen}\n\nregret: {seen.regret:.1%}\n\n",
    }


def frozen_commit(code: Path = CODE) -> str:
    """Return the commit that has both the code and the grid.

    Raises InputError if the working tree or params.yaml differs from it.
    """
    if changed := _git(code, "status", "--porcelain"):
        expected = "expected none, so that the commit has the code that runs"
        raise InputError(f"{code}: {len(changed.splitlines())} uncommitted changes, {expected}")
    if _git(code, "show", "HEAD:params.yaml") != read_text(Path("params.yaml")):
        raise InputError("params.yaml: not that of the commit, expected the same grid")
    return _git(code, "rev-parse", "HEAD").strip()


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def check_unused(target: Path, seed: int | None) -> int:
    """Return the seed. Raises InputError if its questions have been answered before."""
    if seed is None:
        raise InputError("fresh: expected --seed, of the new questions")
    if target.with_suffix(".json").exists():
        expected = "expected a new seed: its questions are used up"
        raise InputError(f"{target}.json: seed {seed} has results, {expected}")
    return seed


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


def columns(shown: dict[str, Candidate]) -> dict[str, Any]:
    """Return the columns of the table. `lost` is out of the `right` answers of the LLM."""
    return {
        "rule": {name: f"{each.rule:.4g}" for name, each in shown.items()},
        "lost": {name: each.discordant for name, each in shown.items()},
        "right": {name: each.n for name, each in shown.items()},
        "risk": {name: _share(each.discordant, each.n) for name, each in shown.items()},
        "cost": {name: each.cost for name, each in shown.items()},
    }


def _share(part: int, whole: int) -> tuple[float, float, float]:
    return (part / whole, *share_interval(part, whole))
