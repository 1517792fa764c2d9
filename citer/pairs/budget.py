"""A rough forecast of a run from the pace of each model alone, and the settings that shorten it."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log
from typing import Any, NamedTuple

from citer.config.params import EvaluateParams, Params
from citer.data.splits import MOST as MOST_HELD_OUT
from citer.evaluation.choice import least_questions
from citer.evaluation.methods import INPUTS, SCORERS

# Guesses. They depend on the pair, and no model has been trained yet.
CONTESTED = 0.1  # share of the reference tokens that `label` decides by two rollouts
TESTED = 0.2  # share of the rules that are worth a test
LEARNING = 3  # times as long as reading a token takes learning from it
CALIBRATED = 200  # contested tokens that are rolled out for `suffix`
FACTOR = 2.0  # by which the truth may be above or below the forecast

LEAST_RIGHT = 0.2  # share of the answers that the LLM is taken to have right, at least
WORTH = 0.05  # share of the budget that a cut saves at least
DEAREST = 3  # settings that the forecast names
# The grids of a short run.
COARSE: Mapping[str, Sequence[float]] = {
    "llm_fractions": [0.0, 0.04, 0.06, 0.08, 0.15, 0.3, 1.0],
    "risks": [0.4, 0.6, 0.8, 0.9],
}
Changes = Mapping[str, Any]  # values by key, as `evaluate.bounds`


class Pace(NamedTuple):
    """A model's seconds per token, for prompts and for answers."""

    prompt: float
    answer: float


@dataclass(frozen=True)
class Workload:
    """Questions per split, the mean tokens of a prompt and of an answer, each model's pace.

    The LLM writes the answers of `written` for the stage `references`. Rollouts label the `graded`
    preference questions. The answer is the LLM's, since a finetuned SLM writes about as much. An
    exact rule takes `routed` times as long as the LLM alone, which has the share `right` of its
    answers right. Rules share tokens: n of them together take 1 + `growth` · ln n times as long as
    one.
    """

    questions: Mapping[str, int]
    written: Mapping[str, int]
    graded: int
    prompt: float
    answer: float
    slm: Pace
    llm: Pace
    routed: float
    growth: float
    right: float = 1.0

    def minutes(self, params: Params) -> dict[str, float]:
        """Return the minutes of the long stages, over all iterations."""
        kept = {name: params.references.kept(name, n) for name, n in self.questions.items()}
        preference, test = kept["preference"], kept["test"]
        judged = kept["validation"] + test
        share = {name: kept[name] / max(1, n) for name, n in self.questions.items()}
        written = sum(share[name] * n for name, n in self.written.items())
        held_out = min(params.train.holdout * preference, MOST_HELD_OUT)
        rows = 2 if params.references.source == "both" else 1  # of a question
        learnt = params.finetune.epochs * rows * kept["sft"]
        bounds = params.evaluate.bounds
        alone = judged + preference * ("query" in bounds)
        fixed, new = _rules(params.evaluate)
        graded = round(share["preference"] * self.graded)
        by_suffix = preference if params.label.method == "suffix" else preference - graded
        labels = rows * self._label(preference, graded, by_suffix)
        read = (self.prompt + self.answer) * self.slm.prompt  # by the SLM
        seconds = {
            "references": written * self._alone(self.llm),
            "score_llm": rows * preference * (self.prompt + self.answer) * self.llm.prompt,
            "finetune": LEARNING * learnt * read,
            "rivals": alone * (self._alone(self.slm) + self._alone(self.llm))
            + test * (("random" in bounds) * self._by_rule + ("oracle" in bounds) * read)
            + self._tried(fixed, judged, held_out),
            "label": len(params.iterations) * labels,
            "evaluate": len(params.iterations) * self._tried(new, judged, held_out),
        }
        return {stage: total / 60 for stage, total in seconds.items()}

    def _tried(self, rules: int, judged: float, held_out: float) -> float:
        """Seconds of all rules on held-out questions, and of those worth a test on the others."""
        if not rules:
            return 0.0
        tested = max(1.0, TESTED * rules)
        times = (n * (1 + self.growth * log(m)) for n, m in ((judged, tested), (held_out, rules)))
        return sum(times) * self._by_rule

    def _label(self, questions: float, graded: float, by_suffix: float) -> float:
        """Seconds of rollouts and of `suffix`, which is calibrated by rollouts where it is used."""
        contested = CONTESTED * self.answer  # of a question
        calibrating = min(graded, CALIBRATED / max(contested, 1)) if by_suffix else 0
        # Two rollouts for each contested token, of half an answer on average.
        rolled_out = (questions - by_suffix + calibrating) * contested
        # The LLM reads twice up to the contested tokens, and the rest of an answer after each.
        read = 2 * (self.prompt + self.answer) + contested * self.answer
        read *= min(questions, by_suffix + calibrating) * self.llm.prompt
        return rolled_out * self._alone(self.slm) + read  # the LLM writes little in a rollout

    def _alone(self, pace: Pace) -> float:
        """Seconds per answer."""
        return self.prompt * pace.prompt + self.answer * pace.answer

    @property
    def _by_rule(self) -> float:
        """Seconds per answer."""
        return self.routed * self._alone(self.llm)


def _rules(evaluate: EvaluateParams) -> tuple[int, int]:
    """Count the rules of all iterations together, and those of the heads of one iteration."""
    from citer.evaluation.candidates import UNTRAINED, candidates  # loads torch

    def count(names: Iterable[str]) -> int:
        scorers = dict.fromkeys(names, UNTRAINED[""])
        lines = candidates(scorers, dict.fromkeys(scorers, evaluate.fractions), evaluate)
        return sum(len(line.rules) for line in lines)

    return count({*UNTRAINED, *SCORERS} - INPUTS.keys()), count(INPUTS)


def in_words(minutes: Mapping[str, float]) -> str:
    """Format minutes by stage: `rivals 3 min, label under 1 min`."""
    return ", ".join(f"{stage} {about(number)}" for stage, number in minutes.items())


def about(minutes: float) -> str:
    """Format a number of minutes."""
    return f"{minutes:,.0f} min" if minutes >= 1 else "under 1 min"


class Cut(NamedTuple):
    """Changes of params.yaml, and the minutes that they save."""

    changes: Changes
    saved: float

    def __str__(self) -> str:
        named = (f"{key}: {json.dumps(value)}" for key, value in self.changes.items())
        return f"{', '.join(named)} (saves {about(self.saved)})"


class Plan(NamedTuple):
    """The cuts that fit a run into a budget, and the minutes of its long stages after them."""

    cuts: Sequence[Cut]
    stages: Mapping[str, float]

    @property
    def minutes(self) -> float:
        return sum(self.stages.values())

    @property
    def changes(self) -> Changes:
        return {key: value for cut in self.cuts for key, value in cut.changes.items()}

    def lines(self) -> Iterator[str]:
        """Yield a line for each cut, and one with the forecast."""
        yield from (f"params.yaml: {cut}" for cut in self.cuts)
        yield f"the run takes {in_range(self.minutes)}"


def plan(work: Workload, params: Params, minutes: float) -> Plan:
    """Cut until the forecast fits, or until there is nothing left to cut.

    Cuts that save little are made only if the others do not suffice.
    """
    found = _plan(work, params, minutes, WORTH * minutes)
    return found if found.minutes <= minutes else _plan(work, params, minutes, 0)


def _plan(work: Workload, params: Params, minutes: float, least: float) -> Plan:
    made: list[Cut] = []
    left = total(work, params)
    for changes in _changes(work, params):
        if left <= minutes:
            break
        smaller = changed(params, changes)
        saved = left - total(work, smaller)
        if saved > least:
            made.append(Cut(changes, saved))
            params, left = smaller, left - saved
    return Plan(made, work.minutes(params))


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
    return f"about {minutes:,.0f} min, between {minutes / FACTOR:,.0f} and {minutes * FACTOR:,.0f}"


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

    Validation keeps twice as many questions as certify a rule that loses none, of which the LLM has
    only the share `work.right` right. So does test. At last, first test and then validation keep a
    quarter more than certify such a rule.
    """
    evaluate = params.evaluate
    needed = least_questions(evaluate.epsilon, evaluate.delta)
    least = ceil(needed / max(work.right, LEAST_RIGHT))
    enough, few = 2 * least, ceil(1.25 * least)
    judged = {"validation": enough, "test": enough}
    yield {"evaluate.bounds": []}
    if len(params.iterations) > 1:
        yield {"iterations": {"1": {"previous": "0"}}}
    yield {"references.most": _most(work, params, test=max(200, enough))}
    for name, coarse in COARSE.items():
        if len(getattr(evaluate, name)) > len(coarse):
            yield {f"evaluate.{name}": coarse}
    if named := [name for name in evaluate.candidates if name != "any"]:
        yield {"evaluate.candidates": named}
    yield {"references.most": _most(work, params, **judged, preference=200, sft=1000)}
    for test, validation in ((enough, enough), (few, enough), (few, few)):
        kept = {"test": test, "validation": validation, "preference": 100, "sft": 300}
        yield {"references.most": _most(work, params, **kept)}


def _most(work: Workload, params: Params, **most: int) -> dict[str, int]:
    """Return limits of questions where there are more, and those that params.yaml has."""
    own = {name: n for name, n in params.references.most.items() if n}
    lower = {name: min(n, own.get(name, n)) for name, n in most.items()}
    return own | {name: n for name, n in lower.items() if n < work.questions[name]}
