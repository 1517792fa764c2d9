"""Check the labels of every case by finished answers: how often is a label wrong?

    python -m benchmarks.label_audit        # after `citer run`

Up to TOKENS tokens of each case and task are taken from the preference split. Both models' tokens
are finished at each of them: by router 1 under `label.rule`, as the labels of iteration 2 are made,
and by the LLM alone. Decoding is greedy. A token has one of four classes: its answer ends right
after the SLM's token only, after the LLM's only, after both, or after neither.

A label 1 is wrong if only the LLM's token ends right. A label 0 is wrong (too strict) if the SLM's
token ends right. Where both tokens are equal there is nothing to choose, and no label is wrong.
Contested tokens have the labels of router 1's rollouts, which are right by definition when router 1
finishes.

A finished answer is one draw. `stable` is the share of tokens whose label by rollout stays the same
over the sampled rollouts of `benchmarks.stability`. Intervals are Wilson's. Writes
`benchmarks/results/label_audit.{json,md}`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.stability import TRIES, Sampled, stability
from benchmarks.workshop import Workshop
from citer.data.tasks import task_label
from citer.data.tasks.grading import assess
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy, routed
from citer.evaluation.metrics import share_interval
from citer.labelling.calibration import sample
from citer.labelling.contests import Branch
from citer.labelling.labeller import Labeller
from citer.labelling.preference import WITHOUT_OUTCOME
from citer.labelling.rollout import Rollout, finished
from citer.models.bundle import read_bundle
from citer.progress import progress
from citer.stages import paths
from citer.storage.tables import write_json, write_text

TOKENS = 500  # of each case and task
FINISHERS = ROUTER, LLM = "router 1", "LLM"
CHOICES = ("slm_right, other token", "llm_right", "contested")  # the models' tokens differ
KINDS = ("slm_right, same token", *CHOICES, "same_wrong")
CLASSES = ("only SLM's", "only LLM's", "both", "neither")  # tokens that end right
RESULTS = Path("benchmarks/results")


class Ends(NamedTuple):
    """Whether the answers after each of N tokens of both models end right."""

    slm_N: np.ndarray
    llm_N: np.ndarray

    @property
    def label_N(self) -> np.ndarray:
        """The labels by rollout: 0 if only the LLM's token ends right, else 1."""
        return np.where(~self.slm_N & self.llm_N, 0, 1)

    def audit(self, label_N: np.ndarray) -> dict[str, int]:
        """Count the labels that contradict the finished answers, and the tokens of each class."""
        wrong_N = np.where(label_N == 1, ~self.slm_N & self.llm_N, self.slm_N)
        class_N = np.select(
            [self.slm_N & ~self.llm_N, ~self.slm_N & self.llm_N, self.slm_N & self.llm_N],
            CLASSES[:3],
            CLASSES[3],
        )
        counts = {name: int((class_N == name).sum()) for name in CLASSES}
        return {"wrong": int(wrong_N.sum()), **counts}


@dataclass(frozen=True)
class Auditor:
    """Finishes the answers of one task's tokens."""

    shop: Workshop
    policy: Policy  # of the labels

    def study(self) -> dict[str, Any]:
        """Audit the labels of each kind of token, and measure their stability."""
        audited = {}
        with progress("label audit", len(KINDS), "kinds of tokens") as advance:
            for kind, rows in self._kinds():
                audited[kind] = self._audited(kind, rows)
                advance(1)
        return audited

    def _kinds(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield all tokens of each kind: of `slm_right`, by whether the models agree."""
        tokens = self.shop.tokens
        case_N = self._labeller.cases(tokens)
        same_N = tokens["slm_token"].to_numpy() == tokens["llm_token"].to_numpy()
        for kind in KINDS:
            case, *rest = kind.split(", ")
            of_kind_N = same_N == (rest == ["same token"]) if rest else True
            if len(rows := tokens.filter((case_N == case) & of_kind_N)):
                yield kind, rows

    def _audited(self, kind: str, every: pa.Table) -> dict[str, Any]:
        case = kind.split(",")[0]
        rows = sample(self._labeller, every, TOKENS, case)
        by = {ROUTER: self._ends(rows, self.policy), LLM: self._ends(rows, LLM_ALONE)}
        given = WITHOUT_OUTCOME.get(case)
        label_N = by[ROUTER].label_N if given is None else np.full(len(rows), given.label)
        return {
            "all": len(every),
            "tokens": len(rows),
            "finished by": {name: each.audit(label_N) for name, each in by.items()},
            "stability": self._stability(rows) if kind in CHOICES else None,
        }

    def _stability(self, rows: pa.Table) -> dict[str, float]:
        engines = (cast(Engine, Sampled(self.shop.engine, n)) for n in range(TRIES))
        return stability(np.stack([self._ends(rows, self.policy, e).label_N for e in engines]))

    @cached_property
    def _labeller(self) -> Labeller:
        rollout = Rollout(self.shop.engine, self.policy, self.shop.params.label.tie)
        return Labeller(self.shop.preference, self.shop.examples, rollout, iteration=2)

    def _ends(self, rows: pa.Table, policy: Policy, engine: Engine | None = None) -> Ends:
        """Finish the answers after both models' tokens. Equal tokens end alike."""
        engine = engine or self.shop.engine
        slm, llm = (self._branches(rows, name) for name in ("slm_token", "llm_token"))
        differ = [n for n, (one, other) in enumerate(zip(slm, llm, strict=True)) if one != other]
        slm_N = right(slm, engine, policy)
        llm_N = slm_N.copy()
        llm_N[differ] = right([llm[n] for n in differ], engine, policy)
        return Ends(slm_N, llm_N)

    def _branches(self, rows: pa.Table, model: str) -> list[Branch]:
        columns = (rows[name].to_pylist() for name in ("problem_id", "position", model))
        return [
            Branch(self.shop.preference[key], self.shop.examples[key], position, token)
            for key, position, token in zip(*columns, strict=True)
        ]


def right(branches: Sequence[Branch], engine: Engine, policy: Policy) -> np.ndarray:
    """Finish the branches, and return right_N. An answer that is cut off is wrong."""
    right_N = np.zeros(len(branches), bool)
    for index, text in finished(branches, engine, policy):
        right_N[index] = text is not None and assess(branches[index].problem, text).correct
    return right_N


def overall(by_kind: Mapping[str, Mapping[str, Any]], finisher: str) -> float:
    """Estimate the share of wrong labels among all tokens, from the shares of the kinds."""
    rates = {
        kind: each["finished by"][finisher]["wrong"] / each["tokens"]
        for kind, each in by_kind.items()
    }
    wrong = sum(by_kind[kind]["all"] * rate for kind, rate in rates.items())
    return wrong / sum(each["all"] for each in by_kind.values())


def as_table(by_task: Mapping[str, Mapping[str, Any]]) -> Table:
    """Format a row for each kind. The classes are those of answers that router 1 finishes."""
    table = Table(box=box.MARKDOWN)
    wrong = (f"label wrong, {name} finishes" for name in FINISHERS)
    headings = ("task", "tokens", "of", "checked", *wrong, *CLASSES, "stable")
    for heading in headings:
        table.add_column(heading)
    for task, by_kind in by_task.items():
        for kind, each in by_kind.items():
            table.add_row(task_label(task), kind, *_cells(each))
    return table


def _cells(each: Mapping[str, Any]) -> Iterator[str]:
    tokens = each["tokens"]
    yield from (f"{each['all']:,}", str(tokens))
    for name in FINISHERS:
        wrong = each["finished by"][name]["wrong"]
        low, high = share_interval(wrong, tokens)
        yield f"{wrong / tokens:.1%} [{low:.1%}, {high:.1%}]"
    yield from (f"{each['finished by'][ROUTER][name] / tokens:.1%}" for name in CLASSES)
    yield f"{each['stability']['stable']:.1%}" if each["stability"] else ""


def main() -> None:
    shop = Workshop.open()
    router, _ = read_bundle(paths.router(1))
    rule = shop.params.label.rule
    policy = routed(router.to(shop.pair.slm.device), rule)
    by_task = {task: Auditor(shop.only([task]), policy).study() for task in shop.tasks}
    wrong = {
        task: {name: overall(by_kind, name) for name in FINISHERS}
        for task, by_kind in by_task.items()
    }
    content = {"rule": str(rule), "tries": TRIES, "wrong of all labels": wrong, "tasks": by_task}
    write_json(RESULTS / "label_audit.json", content)
    text = StringIO()
    Console(file=text, width=190).print(as_table(by_task))
    write_text(RESULTS / "label_audit.md", text.getvalue())
    print(text.getvalue(), wrong)


if __name__ == "__main__":
    main()
