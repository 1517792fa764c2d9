"""Run a study: one of the YAML files in benchmarks/studies.

    python -m benchmarks.study NAME --work FOLDER

`regret` asks new questions after runs with many seeds, each in a clone below `--work`.
With `project`, a study first runs the stages up to one of them in a clone of this project, which
takes hours on a CPU. The clone has other settings, a pair of your own and a file of rows for each
task. Alone, `project` has the tables of that run:

    python -m benchmarks.study real --slm FOLDER --llm FOLDER --rows FILE --work FOLDER

Writes `benchmarks/results/NAME.{json,md}`. A killed study with `project` continues in its clone.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import yaml
from pydantic import ValidationError

from benchmarks.regret import Regret, make_clone, regrets, run_stages
from benchmarks.report import RESULTS, machine, markdown, write_results
from citer.errors import InputError, read_text
from citer.sections import Count, Listed, Section, complaint
from citer.stages import paths
from citer.storage.tables import read_json, write_text

STUDIES = Path(__file__).with_name("studies")
Folder = Annotated[Path | None, typer.Option(exists=True, resolve_path=True)]
COARSE = "Few rules were tried (the study's file). Numbers between them are no measurements."


class Rows(Section):
    """How many rows of a file go to each file below data/own."""

    counts: Mapping[str, Count]


class Project(Section):
    """What a study changes in params.yaml, the rows that it needs, and the last stage that runs."""

    params: Mapping[str, Any]
    rows: Annotated[tuple[Rows, ...], Listed]
    stage: str


class Study(Section):
    """The content of a study's file."""

    question: str
    project: Project | None = None
    regret: Regret | None = None


def read_study(name: str) -> Study:
    """Read a study's file."""
    path = STUDIES / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in STUDIES.glob("*.yaml")))
        raise InputError(f"{name}: no such study; expected {known}")
    try:
        return Study.model_validate(yaml.safe_load(read_text(path)))
    except ValidationError as invalid:
        raise InputError(f"{path}: {complaint(invalid)}") from None


class Own(NamedTuple):
    """Folders of a pair, and files of rows."""

    slm: Path
    llm: Path
    rows: Sequence[Path]

    @classmethod
    def of(cls, slm: Path | None, llm: Path | None, rows: Sequence[Path]) -> "Own":
        if not (slm and llm and rows):
            raise InputError("this study needs --slm, --llm, --rows and --work")
        return cls(slm, llm, rows)


def settings_of(project: Project, own: Own) -> dict[str, Any]:
    """Return the settings of params.yaml with those of a study and the folders of a pair."""
    settings = yaml.safe_load(read_text(Path("params.yaml")))
    for name, section in project.params.items():
        settings[name] = section if name == "iterations" else settings[name] | section
    settings["pair"] |= {"slm": str(own.slm), "llm": str(own.llm)}
    return settings


def continued(project: Project, own: Own, work: Path) -> None:
    """Run the stages in the clone `work`, which is made if it is missing."""
    settings = settings_of(project, own)
    make_clone(work)
    for source, rows in zip(own.rows, project.rows, strict=True):
        write_rows(source, work / "data/own", rows)
    run_stages(work, settings, project.stage)


def write_rows(source: Path, folder: Path, rows: Rows) -> None:
    """Write the first rows of a JSON Lines file to a file for each of the counts.

    Raises InputError if the file has too few rows.
    """
    lines, needed = read_text(source).splitlines(keepends=True), sum(rows.counts.values())
    if len(lines) < needed:
        raise InputError(f"{source}: {len(lines)} rows, expected {needed} or more")
    left = iter(lines)
    for name, count in rows.counts.items():
        write_text(folder / f"{name}.jsonl", "".join(islice(left, count)))


def run_results(target: Path) -> dict[str, Any]:
    """Return the figures and the table of a finished run, whose picture goes beside the results."""
    shutil.copyfile(paths.SUMMARY / "frontier.png", target.with_suffix(".png"))
    return {
        "metrics": read_json(paths.SUMMARY / "metrics.json"),
        "machine": machine(),
        "note": f"{COARSE}\n\n{read_text(paths.SUMMARY / 'table.md')}",
    }


def run(study: Study, target: Path, work: Path) -> dict[str, Any]:
    """Return what the JSON holds. `tables` are lists of rows by title."""
    return regrets(study.regret, work) if study.regret else run_results(target)


def main(
    name: Annotated[str, typer.Argument(help="Of a file in benchmarks/studies.")],
    slm: Folder = None,
    llm: Folder = None,
    rows_: Annotated[
        list[Path] | None, typer.Option("--rows", exists=True, resolve_path=True)
    ] = None,
    work: Annotated[Path, typer.Option(help="The clone.")] = Path("own"),
) -> None:
    """Run a study of benchmarks/studies and write its results."""
    try:
        study = read_study(name)
        target = (RESULTS / name).absolute()
        if study.project:
            continued(study.project, Own.of(slm, llm, rows_ or []), work)
        with chdir(work if study.project else Path()):
            found = run(study, target, work)
    except InputError as error:
        print(f"study: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    tables = (f"{title}\n\n{markdown(rows)}" for title, rows in found.get("tables", {}).items())
    parts = study.question, found.pop("note", None), *tables
    write_results(target, found, "\n\n".join(filter(None, parts)))


if __name__ == "__main__":
    typer.run(main)
