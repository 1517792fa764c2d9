"""Compare acceptance rules at the same visits, on a real pair of instruct models.

    python -m benchmarks.real_acceptance --slm FOLDER --llm FOLDER --rows FILE --work FOLDER

`--rows` has multiple-choice questions (docs/own-data.md). `--work` becomes a clone of this project
with the settings of `benchmarks/real.yaml`, then `benchmarks/real_acceptance.yaml`. A killed study
continues there. It takes an hour or two on a CPU. Writes
`benchmarks/results/acceptance-real.{json,md}`.
"""

from contextlib import chdir
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.real import SETTINGS, Existing, clone, merged, repro, write_rows

CHANGES = Path("benchmarks/real_acceptance.yaml")
ROWS = {"test": 160, "validation": 20, "train": 210}  # rows of each file


def main(
    slm: Existing, llm: Existing, rows: Existing, work: Annotated[Path, typer.Option()]
) -> None:
    """Evaluate a router with every acceptance rule in WORK, and compare the rules."""
    clone(work, merged(slm, llm, [SETTINGS, CHANGES]))
    write_rows(rows, work / "data/own", ROWS)
    with chdir(work):
        repro("evaluate@1")


if __name__ == "__main__":
    typer.run(main)
