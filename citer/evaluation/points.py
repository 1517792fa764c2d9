"""Turn runs into rows: an outcome for each question, a point of the frontier for each task.

In a row, the share of correct answers is `accuracy`, whatever the measure of the study. On disk its
column has the name of the measure.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from citer.data.tasks.grading import Failures, failures
from citer.decoding.answer import Counts
from citer.errors import InputError
from citer.evaluation.cost import Batch
from citer.evaluation.measure import Conditions, Measure
from citer.evaluation.methods import Kind, Row, numbered
from citer.evaluation.metrics import share_interval
from citer.rule import Rule
from citer.storage.schema import OUTCOME, point
from citer.storage.tables import read_table, table_metadata, write_table

if TYPE_CHECKING:  # the engine with its models takes seconds to import
    from citer.evaluation.sweep import Result, Run

# Fields of a table's stamp.
RIVALS_STAMP, ROUTER_STAMP = {"methods": "rivals"}, {"methods": "router"}


@dataclass(frozen=True)
class Findings:
    """An OUTCOME table, and rows of the POINT table, of all splits."""

    outcomes: pa.Table
    points: list[Row]

    @property
    def on_test(self) -> list[Row]:
        return [row for row in self.points if row["split"] == "test"]

    @property
    def failures(self) -> list[Failures]:
        """The answers on which graders failed, by task."""
        failed = self.outcomes.filter(pc.field("failure").is_valid())
        columns = (failed[name].to_pylist() for name in ("task", "problem_id", "failure"))
        return failures(zip(*columns, strict=True))

    def joined(self, other: "Findings") -> "Findings":
        outcomes = pa.concat_tables([self.outcomes, other.outcomes])
        return Findings(outcomes, [*self.points, *other.points])

    def where(self, keep: Callable[[Row], bool]) -> "Findings":
        """Keep the methods and splits by the points, each of which has a method and a split."""
        points = [row for row in self.points if keep(row)]
        kept = {(row["method"], row["split"]) for row in points}
        columns = (self.outcomes[name].to_pylist() for name in ("method", "split"))
        mask = [each in kept for each in zip(*columns, strict=True)]
        return Findings(self.outcomes.filter(pa.array(mask, pa.bool_())), points)

    @property
    def candidates(self) -> "Findings":
        """Leave out the models alone and the bounds."""
        return self.where(lambda row: row["kind"] not in (Kind.ALONE, Kind.BOUND))

    def of_iteration(self, iteration: str, colour: str, marker: str) -> "Findings":
        """Add the iteration to the names of the methods in `ANEW`, and set their look."""
        look = {"colour": colour, "marker": marker}
        points = []
        for row in self.points:
            name = numbered(row["method"], iteration)
            points.append(row if name == row["method"] else row | look | {"method": name})
        names = [numbered(name, iteration) for name in self.outcomes["method"].to_pylist()]
        place, field = OUTCOME.get_field_index("method"), OUTCOME.field("method")
        return Findings(self.outcomes.set_column(place, field, pa.array(names, field.type)), points)


def write_findings(folder: Path, findings: Findings, batches: Sequence[Batch], stamp: Row) -> None:
    """Write both tables of a report. The stamp has the measure."""
    measure = Conditions.stored(stamp).measure
    schemas = _schemas(batches, measure)
    points = pa.Table.from_pylist([*map(measure.keys, findings.points)], schemas["points"])
    for name, table in (("outcomes", findings.outcomes), ("points", points)):
        write_table(folder / f"{name}.parquet", table, schemas[name], stamp)


def read_findings(folder: Path, batches: Sequence[Batch], stamp: Row) -> Findings:
    """Read both tables of a report.

    Raises InputError if a file is missing, or if its stamp differs from `stamp` (`study_stamp`).
    """
    tables = {}
    for name, schema in _schemas(batches, Conditions.stored(stamp).measure).items():
        path = folder / f"{name}.parquet"
        tables[name] = read_table(path, schema)
        stored = table_metadata(path)
        for field, value in stamp.items():
            if stored.get(field) != value:
                raise InputError(f"{path}: its {field} is {stored.get(field)}, here it is {value}")
    names = _point(batches).names
    return Findings(tables["outcomes"], tables["points"].rename_columns(names).to_pylist())


def _schemas(batches: Sequence[Batch], measure: Measure) -> dict[str, pa.Schema]:
    on_disk = [field.with_name(measure.key(field.name)) for field in _point(batches)]
    return {"outcomes": OUTCOME, "points": pa.schema(on_disk)}


def _point(batches: Sequence[Batch]) -> pa.Schema:
    return point(batch.name for batch in batches)


def outcome_table(runs: Iterable["Run"]) -> pa.Table:
    """Collect the answers of all runs in a table. It takes far less memory than a list of rows."""
    tables = [pa.Table.from_pylist(list(outcome_rows(run)), OUTCOME) for run in runs]
    return pa.concat_tables([OUTCOME.empty_table(), *tables])


def outcome_rows(run: "Run") -> Iterator[Row]:
    """Yield a row of the OUTCOME table for each result of a run."""
    for result in run.results:
        yield {
            "split": result.problem.split,
            "method": run.method,
            **rule_columns(run.rule),
            "problem_id": result.problem.problem_id,
            "task": result.problem.task,
            "correct": result.correct,
            "share": result.share,
            "failure": result.failure,
            "truncated": result.truncated,
            **result.counts._asdict(),
            "slm_steps": result.trace.slm.forwards,
            "bytes": run.prices.moved(result.trace.slm, result.trace.llm),
        }


def rule_columns(rule: Rule) -> Row:
    return {
        "visit": rule.visit,
        "threshold": rule.at,
        "audit": rule.audit,
        "by": rule.by or None,
        "draft": None if rule.draft == "slm" else rule.draft,
        "cap": rule.cap or None,
    }


def rule_of(row: Row) -> Rule:
    """Read the `rule_columns` of a row."""
    given = {name: row[name] for name in ("by", "draft", "cap") if row[name]}
    return Rule(row["visit"], row["threshold"], row["audit"], **given)


def point_rows(
    runs: Iterable["Run"], batches: Sequence[Batch], earlier: Iterable[Row] = ()
) -> list[Row]:
    """Make rows of the POINT table. Tasks have rows of their own on test.

    Costs are relative to the LLM alone. Its points are among those of `runs` or in `earlier`.
    """
    rows = [row for run in runs for row in _by_task(run, batches)]
    llm = {_place(row): row for row in (*earlier, *rows) if row["method"] == "llm"}
    for row in rows:
        for batch in batches:
            moved = f"bytes_per_answer_{batch.name}"
            row[f"cost_{batch.name}"] = row[moved] / llm[_place(row)][moved]
    return rows


def _place(row: Row) -> tuple[str, str]:
    return row["split"], row["task"]


def _by_task(run: "Run", batches: Sequence[Batch]) -> Iterator[Row]:
    split = run.results[0].problem.split
    tasks = sorted({result.problem.task for result in run.results}) if split == "test" else ()
    for task in ("all", *tasks):
        results = [result for result in run.results if task in ("all", result.problem.task)]
        own = replace(run, results=results)
        moved = {f"bytes_per_answer_{batch.name}": own.moved(batch) for batch in batches}
        yield {
            "method": run.method,
            **run.style._asdict(),
            "split": split,
            "task": task,
            **rule_columns(run.rule),
            **_quality(results),
            **moved,
        }


def _quality(results: Sequence["Result"]) -> Row:
    correct = [result.correct for result in results]
    shares = [result.correct if result.share is None else result.share for result in results]
    low, high = share_interval(sum(correct), len(correct))
    total = Counts.total(result.counts for result in results)
    tokens, audited = total.tokens, total.audited
    return {
        "questions": len(results),
        "accuracy": float(np.mean(correct)),
        "accuracy_low": low,
        "accuracy_high": high,
        "mean_share": float(np.mean(shares)),
        "llm_fraction": total.llm_tokens / tokens,
        "visits_per_token": total.visits / tokens,
        "slm_steps_per_token": sum(result.trace.slm.forwards for result in results) / tokens,
        "agreement": 1 - total.disagreed / audited if audited else None,
        "rejected_share": total.rejected / audited if audited else None,
        "tokens_per_answer": tokens / len(results),
        "truncated_share": float(np.mean([result.truncated for result in results])),
    }
