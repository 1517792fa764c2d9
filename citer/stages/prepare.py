"""Check the questions of the embedded tasks and of the user's files, and split them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from rich.table import Table

from citer.config.params import EvaluateParams, Params
from citer.config.sources import PrepareParams, SourceFile, ToyParams
from citer.data.files import OnBadRow, fail
from citer.data.importing import Needs, load_problems, parse_row
from citer.data.problems import Problem, write_problems
from citer.data.references import against_llm
from citer.data.splits import Separated, check_held_out, separate, split_by_share
from citer.data.tasks import find_task, task_label
from citer.data.tasks.rows import Requires, RowError
from citer.data.traffic import load_traffic
from citer.demo import toy
from citer.errors import InputError
from citer.evaluation.choice import too_few
from citer.evaluation.measure import FIDELITY
from citer.progress import progress, say
from citer.stages import paths
from citer.storage.schema import SPLITS
from citer.storage.tables import replacing

Assigned = Iterator[tuple[str, Problem]]


def run(params: Params) -> None:
    """Write the four problem tables, or none of them.

    Raises InputError for a row that cannot be used (unless `on_bad_row` is `skip`), and for an
    empty split.
    """
    _check_sources(params.prepare)
    _check_tasks(params.prepare)
    _check_traffic(params)
    skipped: list[RowError] = []
    on_bad_row = skipped.append if params.prepare.on_bad_row == "skip" else fail
    separated = separate(_assigned(params, on_bad_row))
    _report(separated, skipped)
    if empty := [split for split, problems in separated.splits.items() if not problems]:
        raise InputError(f"prepare: no problem in {', '.join(empty)}; expected one in each split")
    check_held_out(separated.splits["preference"])
    _write(separated, params.prepare, params.seed)
    _warn(separated.splits, params.evaluate)


def _check_sources(prepare: PrepareParams) -> None:
    """Raise InputError if a file or a folder is missing: to read the others may take hours."""
    for file in (*prepare.test, *prepare.validation, *prepare.train):
        if not Path(file.path).exists():
            raise InputError(f"{file.path}: no such file")
    for folder in prepare.traffic:
        if not Path(folder.path).is_dir():
            raise InputError(f"{folder.path}: expected a folder of `citer serve --log`")


def _check_tasks(prepare: PrepareParams) -> None:
    """Import the users' tasks. Raises InputError, also if reports would show two alike."""
    by_label: dict[str, str] = {}
    for name in prepare.tasks:
        find_task(name)
        if (other := by_label.setdefault(task_label(name), name)) != name:
            raise InputError(f"prepare: tasks {other} and {name}: expected two different names")


def _check_traffic(params: Params) -> None:
    if params.prepare.traffic and params.references.source == "given":
        expected = "expected auto, llm or both, since rows of prepare.traffic may lack a reference"
        raise InputError(f"references.source: given: {expected}")
    if params.prepare.traffic and not sum(_traffic_shares(params, None).values()):
        raise InputError("prepare.shares: no split of prepare.traffic has a share above 0")


def _traffic_shares(params: Params, answer: str | None) -> dict[str, float]:
    """Return the shares of the splits of traffic that came with this right answer.

    A split with a file of its own gets its share of traffic, too: the promise is about both. In
    validation or test, a question without an answer would turn the measure of
    `evaluate.against: auto` into fidelity; so it goes there only if fidelity is what was set.
    """
    judged = answer is not None or params.evaluate.against == "llm"
    return {split: share for split, share in params.prepare.shares if judged or split in SPLITS[:2]}


def row_needs(params: Params, part: str) -> Needs:
    """Return what a row of the files of `part` must have: `train`, `validation` or `test`."""
    learned: Requires = "reference" if params.references.source == "given" else "question"
    judged: Requires = "answer" if params.evaluate.against == "answers" else "question"
    if part != "train":
        return judged
    return lambda problem: learned if _dealt(params, problem) in SPLITS[:2] else judged


def _dealt(params: Params, problem: Problem) -> str:
    prepare = params.prepare
    return split_by_share(problem.conversation, params.seed, prepare.dealt_shares())


def _assigned(params: Params, on_bad_row: OnBadRow) -> Assigned:
    """Yield the user's test and validation files first, so that these splits keep duplicates."""
    prepare = params.prepare
    own = {"test": prepare.test, "validation": prepare.validation}
    for split, files in own.items():
        for file in files:
            for problem in _loaded(file, row_needs(params, split), on_bad_row):
                yield split, problem
    if prepare.toy:
        yield from _toy(prepare.toy, params.seed)
    for file in prepare.train:
        for problem in _loaded(file, row_needs(params, "train"), on_bad_row):
            yield _dealt(params, problem), problem
    for folder in prepare.traffic:
        for problem in load_traffic(Path(folder.path), prepare.tasks, folder.most, params.seed):
            shares = _traffic_shares(params, problem.answer)
            yield split_by_share(problem.conversation, params.seed, shares), problem


def _loaded(file: SourceFile, requires: Needs, on_bad_row: OnBadRow) -> Iterator[Problem]:
    rows = load_problems(Path(file.path), [file.task], requires, on_bad_row)
    return (problem for _, problem in rows)


def _toy(params: ToyParams, seed: int) -> Assigned:
    """Yield test questions first, so that they do not depend on the number of the others."""
    counts = {split: getattr(params, split) for split in reversed(SPLITS)}
    for task in params.tasks:
        total = sum(counts.values())
        rows = toy.rows(task, total, seed, part="pipeline")
        with progress(f"making {task} questions", total, "rows") as advance:
            for split, count in counts.items():
                for row in islice(rows, count):
                    yield split, parse_row(row, task, "reference", source="toy")
                    advance(1)


def _write(separated: Separated, prepare: PrepareParams, seed: int) -> None:
    digests = {name: digest for name in prepare.tasks if (digest := find_task(name).digest)}
    stamp = {"tasks": prepare.tasks, "seed": seed}
    stamp |= {"own_tasks": digests} if digests else {}
    with replacing(paths.PROBLEMS) as aside:
        for split, problems in separated.splits.items():
            sources = Counter(problem.source for problem in problems)
            metadata = stamp | {"sources": dict(sources)}
            write_problems(aside / paths.problems(split).name, problems, metadata)


def _report(separated: Separated, skipped: list[RowError]) -> None:
    table = Table("split", "task", "source", title="Problems")
    for column in ("problems", "no reference", "no answer"):
        table.add_column(column, justify="right")
    for split, problems in separated.splits.items():
        bare, unanswered = (
            Counter((p.task, p.source) for p in problems if getattr(p, field) is None)
            for field in ("reference", "answer")
        )
        for kind, count in Counter((p.task, p.source) for p in problems).items():
            numbers = map(str, (count, bare[kind], unanswered[kind]))
            table.add_row(split, task_label(kind[0]), kind[1], *numbers)
    say(table)
    kept = {own.problem_id: own.answer for each in separated.splits.values() for own in each}
    for source, count in Counter(p.source for p in separated.duplicates).items():
        own = (p for p in separated.duplicates if p.source == source and p.problem_id in kept)
        other = sum(p.answer != kept[p.problem_id] for p in own)
        unlike = f", {other} of them with another answer" if other else ""
        say(
            f"{source}: {count} duplicates left out{unlike}; of equal questions the first one stays"
        )
    kinds: dict[tuple[str, str], list[RowError]] = {}
    for error in skipped:
        kinds.setdefault((error.field, error.expected), []).append(error)
    for first, *more in kinds.values():
        say(f"{1 + len(more)} {'rows' if more else 'row'} skipped like {first}")


def _warn(splits: Mapping[str, list[Problem]], params: EvaluateParams) -> None:
    """Say if an answer counts as right when it is the LLM's. Warn if no rule can be certified.

    The warning supposes that the LLM answers every question, and correctly where that counts.
    """
    judged = [*splits["validation"], *splits["test"]]
    if against_llm(params.against, judged):
        missing = sum(problem.answer is None for problem in judged)
        say(
            f"validation and test: {missing:,} of {len(judged):,} questions have no answer; an "
            f"answer will count as right if it is the LLM's (evaluate.against: {params.against})"
        )
    right = [True] * len(splits["validation"])
    if few := too_few(right, FIDELITY, params.epsilon, params.delta):
        say(few, style="yellow")
