"""Measure, on a real pair of instruct models, what a router does on another task.

    python -m benchmarks.real_transfer --slm FOLDER --llm FOLDER --mc FILE --math FILE --work FOLDER

`--mc` has multiple-choice questions, `--math` problems whose solutions end in a box
(docs/own-data.md); of an answer, the last number is read. `--work` becomes a clone of this project
with the settings of `benchmarks/real.yaml`, then `benchmarks/real_transfer.yaml`. A killed study
repeats only its last part, `benchmarks.transfer`, with one seed. Writes
`benchmarks/results/transfer-real.{json,md}`.
"""

import json
from contextlib import chdir
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import transfer
from benchmarks.real import SETTINGS, Existing, clone, merged, repro, write_rows

CHANGES = Path("benchmarks/real_transfer.yaml")
MC_ROWS = {"mc-test": 60, "mc-validation": 30, "mc-train": 40}
MATH_ROWS = {"math-test": 40, "math-validation": 24, "math-train": 24}
SYSTEM = (
    "Write the calculation as short equations without words, separated by semicolons, the result"
    " last. For example: 12 - 4 = 8; 8 * 3 = 24; 24 / 2 = 12"
)


def main(
    slm: Existing,
    llm: Existing,
    mc: Existing,
    math: Existing,
    work: Annotated[Path, typer.Option()],
) -> None:
    """Score both tasks in WORK, then train and test a router on each and on both."""
    clone(work, merged(slm, llm, [SETTINGS, CHANGES]))
    write_rows(mc, work / "data/own", MC_ROWS)
    write_rows(math, work / "data/own", MATH_ROWS, with_system)
    with chdir(work):
        repro("router0")
    transfer.main(work, "transfer-real", seeds=1)


def with_system(line: str) -> str:
    """Give a row of mathematics its own system message. The settings have that of `mc`."""
    row = json.loads(line)
    turns = [("system", SYSTEM), ("user", row.pop("problem"))]
    messages = [{"role": role, "content": content} for role, content in turns]
    return f"{json.dumps({'messages': messages, **row})}\n"


if __name__ == "__main__":
    typer.run(main)
