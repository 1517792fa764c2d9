"""Run a study: one of the YAML files in benchmarks/studies.

    python -m benchmarks.study NAME --work FOLDER

Each pair of a study (`benchmarks.designs`) runs the pipeline in a clone below FOLDER. Writes
`benchmarks/results/NAME.{json,md,png}`. A killed study continues.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml
from pydantic import ValidationError

from benchmarks.designs import Pairs, pairs
from benchmarks.report import RESULTS
from citer.errors import InputError, read_text
from citer.sections import complaint

STUDIES = Path(__file__).with_name("studies")


def read_study(name: str) -> Pairs:
    """Read a study's file."""
    path = STUDIES / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in STUDIES.glob("*.yaml")))
        raise InputError(f"{name}: no such study; expected {known}")
    content = yaml.safe_load(read_text(path))
    try:
        return Pairs.model_validate(content)
    except ValidationError as invalid:
        raise InputError(f"{path}: {complaint(invalid)}") from None


def main(
    name: Annotated[str, typer.Argument(help="Of a file in benchmarks/studies.")],
    work: Annotated[Path, typer.Option(help="Folder for a clone of each pair.")],
) -> None:
    """Run a study of benchmarks/studies and write its results."""
    try:
        pairs(read_study(name), work.absolute(), RESULTS / f"{name}.json")
    except InputError as error:
        print(f"study: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    typer.run(main)
