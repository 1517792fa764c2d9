"""Answer held-out questions, validation and test by all candidates.

The held-out questions of the preference split give thresholds, and choose the rules that are worth
a test. Validation tests rules, and test only reports.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from citer.config.params import Params
from citer.data.problems import Problem
from citer.data.references import judged
from citer.decoding.engine import Engine
from citer.decoding.lookup import PAYS, copies, share
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Scorer
from citer.evaluation.bounds import Alone, Lessons, bound_runs
from citer.evaluation.candidates import candidates, quantiles
from citer.evaluation.choice import compared, worth_testing
from citer.evaluation.cost import Batch, cap, counted, schedules
from citer.evaluation.measure import ACCURACY, Conditions, Measure
from citer.evaluation.methods import MODELS, Kind, Style
from citer.evaluation.points import Findings, outcome_table, point_rows
from citer.evaluation.sweep import Line, Run, request, sweep
from citer.executors.base import Executor
from citer.models.pair import Pair
from citer.models.sampling import Sampler
from citer.progress import say
from citer.rule import Drafter
from citer.storage.tables import digest

ALONE_LINES = tuple(
    Line(name, policy.scorer, [policy.rule], Style(Kind.ALONE, "#000000", "o"))
    for name, policy in zip(MODELS, (SLM_ALONE, LLM_ALONE), strict=True)
)


@dataclass(frozen=True)
class Study:
    """A pair with its questions and settings, and the place where it will serve.

    Only jobs of `executor` run the models: this process may lack their weights.

    A sweep whose results are in `partial` is not run again. Use another folder for another router.
    """

    executor: Executor
    pair: Pair
    validation: Sequence[Problem]
    test: Sequence[Problem]
    holdout: Sequence[Problem]
    measure: Measure
    params: Params
    partial: Path

    @cached_property
    def batches(self) -> list[Batch]:
        """The batches for which points have the cost."""
        return counted(self.params.evaluate, self.params.serve)

    def alone_on(self, problems: Sequence[Problem]) -> Alone:
        """Run each model by itself: together, a forward would have half of the rows."""
        return Alone(*(run for line in ALONE_LINES for run in self.answered(problems, [line])[0]))

    def fixed(
        self, scorers: Mapping[str, Scorer], lessons: Callable[[], Lessons] | None = None
    ) -> Findings:
        """Run what is the same for all iterations.

        These are each model alone, the bounds that `params` lists, and the candidates with these
        scorers. The bound that learns is left out without `lessons`. Nothing is chosen or learnt on
        test.
        """
        alone = self.alone_on(self.test)
        bounds = bound_runs(self, alone, lessons)
        before = [*self._alone_held_out, *self.alone_on(self.validation)]
        found = self._found([*before, *alone, *bounds])
        return found.joined(self.candidates(scorers, found))

    def candidates(self, scorers: Mapping[str, Scorer], fixed: Findings) -> Findings:
        """Run every rule on the held-out questions, and those worth a test on the other splits.

        They are worth it whatever the promise is. `fixed` has the LLM's own points.
        """
        given = scorers, self.taus(scorers), self.params.evaluate
        lines = candidates(*given, self._drafters, cap(self.params.serve))
        if not lines:
            return Findings(outcome_table([]), [])
        kept, runs = self._screened(lines)
        for split in (self.validation, self.test):
            runs += chain.from_iterable(self.answered(split, kept))
        return self._found(runs, fixed)

    def _found(self, runs: Sequence[Run], fixed: Findings | None = None) -> Findings:
        earlier = fixed.points if fixed else ()
        return Findings(outcome_table(runs), point_rows(runs, self.batches, earlier))

    def taus(self, scorers: Mapping[str, Scorer]) -> dict[str, list[float]]:
        """Return quantiles of each scorer's scores in the SLM's own answers."""
        alone = [Line("slm", each, [SLM_ALONE.rule]) for each in scorers.values()]
        taus = {}
        for name, [own] in zip(scorers, self.answered(self.holdout, alone), strict=True):
            scores = [score for result in own.results for score in result.scores]
            taus[name] = quantiles(scores, self.params.evaluate.fractions)
        return taus

    @cached_property
    def _drafters(self) -> list[Drafter]:
        """All drafters if the LLM's held-out answers repeat earlier text, else the SLM alone.

        vLLM has its own lookup.
        """
        if self.params.serve.engine == "vllm" or not self._gradable:
            return ["slm"]
        [llm] = self._alone_held_out
        asked = ((request(each.problem, self.pair, self.sampler), each) for each in llm.results)
        found = (copies(own.prompt_ids, each.token_ids) for own, each in asked)
        copied = share([*chain.from_iterable(found)])
        tried = "tried" if copied >= PAYS else f"not tried below {PAYS:.0%}"
        say(f"lookup: copies {copied:.1%} of the LLM's tokens on held-out questions; {tried}")
        return ["slm", "lookup", "both"] if copied >= PAYS else ["slm"]

    def _screened(self, lines: Sequence[Line]) -> tuple[list[Line], list[Run]]:
        """Keep the rules of each line that are worth a test, with their held-out runs."""
        if not self._gradable:
            return list(lines), []
        [llm] = self._alone_held_out
        kept, worth = [], list[Run]()
        for line, runs in zip(lines, self.answered(self._gradable, lines), strict=True):
            seen = [compared(run, llm, schedules(self.params.serve)) for run in runs]
            numbers = worth_testing(seen)
            kept.append(line._replace(rules=[line.rules[number] for number in numbers]))
            worth += [runs[number] for number in numbers]
        return kept, worth

    @cached_property
    def _alone_held_out(self) -> list[Run]:
        """The LLM's run on the held-out questions, empty if none can be graded."""
        return self.answered(self._gradable, ALONE_LINES[1:])[0] if self._gradable else []

    @cached_property
    def _gradable(self) -> list[Problem]:
        """The held-out questions, with the LLM's own answers where there is none to grade against.

        If the study measures fidelity, all get the LLM's. Answers that are cut off are left out.
        """
        by_answer = self.measure is ACCURACY
        given = [p for p in self.holdout if by_answer and p.answer is not None]
        asked = [p for p in self.holdout if not by_answer or p.answer is None]
        if not asked:
            return given
        [[llm]] = self.answered(asked, ALONE_LINES[1:])
        for own in llm.results:
            given += judged(own.problem, None if own.truncated else self.pair.text(own.token_ids))
        return given

    def answered(self, problems: Sequence[Problem], lines: Sequence[Line]) -> list[list[Run]]:
        """Return a run for each rule of each line."""
        names = dict.fromkeys(line.method for line in lines)
        rules = (f"{line.method} {rule}" for line in lines for rule in line.rules)
        own = digest(*rules, *map(repr, problems))  # held-out questions may get other answers
        folder = self.partial / "-".join([problems[0].split, *names, own[:7]])
        return sweep(self.executor, self._engine, problems, lines, folder, self.sampler)

    @property
    def sampler(self) -> Sampler:
        return Sampler(self.params.evaluate.sampling, self.params.seed)

    @cached_property
    def _engine(self) -> Engine:
        decode = self.params.decode
        return Engine(self.pair, decode.slots, decode.max_new_tokens, delayed=True)


def study_stamp(
    identity: dict[str, Any], problems: Sequence[Problem], conditions: Conditions, params: Params
) -> dict[str, Any]:
    """The stamp of a study of the pair with this `identity`, on all its questions."""
    questions = digest(*(problem.problem_id for problem in problems))
    limit = params.decode.max_new_tokens
    settings = {"seed": params.seed, "max_new_tokens": limit, "problems": questions}
    return identity | settings | conditions.fields
