"""Run a study: one of the YAML files in benchmarks/studies.

    python -m benchmarks.study NAME        # after `citer run`

A study has one of two parts, each with a module of its name. `costs` compares what methods pay for
an accuracy. `fresh` asks new questions by rules that validation chose. With `project`
(`benchmarks.real`), a study first retrains in a clone of this project, with other settings, a pair
of your own and a file of rows for each task; alone, it has the tables of that run:

    python -m benchmarks.study real --slm FOLDER --llm FOLDER --rows FILE --work FOLDER

Writes `benchmarks/results/NAME.{json,md}`. A killed study with `project` continues in its clone.
"""

import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError

from benchmarks.costs import Costs, compared
from benchmarks.fresh import Fresh, answered_fresh, check_unused
from benchmarks.real import Own, Project, continued, run_results, with_changes
from benchmarks.report import RESULTS, markdown, write_results
from benchmarks.workshop import Workshop
from citer.errors import InputError, read_text
from citer.sections import Section, complaint

STUDIES = Path(__file__).with_name("studies")
Folder = Annotated[Path | None, typer.Option(exists=True, resolve_path=True)]


class Study(Section):
    """The content of a study's file."""

    question: str
    project: Project | None = None
    costs: Costs | None = None
    fresh: Fresh | None = None


def read_study(name: str) -> Study:
    """Read a study's file. With a `base`, it has what changes in that study."""
    path = STUDIES / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in STUDIES.glob("*.yaml")))
        raise InputError(f"{name}: no such study; expected {known}")
    try:
        return Study.model_validate(_content(path))
    except ValidationError as invalid:
        raise InputError(f"{path}: {complaint(invalid)}") from None


def _content(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(read_text(path))
    if base := content.pop("base", None):
        return with_changes(_content(path.with_name(f"{base}.yaml")), content)
    return content


def run(study: Study, target: Path, seed: int | None) -> dict[str, Any]:
    """Return what the JSON holds. `tasks` are tables: by task, heading and method, a cell."""
    if study.fresh:
        return answered_fresh(study.fresh, check_unused(target, seed))
    if study.costs:
        return {"tasks": compared(Workshop.open(), study.costs)}
    return run_results(target)


def rows(tasks: dict[str, dict[str, dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield a row for each task and method, with a cell for each column."""
    for task, columns in tasks.items():
        for name in next(iter(columns.values())):
            cells = {heading: column.get(name) for heading, column in columns.items()}
            yield {"task": task, "method": name, **cells}


def main(
    name: Annotated[str, typer.Argument(help="Of a file in benchmarks/studies.")],
    slm: Folder = None,
    llm: Folder = None,
    rows_: Annotated[
        list[Path] | None, typer.Option("--rows", exists=True, resolve_path=True)
    ] = None,
    work: Annotated[Path, typer.Option(help="The clone.")] = Path("own"),
    seed: Annotated[int | None, typer.Option(help="Of fresh questions.")] = None,
) -> None:
    """Run a study of benchmarks/studies and write its results."""
    try:
        study = read_study(name)
        target = (RESULTS / (f"{name}-{seed}" if study.fresh else name)).absolute()
        if study.project:
            continued(study.project, Own.of(slm, llm, rows_ or []), work)
        with chdir(work if study.project else Path()):
            found = run(study, target, seed)
    except InputError as error:
        print(f"study: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    note, tables = found.pop("note", ""), [*rows(found.get("tasks", {}))]
    write_results(target, found, f"{study.question}\n\n{note}{markdown(tables)}")


if __name__ == "__main__":
    typer.run(main)
