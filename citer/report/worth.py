"""What the deployed rule is worth, question by question on test.

It stands beside every other method, and beside the candidates that differ from it in one part: its
labels, its input, its visit, its audit. `WORTH_LEGEND` says how the two are read.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.table import Table

from citer.evaluation.choice import Chosen, deployed
from citer.evaluation.cost import batches
from citer.evaluation.measure import Measure
from citer.evaluation.methods import MODELS, SCORERS, Kind, Row, Style, label
from citer.evaluation.metrics import CONFIDENCE, RESAMPLES, Frontier, interval, resamples
from citer.evaluation.points import rule_columns, rule_of
from citer.report.standings import markdown
from citer.rule import LLM, Rule

COST, ACCURACY = "cost_at_equal_accuracy", "accuracy_at_equal_cost"
PART = "part"  # as kind of a row: the candidates that differ from the deployed rule in one part
# The change of cost against a cost without limit. It is below every number, and not -100 %: the end
# of an interval may lie between it and a number, and is then missing, too.
UNREACHED = -math.inf
RULE = tuple(rule_columns(LLM))  # the columns that name a rule
Has = Callable[[str, Rule], bool]  # of a method and a rule
WORTH_LEGEND = """\
Cost: by how many percent the deployed rule moves more bytes at batch 1 than the others, at the
{measure} of the deployed rule. Points: by how many percentage points its {measure} is above
theirs, at its cost.
The others are the candidates that differ from the deployed rule in one part, then all methods. They
may use any of their rules, or mix two of them by question; they are read on test, which favours
them. In brackets: 95 % intervals of a paired bootstrap over questions, each for itself. Not
reached: neither the others nor a model alone have the {measure} of the deployed rule (cost), or are
as cheap (points).
"""
SIZES = 3  # of batches
KNOWN = (Kind.RIVAL, Kind.EXACT)


class Other(NamedTuple):
    """What the deployed rule is compared with: `PART`, or the kind of a method."""

    name: str
    kind: str
    has: Has


def others(methods: Mapping[str, Style], method: str, rule: Rule) -> list[Other]:
    """Return what the deployed rule of this method is compared with."""
    listed = [
        Other(label(name), style.kind.value, _of_method(name))
        for name, style in methods.items()
        if style.kind is not Kind.ALONE and name != method
    ]
    return [*parts(rule), *listed]


def _of_method(name: str) -> Has:
    return lambda method, _: method == name


def parts(rule: Rule) -> list[Other]:
    """Return the candidates that differ from a rule in one part."""
    accepts = _acceptance(rule)
    if accepts == "alone":
        return []
    found = {
        f"{acceptance} in place of {accepts}": _with(rule, rule.by, acceptance)
        for acceptance in ("no audit", "audit β", "audit 1")
        if acceptance != accepts
    }
    if rule.by:
        found["every γ in place of scores"] = _with(rule, "", accepts)
    if own := SCORERS.get(rule.by):
        for name, other in SCORERS.items():
            if other.input == own.input and other.labels != own.labels:
                found[f"{other.labels} in place of {own.labels}"] = _with(rule, name, accepts)
            elif other.labels == own.labels and other.input != own.input:
                found[f"{other.input} in place of {own.input}"] = _with(rule, name, accepts)
        entropy, probability = (_with(rule, by, accepts) for by in ("entropy", "probability"))
        found["certainty alone"] = lambda *run: entropy(*run) or probability(*run)
    return [Other(name, PART, has) for name, has in found.items()]


def _acceptance(rule: Rule) -> str:
    if not rule.asks_slm:
        return "alone"
    if not rule.by and rule.visit != "every" and rule.draft == "slm":
        return "bound"  # its rule names no scorer, but has scores
    return "audit 1" if rule.exact else "audit β" if rule.audit else "no audit"


def _with(like: Rule, by: str, acceptance: str) -> Has:
    """Return whether a rule is such a candidate, from the drafter of `like`."""
    own = by, acceptance, like.draft
    return lambda _, rule: (rule.by, _acceptance(rule), rule.draft) == own


@dataclass(frozen=True)
class Answers:
    """The test answers of V runs, each a method with a rule, to Q questions."""

    runs: Sequence[tuple[str, Rule]]
    task_Q: np.ndarray
    correct_VQ: np.ndarray
    bytes_VQ: np.ndarray  # moved at batch 1

    @classmethod
    def of(cls, outcomes: pa.Table) -> "Answers":
        """Read the test rows of an OUTCOME table. Every run must have answered every question."""
        test = outcomes.filter(pc.field("split") == "test")
        rows = test.select(["method", *RULE]).to_pylist()
        keys = [(row["method"], rule_of(row)) for row in rows]
        place = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        ids = test["problem_id"].to_numpy(zero_copy_only=False)
        id_Q, first_Q, question_N = np.unique(ids, return_index=True, return_inverse=True)
        cell_N = np.array([place[key] for key in keys]), question_N
        tables = [np.full((len(place), len(id_Q)), np.nan) for _ in range(2)]
        for table_VQ, name in zip(tables, ("correct", "bytes"), strict=True):
            table_VQ[cell_N] = test[name].to_numpy(zero_copy_only=False)
        assert not np.isnan(tables).any(), "a run lacks questions"
        task_Q = test["task"].to_numpy(zero_copy_only=False)[first_Q]
        return cls(list(place), task_Q, *tables)

    def line(self, has: Has) -> list[int]:
        """Return the numbers of the runs of these rules, and of the models alone."""
        return [n for n, run in enumerate(self.runs) if run[0] in MODELS or has(*run)]

    def run_of(self, method: str, rule: Rule) -> int:
        """Return the number of the run of a rule, which may be that of a model alone."""
        names = (method, *MODELS)
        return next(n for n, run in enumerate(self.runs) if run[0] in names and run[1] == rule)


def worth(
    outcomes: Iterable[pa.Table], methods: Mapping[str, Style], method: str, rule: Rule
) -> list[Row]:
    """Compare the deployed rule of a method with all `others`, on all tasks and by task.

    The tables (schema OUTCOME) have the methods and the models alone. What has no rule on test is
    left out. A number is missing (None) where there is nothing to compare: no rule of the other,
    nor the LLM, is as accurate (`cost_at_equal_accuracy`), or as cheap (`accuracy_at_equal_cost`).
    """
    answers = Answers.of(pa.concat_tables(outcomes))
    run, listed = answers.run_of(method, rule), others(methods, method, rule)
    listed = [other for other in listed if any(other.has(*each) for each in answers.runs)]
    tasks = {"all": np.full(len(answers.task_Q), True)}
    tasks |= {str(task): answers.task_Q == task for task in np.unique(answers.task_Q)}
    rows: list[Row] = []
    for task, in_task_Q in tasks.items():
        drawn_RQ, questions = resamples(in_task_Q).astype(float), int(in_task_Q.sum())
        right_RV, moved_RV = drawn_RQ @ answers.correct_VQ.T, drawn_RQ @ answers.bytes_VQ.T
        for other in listed:
            found = _beside(right_RV, moved_RV, questions, run, answers.line(other.has))
            rows.append({"task": task, "other": other.name, "kind": other.kind} | found)
    return rows


def content(rows: Sequence[Row], measure: Measure) -> dict[str, Any]:
    """Return the file `worth.json`."""
    own = {"confidence": CONFIDENCE, "resamples": RESAMPLES}
    return own | {"others": [*map(measure.keys, rows)]}


def _beside(
    right_RV: np.ndarray, moved_RV: np.ndarray, questions: int, run: int, runs: list[int]
) -> Row:
    """Compare a run with the frontier of other runs, at equal accuracy and at equal cost.

    Right answers and bytes are sums over the questions of a task in R resamples, for V runs.
    """
    other = Frontier.of(moved_RV[:, runs], right_RV[:, runs])
    moved_R, right_R = moved_RV[:, run], right_RV[:, run]
    cost_R = other.cost_for(right_R)
    change_R = np.where(np.isinf(cost_R), UNREACHED, moved_R / cost_R - 1)
    ahead_R = (right_R - other.right_for(moved_R)) / questions
    return _estimate(COST, change_R) | _estimate(ACCURACY, ahead_R)


def _estimate(name: str, value_R: np.ndarray) -> Row:
    """Return the sample's value and both ends of its interval, None where one is missing."""
    known = [n if math.isfinite(n) else None for n in interval(value_R)]
    if known[0] is None:
        known = [None, None, None]
    return dict(zip((name, f"{name}_low", f"{name}_high"), known, strict=True))


def worth_summary(rows: Sequence[Row], measure: Measure) -> str:
    """Write the table on all tasks with its legend."""
    return "\n".join([worth_table(rows, "all"), "", WORTH_LEGEND.format(measure=measure.name)])


def worth_table(rows: Sequence[Row], task: str) -> str:
    """Write a Markdown table with a row for each of the others."""
    drawn = Table("deployed rule beside", "", box=box.MARKDOWN)
    for title in ("cost %", "points"):
        drawn.add_column(title, justify="right")
    for row in rows:
        if row["task"] == task:
            kind = "one part changed" if row["kind"] == PART else row["kind"]
            drawn.add_row(row["other"], kind, _change(row, COST), _change(row, ACCURACY))
    return markdown(drawn)


def _change(row: Row, key: str) -> str:
    names = (key, f"{key}_low", f"{key}_high")
    texts = ["not reached" if row[n] is None else f"{100 * row[n]:+.1f}" for n in names]
    return texts[0] if row[key] is None else "{} [{}, {}]".format(*texts)


def headline(
    standings: Sequence[Row],
    chosen: Chosen,
    others: Sequence[Row],
    sizes: Sequence[int],
    measure: Measure,
) -> dict[str, float]:
    """Return at most 12 numbers about the deployed rule of `chosen`, on all test questions.

    Costs are those at batch 1 and the least of `sizes`, where the LLM is delayed. The best
    rival is the cheapest of the `others` (`worth`) at equal accuracy. A number that does not exist
    is left out.
    """
    method = deployed(chosen)
    rows = {row["method"]: row for row in standings if row["task"] == "all"}
    slm, llm = (rows[model]["accuracy"] for model in MODELS)
    columns = [own.column for own in batches(sizes) if own.slots == 1 or own.schedule == "delayed"]
    numbers = {
        "accuracy": rows[method]["accuracy"],
        "llm_accuracy": llm,
        "slm_accuracy": slm,
        "bound": chosen[method].bound,
        "llm_fraction": rows[method]["llm_fraction"],
        **{name: rows[method][name] for name in columns[:SIZES]},
        **_against_best(others),
    }
    return measure.keys({name: value for name, value in numbers.items() if value is not None})


def _against_best(others: Sequence[Row]) -> Row:
    """Return our cost and accuracy beside the best known method's, if one is as accurate."""
    known = [row for row in others if row["task"] == "all" and row["kind"] in KNOWN]
    reaching = [row for row in known if row[COST] is not None]
    if not reaching:
        return {}
    best = max(reaching, key=lambda row: row[COST])
    return {"cost_against_best_rival": best[COST], "accuracy_against_best_rival": best[ACCURACY]}
