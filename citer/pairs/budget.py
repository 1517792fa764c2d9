"""Fit a run into a budget of minutes: settings to reduce, in an order, and what each saves."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from citer.config.params import Params
from citer.evaluation.choice import least_questions
from citer.pairs.forecast import FACTOR, Workload, about

DEAREST = 3  # settings that the forecast names
# The grids of a short run.
COARSE: Mapping[str, Sequence[float]] = {
    "llm_fractions": [0.0, 0.04, 0.06, 0.08, 0.15, 0.3, 1.0],
    "risks": [0.4, 0.6, 0.8, 0.9],
}
Changes = Mapping[str, Any]  # values by key, as `evaluate.bounds`


class Cut(NamedTuple):
    """Changes of params.yaml, and the minutes that they save."""

    changes: Changes
    saved: float

    def __str__(self) -> str:
        named = (f"{key}: {json.dumps(value)}" for key, value in self.changes.items())
        return f"{', '.join(named)} (saves {about(self.saved)})"


class Plan(NamedTuple):
    """The cuts that fit a run into a budget, and the forecast after them."""

    cuts: Sequence[Cut]
    minutes: float

    @property
    def changes(self) -> Changes:
        return {key: value for cut in self.cuts for key, value in cut.changes.items()}

    def lines(self) -> Iterator[str]:
        """Yield a line for each cut, and one with the forecast."""
        yield from (f"params.yaml: {cut}" for cut in self.cuts)
        yield f"the run takes {in_range(self.minutes)}"


def plan(work: Workload, params: Params, minutes: float) -> Plan:
    """Cut until the forecast fits, or until there is nothing left to cut."""
    made: list[Cut] = []
    left = total(work, params)
    for changes in _changes(work, params):
        if left <= minutes:
            break
        smaller = changed(params, changes)
        saved = left - total(work, smaller)
        if saved > 0:
            made.append(Cut(changes, saved))
            params, left = smaller, left - saved
    return Plan(made, left)


def dearest(work: Workload, params: Params) -> list[Cut]:
    """Return the cuts that save most, each by itself, and the best one of each key."""
    whole = total(work, params)
    cuts = (
        Cut(each, whole - total(work, changed(params, each))) for each in _changes(work, params)
    )
    best = {next(iter(cut.changes)): cut for cut in sorted(cuts, key=lambda cut: cut.saved)}
    saving = [cut for cut in best.values() if cut.saved > 0]
    return sorted(saving, key=lambda cut: -cut.saved)[:DEAREST]


def total(work: Workload, params: Params) -> float:
    """Return the forecast of a whole run in minutes."""
    return sum(work.minutes(params).values())


def in_range(minutes: float) -> str:
    """Format a forecast with its range: `about 30 min, between 15 and 60`."""
    return f"about {about(minutes)}, between {minutes / FACTOR:,.0f} and {minutes * FACTOR:,.0f}"


def changed(params: Params, changes: Changes) -> Params:
    """Return the settings with these changes."""
    content = params.model_dump(mode="json", by_alias=True)
    for key, value in changes.items():
        *sections, name = key.split(".")
        section = content
        for each in sections:
            section = section[each]
        section[name] = value
    return Params.model_validate(content)


def _changes(work: Workload, params: Params) -> Iterator[Changes]:
    """Yield changes, those that spoil least first. A later one may replace an earlier one.

    Validation and test keep three times as many questions as certify a rule that loses none.
    """
    evaluate = params.evaluate
    enough = 3 * least_questions(evaluate.epsilon, evaluate.delta)
    judged = {"validation": enough, "test": enough}
    yield {"evaluate.bounds": []}
    if len(params.iterations) > 1:
        yield {"iterations": {"1": {"previous": "0"}}}
    yield {"references.most": _most(work, params, test=max(200, enough))}
    if params.label.method != "suffix":
        yield {"label.method": "suffix"}
    for name, coarse in COARSE.items():
        if len(getattr(evaluate, name)) > len(coarse):
            yield {f"evaluate.{name}": coarse}
    if named := [name for name in evaluate.candidates if name != "any"]:
        yield {"evaluate.candidates": named}
    yield {"references.most": _most(work, params, **judged, preference=200, sft=1000)}
    yield {"references.most": _most(work, params, **judged, preference=100, sft=300)}


def _most(work: Workload, params: Params, **most: int) -> dict[str, int]:
    """Return limits of questions where there are more, and those that params.yaml has."""
    own = params.references.most.model_dump(exclude_none=True)
    lower = {name: min(n, own.get(name, n)) for name, n in most.items()}
    return own | {name: n for name, n in lower.items() if n < work.questions[name]}
