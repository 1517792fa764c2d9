"""Compare the last router's methods with each rival, question by question on test.

The rules of the router were chosen on validation. A rival may use any of its rules, or mix two of
them by question. It is read on test, which favours the rival.
"""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from citer.evaluation.choice import Chosen
from citer.evaluation.measure import Measure
from citer.evaluation.methods import MODELS, Row, label
from citer.evaluation.metrics import CONFIDENCE
from citer.evaluation.paired import RESAMPLES, Frontier, interval, resamples
from citer.evaluation.points import rule_columns
from citer.rule import LLM

COST, ACCURACY, AREA = "cost_at_equal_accuracy", "accuracy_at_equal_cost", "area"
# The change of cost against a cost without limit. It is below every number, and not -100 %: the end
# of an interval may lie between it and a number, and is then missing, too.
UNREACHED = -math.inf
RULE = tuple(rule_columns(LLM))  # the columns that name a rule


class Comparison(NamedTuple):
    """Rows for each task: each of our methods beside each rival, and the area of each method.

    A number is missing (None) where there is nothing to compare: no rule of the rival, nor the LLM,
    is as accurate (`cost_at_equal_accuracy`), or as cheap (`accuracy_at_equal_cost`).
    """

    against: list[Row]
    areas: list[Row]

    def on_all(self, method: str) -> list[Row]:
        """Return one of our methods beside each rival, on all tasks together."""
        return [r for r in self.against if (r["task"], r["method"]) == ("all", method)]

    def content(self, measure: Measure) -> dict[str, Any]:
        """The file `rivals.json`."""
        rows = {name: [*map(measure.keys, rows)] for name, rows in self._asdict().items()}
        return {"confidence": CONFIDENCE, "resamples": RESAMPLES, **rows}


def rival_label(row: Row) -> str:
    """Return the label of a comparison's rival. A bound is marked, since it is no method."""
    return label(row["rival"]) + (" (a bound)" if row["is_bound"] else "")


@dataclass(frozen=True)
class Answers:
    """The test answers of V runs, each a method with a rule, to Q questions."""

    runs: Sequence[tuple[Any, ...]]  # (method, *RULE)
    task_Q: np.ndarray
    correct_VQ: np.ndarray
    bytes_VQ: np.ndarray  # moved at batch 1

    @classmethod
    def of(cls, outcomes: pa.Table) -> "Answers":
        """Read the test rows of an OUTCOME table. Every run must have answered every question."""
        test = outcomes.filter(pc.field("split") == "test")
        keys = list(zip(*(test[name].to_pylist() for name in ("method", *RULE)), strict=True))
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

    @cached_property
    def by_method(self) -> dict[str, list[int]]:
        """The numbers of each method's runs."""
        numbers: dict[str, list[int]] = {}
        for number, (method, *_) in enumerate(self.runs):
            numbers.setdefault(method, []).append(number)
        return numbers

    def line(self, *methods: str) -> list[int]:
        """Return the numbers of the methods' runs, between those of the models alone."""
        slm, llm = MODELS
        return [number for name in (slm, *methods, llm) for number in self.by_method[name]]

    def run_of(self, method: str, columns: Row) -> int:
        """Return the number of the run of a rule, which may be that of a model alone."""
        rule = tuple(columns[name] for name in RULE)
        return next(number for number in self.line(method) if self.runs[number][1:] == rule)


def compare(
    outcomes: Sequence[pa.Table], chosen: Chosen, bounds: Container[str] = ()
) -> Comparison:
    """Compare the chosen rules with each rival, on all tasks and by task.

    The tables (schema OUTCOME) have the methods of `chosen`, the models alone, and the rivals: all
    other methods. Those in `bounds` are marked: they could not be deployed.
    """
    answers = Answers.of(pa.concat_tables(outcomes))
    ours = {name: answers.run_of(name, rule_columns(each.rule)) for name, each in chosen.items()}
    tasks = {"all": np.full(len(answers.task_Q), True)}
    tasks |= {str(task): answers.task_Q == task for task in np.unique(answers.task_Q)}
    found = Comparison([], [])
    for task, in_task_Q in tasks.items():
        resampled = Resampled.of(answers, in_task_Q)
        for row in resampled.against(ours):
            found.against.append({"task": task, "is_bound": row["rival"] in bounds} | row)
        found.areas.extend({"task": task} | row for row in resampled.areas(ours))
    return found


@dataclass(frozen=True)
class Resampled:
    """Sums over the questions of a task in R resamples, for V runs."""

    answers: Answers
    questions: int
    right_RV: np.ndarray
    moved_RV: np.ndarray

    @classmethod
    def of(cls, answers: Answers, in_task_Q: np.ndarray) -> "Resampled":
        drawn_RQ = resamples(in_task_Q).astype(float)
        sums = (drawn_RQ @ each_VQ.T for each_VQ in (answers.correct_VQ, answers.bytes_VQ))
        return cls(answers, int(in_task_Q.sum()), *sums)

    @cached_property
    def frontiers(self) -> dict[str, Frontier]:
        """The frontier of each method, the models alone included."""
        methods = (name for name in self.answers.by_method if name not in MODELS)
        lines = {name: self.answers.line(name) for name in methods}
        return {
            name: Frontier.of(self.moved_RV[:, runs], self.right_RV[:, runs]).hull()
            for name, runs in lines.items()
        }

    @cached_property
    def area_R(self) -> dict[str, np.ndarray]:
        alone = self.answers.line()
        moved_R2, right_R2 = self.moved_RV[:, alone], self.right_RV[:, alone]
        return {name: each.area(moved_R2, right_R2) for name, each in self.frontiers.items()}

    def against(self, ours: Mapping[str, int]) -> Iterator[Row]:
        """Yield a row for each rival and each of our methods, which are given with their runs."""
        for rival in (name for name in self.frontiers if name not in ours):
            for name, run in ours.items():
                gap_R = self.area_R[name] - self.area_R[rival]
                beside = self._beside(run, self.frontiers[rival])
                gap = _estimate(f"{AREA}_difference", gap_R)
                yield {"method": name, "rival": rival} | beside | gap

    def areas(self, ours: Container[str]) -> Iterator[Row]:
        """Yield a row for each method, ours first."""
        for name in sorted(self.area_R, key=lambda name: name not in ours):
            yield {"method": name} | _estimate(AREA, self.area_R[name])

    def _beside(self, run: int, rival: Frontier) -> Row:
        """Compare a run with a rival at equal accuracy, and at equal cost."""
        moved_R, right_R = self.moved_RV[:, run], self.right_RV[:, run]
        cost_R = rival.cost_for(right_R)
        change_R = np.where(np.isinf(cost_R), UNREACHED, moved_R / cost_R - 1)
        ahead_R = (right_R - rival.right_for(moved_R[:, None])[:, 0]) / self.questions
        return _estimate(COST, change_R) | _estimate(ACCURACY, ahead_R)


def _estimate(name: str, value_R: np.ndarray) -> Row:
    """Return the sample's value and both ends of its interval, None where one is missing."""
    known = [n if math.isfinite(n) else None for n in interval(value_R)]
    if known[0] is None:
        known = [None, None, None]
    return dict(zip((name, f"{name}_low", f"{name}_high"), known, strict=True))
