"""Fit a run into a budget of minutes: settings to reduce, in an order, and what each saves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from citer.config.params import Params
from citer.errors import InputError
from citer.evaluation.choice import least_questions
from citer.pairs.forecast import FACTOR, Workload, about
from citer.progress import say
from citer.storage.tables import PARTIAL, read_as, write_json, write_text
from citer.storage.yaml_file import edited

PACE = PARTIAL / "pace.json"  # the last probe's; it depends on the machine, so DVC has none of it
DEAREST = 3  # settings that the forecast names
Changes = Mapping[str, Any]  # values by key, as `evaluate.bounds`


class Cut(NamedTuple):
    """Changes of params.yaml, and the minutes that they save."""

    changes: Changes
    saved: float

    def __str__(self) -> str:
        named = ", ".join(f"{key}: {_in_yaml(value)}" for key, value in self.changes.items())
        return f"{named} (saves {about(self.saved)})"


class Plan(NamedTuple):
    """The cuts that fit a run into a budget, and the forecast after them."""

    cuts: Sequence[Cut]
    minutes: float

    def show(self) -> None:
        """Print the cuts and the forecast."""
        for cut in self.cuts:
            say(f"params.yaml: {cut}")
        say(f"the run takes {in_range(self.minutes)}")

    @property
    def changes(self) -> Changes:
        return {key: value for cut in self.cuts for key, value in cut.changes.items()}


def keep(work: Workload) -> None:
    """Keep what a probe has measured, for the budget of a run."""
    write_json(PACE, asdict(work))


def plan_of(params: Params, minutes: float) -> Plan:
    """Plan a run by the last probe on this machine.

    Raises InputError if there was none, or if no cut is enough.
    """
    if not PACE.exists():
        raise InputError("--minutes: this machine's pace is not known; run `dvc repro probe` first")
    found = plan(read_as(PACE, Workload), params, minutes)
    if found.minutes > minutes:
        raise InputError(
            f"--minutes: {minutes:g}: expected {found.minutes:,.0f} or more, with all that can be "
            "left out; the rule that `citer probe` prints needs no run"
        )
    return found


def fit(params: Params, minutes: float) -> Plan:
    """Plan a run, and write the plan's settings to params.yaml. Raises InputError."""
    found = plan_of(params, minutes)
    path = Path("params.yaml")
    write_text(path, edited(path, found.changes))
    return found


def plan(work: Workload, params: Params, minutes: float) -> Plan:
    """Cut until the forecast fits, or until there is nothing left to cut."""
    made: list[Cut] = []
    left = total(work, params)
    for changes in _changes(work, params):
        if left <= minutes:
            break
        params = changed(params, changes)
        now = total(work, params)
        if now < left:
            made.append(Cut(changes, left - now))
        left = now
    return Plan(made, left)


def dearest(work: Workload, params: Params) -> list[Cut]:
    """Return the cuts that save most, each by itself."""
    whole = total(work, params)
    cuts = [
        Cut(each, whole - total(work, changed(params, each))) for each in _changes(work, params)
    ]
    return sorted(cuts, key=lambda cut: -cut.saved)[:DEAREST]


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
    """Yield changes in the order of what they spoil: at first what no deployed rule needs.

    A later one may replace an earlier one of the same key.
    """
    evaluate = params.evaluate
    enough = 3 * least_questions(evaluate.epsilon, evaluate.delta)
    yield {"evaluate.bounds": []}
    yield {"iterations": {"1": {"previous": "0"}}}
    yield {"references.most": _most(work, params, test=200)}
    if params.label.method != "suffix":
        yield {"label.method": "suffix"}
    coarse = ("llm_fractions", "risks")
    yield {f"evaluate.{name}": [*_thinned(getattr(evaluate, name))] for name in coarse}
    yield {"references.most": _most(work, params, test=200, preference=200, validation=enough)}
    yield {"references.most": _most(work, params, test=100, preference=100, validation=enough)}


def _thinned(values: Sequence[float]) -> Sequence[float]:
    """Return every second value, and the last one: the models alone stay."""
    return values[::2] if len(values) % 2 else [*values[:-1:2], values[-1]]


def _most(work: Workload, params: Params, **most: int) -> dict[str, int]:
    """Return limits of questions where there are more, and those that params.yaml has."""
    own = params.references.most.model_dump(exclude_none=True)
    lower = {name: min(n, own.get(name, n)) for name, n in most.items()}
    return own | {name: n for name, n in lower.items() if n < work.questions[name]}


def _in_yaml(value: Any) -> str:
    return str(value).replace("'", "")
