"""Chosen rules on questions that nobody has seen: the part `fresh` of a study.

The embedded tasks make new questions. None of them is in a split of the last run, and none was used
to train the pair. They are answered by each model alone, by the last router under the rules that
validation chose (`chosen.json`), and by every rival, which learns and takes thresholds as in the
run. Nothing is chosen on these questions. A method without a certified rule is left out.

Code and grid are frozen: the study refuses to run unless the working tree is that of a commit, and
the run's params.yaml is that of the commit. The results hold the commit. A seed is used up once
its results exist: the study then asks for another.

The promise is P(routed wrong | LLM right) ≤ ε, with Wilson's interval. `citer.report.against`
computes the gaps to rivals; there the area of our methods is that of one rule.
"""

import subprocess
from collections.abc import Collection, Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.workshop import Workshop
from citer.config.params import Params
from citer.data.importing import parse_row
from citer.data.problems import Problem, question_key, read_problems
from citer.decoding.policy import scorer_for
from citer.demo import toy
from citer.errors import InputError, read_text
from citer.evaluation.choice import Chosen, ChosenRule
from citer.evaluation.measure import ACCURACY
from citer.evaluation.methods import MODELS
from citer.evaluation.metrics import share_interval
from citer.evaluation.points import outcome_table, rule_columns
from citer.evaluation.study import Study
from citer.evaluation.sweep import Line, Method
from citer.models.bundle import read_bundle
from citer.models.sampling import Sampler
from citer.report.against import Answers, compare
from citer.report.against_table import table as rivals_table
from citer.rule import LLM, SLM
from citer.sections import Count, Section
from citer.stages import paths
from citer.stages.lessons import Preference
from citer.storage.schema import SPLITS
from citer.storage.tables import digest, read_as

CODE = Path(__file__).parent


class Fresh(Section):
    questions: Count  # of each task


def answered_fresh(fresh: Fresh, seed: int) -> dict[str, Any]:
    """Answer the fresh questions of a seed. Return the tables, the header and the rivals."""
    frozen = {"commit": frozen_commit(), "seed": seed, "questions of each task": fresh.questions}
    print(frozen, flush=True)
    shop = Workshop.open()
    if shop.params.prepare.toy is None or shop.params.evaluate.against == "llm":
        raise InputError("params.yaml: expected embedded tasks that are graded by their answers")
    chosen = certified_rules(shop.params)
    problems = fresh_questions(shop.tasks, fresh.questions, seed, asked_before())
    outcomes = answered(replace(shop, test=problems), chosen)
    comparison, tasks = compare([outcomes], chosen), by_tasks(Answers.of(outcomes), chosen)
    return frozen | {
        "digest": digest(*(problem.problem_id for problem in problems)),
        "chosen": {name: asdict(each) for name, each in chosen.items()},
        "tasks": tasks,
        "rivals": comparison.content(ACCURACY),
        "note": f"{frozen}\n\n{rivals_table(comparison, tasks)}\n",
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


def certified_rules(params: Params) -> Chosen:
    """Read the last router's chosen rules, without those that leave every token to the LLM."""
    chosen = read_as(paths.report(last(params)) / "chosen.json", dict[str, ChosenRule])
    return {name: each for name, each in chosen.items() if each.certified}


def answered(shop: Workshop, chosen: Chosen) -> pa.Table:
    """Answer the workshop's test questions by both models, all rivals and the chosen rules."""
    router, _ = read_bundle(paths.router(last(shop.params)))
    own, params = router.to(shop.pair.slm.device), shop.params
    asked = shop.executor, shop.pair, shop.validation, shop.test
    with TemporaryDirectory() as folder:
        settings = params.evaluate, params.decode, params.seed
        study = Study(*asked, *settings, Path(folder))
        rivals = study.rivals(Preference(params.train, study))
    lines = [
        Line(Method.of(name, scorer_for(own, each.rule)), [each.rule])
        for name, each in chosen.items()
    ]
    sampled = replace(shop, sampler=Sampler(params.evaluate.sampling, params.seed))
    runs = [run for [run] in sampled.sweep(shop.test, lines)]
    return pa.concat_tables([rivals.outcomes, outcome_table(runs)])


def last(params: Params) -> int:
    return max(int(name) for name in params.iterations)


def promises(answers: Answers, chosen: Chosen, in_task_Q: np.ndarray) -> dict[str, Any]:
    """Return columns for both models and the chosen rules, on some questions.

    `lost` counts the questions that the LLM answers right and the method wrong, `right` those that
    the LLM answers right.
    """
    rules = dict(zip(MODELS, (SLM, LLM), strict=True))
    rules |= {name: each.rule for name, each in chosen.items()}
    runs = {name: answers.run_of(name, rule_columns(rule)) for name, rule in rules.items()}
    correct_VQ, bytes_VQ = answers.correct_VQ[:, in_task_Q], answers.bytes_VQ[:, in_task_Q]
    llm_Q, questions = correct_VQ[runs[MODELS[1]]] == 1, int(in_task_Q.sum())
    lost = {name: int((1 - correct_VQ[run])[llm_Q].sum()) for name, run in runs.items()}
    moved = {name: float(bytes_VQ[run].sum()) for name, run in runs.items()}
    right = int(llm_Q.sum())
    return {
        "rule": {name: f"{rule:.4g}" for name, rule in rules.items()},
        "accuracy": {n: _share(int(correct_VQ[run].sum()), questions) for n, run in runs.items()},
        "lost": lost,
        "right": dict.fromkeys(runs, right),
        "risk": {name: _share(count, right) for name, count in lost.items()},
        "cost": {name: each / moved[MODELS[1]] for name, each in moved.items()},
    }


def by_tasks(answers: Answers, chosen: Chosen) -> dict[str, Any]:
    """Compute `promises` on all questions, and on those of each task."""
    tasks = {"all": np.full(len(answers.task_Q), True)}
    tasks |= {str(task): answers.task_Q == task for task in np.unique(answers.task_Q)}
    return {task: promises(answers, chosen, in_task_Q) for task, in_task_Q in tasks.items()}


def _share(part: int, whole: int) -> tuple[float, float, float]:
    return (part / max(whole, 1), *share_interval(part, whole))
