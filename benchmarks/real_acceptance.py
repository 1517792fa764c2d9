"""Compare acceptance rules at the same visits, on a real pair of instruct models.

    python -m benchmarks.real_acceptance --slm FOLDER --llm FOLDER --rows FILE --work FOLDER

`--rows` has multiple-choice questions (docs/own-data.md). `--work` becomes a clone of this project
with the settings of `benchmarks/real.yaml`, then `benchmarks/real_acceptance.yaml`. A killed study
continues there. Writes `benchmarks/results/acceptance-real.{json,md}`.

A *kind* is an acceptance rule with all its thresholds. Exact routing, `audit 1`, belongs to each
kind, and so do the models alone. The cost of an accuracy is read linearly between efficient rules.
"""

from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.paired import shown
from benchmarks.real import ITERATION, RESULTS, SETTINGS, Existing, clone, merged, repro, write_rows
from benchmarks.report import machine
from citer.evaluation.paired import Frontier, interval
from citer.evaluation.points import rule_of
from citer.report.against import RULE, Answers, Resampled
from citer.rule import Rule
from citer.stages import paths
from citer.storage.schema import OUTCOME
from citer.storage.tables import read_table, replacing, write_json

CHANGES = Path("benchmarks/real_acceptance.yaml")
ROWS = {"test": 160, "validation": 20, "train": 210}  # rows of each file
SHARES = {"90 %": 0.9, "95 %": 0.95, "99 %": 0.99}  # of the LLM's accuracy
OURS = "audit"


def main(
    slm: Existing, llm: Existing, rows: Existing, work: Annotated[Path, typer.Option()]
) -> None:
    """Answer by every acceptance rule in WORK, and compare the rules."""
    clone(work, merged(slm, llm, [SETTINGS, CHANGES]))
    write_rows(rows, work / "data/own", ROWS)
    with chdir(work):
        repro(f"evaluate@{ITERATION}")
        folders = paths.RIVALS, paths.report(ITERATION)
        outcomes = [read_table(folder / "outcomes.parquet", OUTCOME) for folder in folders]
    answers = Answers.of(pa.concat_tables(outcomes))
    found = {"kinds": summary(answers), "rules": rules(answers)}
    write_json(RESULTS / "acceptance-real.json", {**found, "machine": machine()})
    with replacing(RESULTS / "acceptance-real.md") as aside, aside.open("w") as file:
        for table in (_costs(found["kinds"]), _rules(found["rules"])):
            Console(file=file, width=200).print(table)
            Console(width=200).print(table)


def kinds(answers: Answers) -> dict[str, list[int]]:
    """Return the runs of each kind, between those of the models alone."""
    audited = {n: _rule(answers, n) for n in answers.by_method["audited"]}
    exact = [n for n, rule in audited.items() if rule.exact]
    alone = answers.line()
    found: dict[str, list[int]] = {}
    for number, rule in audited.items():
        if not rule.exact:
            found.setdefault(rule.by, [alone[0], *exact]).append(number)
    return {by: [*runs, alone[-1]] for by, runs in found.items()}


def _rule(answers: Answers, run: int) -> Rule:
    return rule_of(dict(zip(RULE, answers.runs[run][1:], strict=True)))


def summary(answers: Answers) -> dict[str, Any]:
    """Compute the cost of each accuracy for each kind, and how much more it is than for `audit`."""
    sums = Resampled.of(answers, np.full(len(answers.task_Q), True))
    cost = {
        by: {share: _cost(sums, runs, least) for share, least in SHARES.items()}
        for by, runs in kinds(answers).items()
    }
    return {
        by: {
            share: {
                "cost": interval(cost_R),
                "above": interval(cost_R - cost[OURS][share]) if by != OURS else None,
            }
            for share, cost_R in costs.items()
        }
        for by, costs in cost.items()
    }


def _cost(sums: Resampled, runs: Sequence[int], share: float) -> np.ndarray:
    """Return cost_R: the least cost for a share of the LLM's accuracy, relative to the LLM."""
    cost_RT = sums.moved_RV[:, runs] / sums.moved_RV[:, runs[-1:]]
    right_RT = sums.right_RV[:, runs]
    return Frontier.of(cost_RT, right_RT).cost_for(share * right_RT[:, -1])


def rules(answers: Answers) -> dict[str, dict[str, float]]:
    """Compute the accuracy, the cost and the LLM fraction of every rule and of both models."""
    slm, llm = answers.line()
    named = {slm: "SLM", llm: "LLM"}
    named |= {n: str(_rule(answers, n)) for n in answers.by_method["audited"]}
    return {
        name: {
            "accuracy": answers.correct_VQ[n].mean(),
            "cost": answers.bytes_VQ[n].sum() / answers.bytes_VQ[llm].sum(),
            "LLM fraction": answers.llm_tokens_VQ[n].sum() / answers.tokens_VQ[n].sum(),
        }
        for n, name in named.items()
    }


def _costs(found: Mapping[str, Any]) -> Table:
    above = (f"{share}, above `{OURS}`" for share in SHARES)
    table = Table("accepts by", *SHARES, *above, box=box.MARKDOWN)
    for by, costs in found.items():
        cells = [shown(each["cost"]) for each in costs.values()]
        cells += [shown(each["above"], "+") if each["above"] else "" for each in costs.values()]
        table.add_row(by, *cells)
    return table


def _rules(found: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table("rule", *next(iter(found.values())), box=box.MARKDOWN)
    for name, figures in found.items():
        table.add_row(name, *(f"{number:.3f}" for number in figures.values()))
    return table


if __name__ == "__main__":
    typer.run(main)
