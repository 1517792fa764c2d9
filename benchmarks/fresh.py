"""Answer new questions once, by rules that were chosen before.

    python -m benchmarks.fresh --seed SEED        # after `citer run`

The embedded tasks make COUNT questions each. None of them is in a split of the last run, and none
was used to train the pair. They are answered by each model alone, by the last router under the
rules that validation chose (`chosen.json`), and by every rival, which learns and takes thresholds
as in the run. Nothing is chosen on these questions. A method without a certified rule is left out.

Code and grid are frozen: the study refuses to run unless the working tree is that of a commit, and
the run's params.yaml is that of the commit. The results hold the commit. A seed is used up once
its results exist: the study then asks for another.

The promise is P(routed wrong | LLM right) ≤ ε, with Wilson's interval. Cost is that at batch 1,
relative to the LLM alone. `citer.report.against` computes the gaps to rivals, with paired
intervals; there the area of our methods is that of one rule. Writes
`benchmarks/results/fresh-SEED.{json,md}`.
"""

import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, replace
from io import StringIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.workshop import Workshop
from citer.config.params import Params, load_params
from citer.data.importing import parse_row
from citer.data.problems import Problem, question_key, read_problems
from citer.data.tasks import task_label
from citer.demo import toy
from citer.errors import InputError, read_text
from citer.evaluation.choice import Chosen, ChosenRule
from citer.evaluation.measure import ACCURACY
from citer.evaluation.methods import MODELS, label
from citer.evaluation.metrics import share_interval
from citer.evaluation.points import outcome_table, rule_columns
from citer.evaluation.study import Study
from citer.evaluation.sweep import Line, sweep
from citer.models.bundle import read_bundle
from citer.models.router import Router
from citer.models.sampling import Sampler
from citer.report.against import Answers, compare
from citer.report.against_table import table as rivals_table
from citer.rule import LLM, SLM, Rule
from citer.stages import paths
from citer.stages.lessons import Preference
from citer.storage.schema import SPLITS
from citer.storage.tables import digest, read_as, write_json, write_text

COUNT = 500  # questions per task
RESULTS = Path("benchmarks/results")
CODE = Path(__file__).parent


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


def check_unused(target: Path, seed: int) -> None:
    """Raise InputError if the questions of this seed have been answered before."""
    if target.with_suffix(".json").exists():
        expected = "expected a new seed: its questions are used up"
        raise InputError(f"{target}.json: seed {seed} has results, {expected}")


def check_embedded(params: Params) -> None:
    if params.prepare.toy is None or params.evaluate.against == "llm":
        raise InputError("params.yaml: expected embedded tasks that are graded by their answers")


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
    own, params = router.to(shop.pair.slm.device), shop.params.evaluate
    sampler = Sampler(params.sampling, params.seed)
    with TemporaryDirectory() as folder:
        study = Study(
            shop.executor,
            shop.pair,
            shop.validation,
            shop.test,
            params,
            Path(folder, "rivals"),
        )
        rivals = study.rivals(Preference(shop.params.train, study))
        lines = list(chosen_lines(study, own, chosen))
        runs = sweep(shop.executor, shop.engine, shop.test, lines, Path(folder, "chosen"), sampler)
    return pa.concat_tables([rivals.outcomes, outcome_table([run for [run] in runs])])


def chosen_lines(study: Study, router: Router, chosen: Chosen) -> Iterator[Line]:
    """Yield the line of each method with nothing but its chosen rule."""
    lines = study.lines(router, [each.rule.at for each in chosen.values()])
    for name, each in chosen.items():
        own = (line for line in lines if line.method.name == name and each.rule in line.rules)
        yield next(own)._replace(rules=[each.rule])


def last(params: Params) -> int:
    return max(int(name) for name in params.iterations)


def promises(answers: Answers, chosen: Chosen, in_task_Q: np.ndarray) -> dict[str, Any]:
    """Compute accuracy, promise and cost of both models and of the chosen rules, on some questions.

    `lost` counts the questions that the LLM answers right and the method wrong, `right` those that
    the LLM answers right.
    """
    rules = dict(zip(MODELS, (SLM, LLM), strict=True))
    rules |= {name: each.rule for name, each in chosen.items()}
    runs = {name: answers.run_of(name, rule_columns(rule)) for name, rule in rules.items()}
    correct_VQ, bytes_VQ = answers.correct_VQ[:, in_task_Q], answers.bytes_VQ[:, in_task_Q]
    llm_Q = correct_VQ[runs[MODELS[1]]] == 1
    results = {}
    for name, run in runs.items():
        lost, right = int((1 - correct_VQ[run])[llm_Q].sum()), int(llm_Q.sum())
        results[name] = {
            "rule": str(rules[name]),
            "accuracy": _share(int(correct_VQ[run].sum()), int(in_task_Q.sum())),
            "lost": lost,
            "right": right,
            "risk": _share(lost, right),
            "cost": float(bytes_VQ[run].sum() / bytes_VQ[runs[MODELS[1]]].sum()),
        }
    return results


def by_tasks(answers: Answers, chosen: Chosen) -> dict[str, Any]:
    """Compute `promises` on all questions, and on those of each task."""
    tasks = {"all": np.full(len(answers.task_Q), True)}
    tasks |= {str(task): answers.task_Q == task for task in np.unique(answers.task_Q)}
    return {task: promises(answers, chosen, in_task_Q) for task, in_task_Q in tasks.items()}


def _share(part: int, whole: int) -> tuple[float, float, float]:
    return (part / max(whole, 1), *share_interval(part, whole))


def as_table(by_task: Mapping[str, Mapping[str, Any]], epsilon: float) -> Table:
    """Format a row for each task and method."""
    table = Table(box=box.MARKDOWN)
    promise = f"P(routed wrong, LLM right), promised {epsilon:g}"
    for heading in ("task", "method", "rule", "accuracy", promise, "kept", "cost"):
        table.add_column(heading)
    for task, methods in by_task.items():
        for name, row in methods.items():
            lost = f"{row['lost']} of {row['right']}: {_shown(row['risk'])}"
            cells = (f"{Rule.parse(row['rule']):.4g}", _shown(row["accuracy"]), lost)
            kept = "yes" if row["risk"][0] <= epsilon else "no"
            table.add_row(task_label(task), label(name), *cells, kept, f"{row['cost']:.3f}")
    return table


def _shown(share: tuple[float, float, float]) -> str:
    return "{:.1%} [{:.1%}, {:.1%}]".format(*share)


def run(seed: int, count: int) -> str:
    """Answer the fresh questions of a seed, write the results, and return them as text."""
    target = RESULTS / f"fresh-{seed}"
    check_unused(target, seed)
    params = load_params()
    check_embedded(params)
    header = {"commit": frozen_commit(), "seed": seed, "questions of each task": count}
    print(header, flush=True)
    shop, chosen = Workshop.open(), certified_rules(params)
    problems = fresh_questions(shop.tasks, count, seed, asked_before())
    outcomes = answered(replace(shop, test=problems), chosen)
    by_task, comparison = by_tasks(Answers.of(outcomes), chosen), compare([outcomes], chosen)
    text = StringIO()
    Console(file=text, width=200).print(header, as_table(by_task, params.evaluate.epsilon))
    print(rivals_table(comparison, by_task), file=text)
    write_text(target.with_suffix(".md"), text.getvalue())
    content = header | {
        "digest": digest(*(problem.problem_id for problem in problems)),
        "chosen": {name: asdict(each) for name, each in chosen.items()},
        "tasks": by_task,
        "rivals": comparison.content(ACCURACY),
    }
    write_json(target.with_suffix(".json"), content)
    return text.getvalue()


def main(
    seed: Annotated[int, typer.Option(help="Of the new questions.")],
    count: Annotated[int, typer.Option(help="Questions per task.")] = COUNT,
) -> None:
    try:
        print(run(seed, count))
    except InputError as error:
        print(f"fresh: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    typer.run(main)
