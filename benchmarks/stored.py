"""Read answers to test questions from OUTCOME tables, and compute figures of them by resamples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.paired import Outcomes
from citer.evaluation.methods import MODELS
from citer.evaluation.points import rule_columns
from citer.rule import Rule


@dataclass(frozen=True)
class Rows:
    """The rows of an OUTCOME table for the same Q test questions, rule after rule.

    In a resample r, question q occurs `drawn_RQ[r, q]` times (`benchmarks.paired`).
    """

    table: pa.Table

    @classmethod
    def of(cls, *tables: pa.Table) -> "Rows":
        """Keep the rows on test. The first rows must be those of the SLM alone or the LLM alone."""
        joined = pa.concat_tables(tables)
        return cls(joined.filter(pc.equal(joined["split"], "test")))

    def method(self, name: str) -> "Rows":
        return Rows(self.table.filter(pc.equal(self.table["method"], name)))

    def rule(self, name: str, rule: Rule) -> "Rows":
        """Return the answers of a method by a rule, which may be the rule of a model alone.

        Raises ValueError if there are none.
        """
        wanted = rule_columns(rule)
        for method in (name, *MODELS):
            table = self.method(method).table
            is_of_rule_N = [row == wanted for row in table.select(list(wanted)).to_pylist()]
            if any(is_of_rule_N):
                return Rows(table.filter(pa.array(is_of_rule_N)))
        raise ValueError(f"{name}: no answers by `{rule}`")

    @property
    def questions(self) -> list[str]:
        """The ids of the Q questions."""
        return self.table["problem_id"].unique().to_pylist()

    def in_task(self, task: str) -> np.ndarray:
        """Return in_task_Q: whether each question belongs to the task."""
        return self.method(MODELS[1]).table["task"].to_numpy() == task

    def column(self, name: str) -> np.ndarray:
        """Return a column as value_TQ, by rule and question."""
        return self.table[name].to_numpy().astype(float).reshape(-1, len(self.questions))

    def outcomes(self, method: str) -> Outcomes:
        """Return a method's answers by all its rules, between those of both models alone."""
        slm, llm = (self.method(name).table for name in MODELS)
        joined = Rows(pa.concat_tables([slm, self.method(method).table, llm]))
        correct, llm_tokens, tokens, moved = (
            joined.column(name) for name in ("correct", "llm_tokens", "tokens", "bytes")
        )
        rules: Sequence[Rule] = ()
        return Outcomes(rules, (), (), correct, llm_tokens, tokens, moved, np.zeros((0, 0), bool))


def accuracy(rows: Rows, drawn_RQ: np.ndarray) -> np.ndarray:
    """Return accuracy_R of one rule."""
    return drawn_RQ @ rows.column("correct")[0] / drawn_RQ.sum(1)


def cost(rows: Rows, llm: Rows, drawn_RQ: np.ndarray) -> np.ndarray:
    """Return cost_R of one rule: bytes at batch 1, relative to the LLM alone."""
    own_R, llm_R = (drawn_RQ @ each.column("bytes")[0] for each in (rows, llm))
    return own_R / llm_R


def risk(rows: Rows, llm: Rows, drawn_RQ: np.ndarray) -> np.ndarray:
    """Return risk_R of one rule: P(routed wrong | LLM right). It is 0 if the LLM is never right."""
    right_Q = llm.column("correct")[0]
    lost_R = drawn_RQ @ (right_Q * (1 - rows.column("correct")[0]))
    return lost_R / np.maximum(drawn_RQ @ right_Q, 1)
