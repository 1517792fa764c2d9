"""Run methods on validation, which tests rules, and on test, which only reports."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from citer.config.params import DecodeParams, EvaluateParams
from citer.data.problems import Problem
from citer.data.references import judged
from citer.decoding.engine import Engine
from citer.decoding.policy import (
    LLM_ALONE,
    SLM_ALONE,
    always_slm,
    low_entropy,
    scorer_for,
)
from citer.evaluation.candidates import candidates, scorers_of
from citer.evaluation.evidence import Tried, held_out
from citer.evaluation.measure import ACCURACY, Conditions
from citer.evaluation.methods import ITERATIONS, MODELS, Kind, Style
from citer.evaluation.points import Findings, outcome_table, point_rows
from citer.evaluation.rivals import enlist
from citer.evaluation.rivals.rival import Alone, Lessons, Setting, by_score, quantiles
from citer.evaluation.sequence import worth_testing
from citer.evaluation.sweep import Line, Method, Run, sweep
from citer.executors.base import Executor
from citer.models.bundle import identity
from citer.models.pair import Pair
from citer.models.router import Router
from citer.models.sampling import Sampler
from citer.rule import LLM, Rule
from citer.storage.tables import digest

ALONE_LINES = tuple(
    Line(Method(name, always_slm, style=Style(Kind.ALONE, "#000000", "o")), [policy.rule])
    for name, policy in zip(MODELS, (SLM_ALONE, LLM_ALONE), strict=True)
)
# The SLM's own answers with its certainty, from which rivals take thresholds.
CERTAIN_LINE = Line(Method("slm", low_entropy), [SLM_ALONE.rule])
# Styles of the first iteration; `Findings.numbered` replaces them.
ROUTER, AUDITED = (Style(kind, *ITERATIONS[0]) for kind in (Kind.ROUTER, Kind.AUDITED))


@dataclass(frozen=True)
class Study:
    """A pair with its questions and settings. The `holdout` orders the rules of a router.

    Only jobs of `executor` run the models: this process may lack their weights.

    A sweep whose results are in `partial` is not run again. Use another folder for another router.
    """

    executor: Executor
    pair: Pair
    validation: Sequence[Problem]
    test: Sequence[Problem]
    params: EvaluateParams
    decode: DecodeParams
    seed: int
    partial: Path
    holdout: Sequence[Problem] = ()

    @cached_property
    def conditions(self) -> Conditions:
        questions = [*self.validation, *self.test]
        return Conditions.of(questions, self.params.sampling, identity(self.pair))

    @cached_property
    def alone_runs(self) -> list[list[Run]]:
        """Runs of the SLM alone, of the LLM alone, and of `CERTAIN_LINE` on validation."""
        return self._sweep(self.validation, [*ALONE_LINES, CERTAIN_LINE])

    def alone_on(self, problems: Sequence[Problem]) -> Alone:
        return Alone(*_runs(self._sweep(problems, ALONE_LINES)))

    def rivals(self, lessons: Lessons | None = None) -> Findings:
        """Run each model alone on both splits and, on test, the rivals that `params` lists.

        Those that learn are left out without `lessons`. Nothing is chosen or learnt on test. Rules
        that are not worth a test are left out, as those of a router are.
        """
        rivals = list(enlist(self.setting, lessons))
        lines, _ = self._screened([rival.line for rival in rivals])
        slm, llm, *decoded = self._sweep(self.test, [*ALONE_LINES, *lines])
        alone = Alone(*slm, *llm)
        finished = (rival.finish(runs, alone) for rival, runs in zip(rivals, decoded, strict=True))
        tested = [*alone, *_runs(finished)]
        outcomes = outcome_table([*_runs(self.alone_runs[:-1]), *tested])
        return Findings(outcomes, point_rows(tested, self.params))

    @property
    def setting(self) -> Setting:
        """What all rivals have in common."""
        [certain] = self.alone_runs[-1]
        return Setting(self.executor, self.pair, self.params, self._sampler, certain.scores)

    def router(self, router: Router, taus: Sequence[float], rivals: Findings) -> Findings:
        """Run every rule on the held-out questions, and those worth a test on the other splits.

        They are worth it whatever the promise is. The outcomes hold all that
        `evidence.choose_rules` needs.
        Raises InputError if the router lacks a head that a rule needs.
        """
        lines = [*self.presets(router, taus), *self._candidates(router)]
        kept, held = self._screened(lines)
        validated, tested = (_runs(self._sweep(s, kept)) for s in (self.validation, self.test))
        outcomes = pa.concat_tables([held, outcome_table([*validated, *tested])])
        return Findings(outcomes, point_rows(tested, self.params, rivals.points))

    def _screened(self, lines: Sequence[Line]) -> tuple[list[Line], pa.Table]:
        """Keep the rules of each method that are worth a test, by the held-out questions.

        Returns also the outcomes of these rules and of the LLM on the held-out questions.
        """
        if not (questions := self._gradable(self.holdout)):
            return list(lines), outcome_table([])
        *ours, [llm] = self._sweep(questions, [*lines, ALONE_LINES[-1]])
        tried: dict[str, list[Tried]] = {}
        for method, rules in lines:
            tried.setdefault(method.name, []).extend(Tried(method.name, rule) for rule in rules)
        seen = held_out(outcome_table([*_runs(ours), llm]), tried.values())
        worth = {
            own[number]
            for own, found in zip(tried.values(), seen, strict=True)
            for number in worth_testing(found)
        }
        kept = [
            Line(method, [rule for rule in rules if Tried(method.name, rule) in worth])
            for method, rules in lines
        ]
        runs = (run for run in _runs(ours) if Tried(run.method, run.rule) in worth)
        return kept, outcome_table([*runs, llm])

    def _gradable(self, problems: Sequence[Problem]) -> list[Problem]:
        """Return the problems, with the LLM's own answers where there is none to grade against.

        If the study measures fidelity, all get the LLM's. Answers that are cut off are left out.
        """
        by_answer = self.conditions.measure is ACCURACY
        given = [p for p in problems if by_answer and p.answer is not None]
        asked = [p for p in problems if not by_answer or p.answer is None]
        if not asked:
            return given
        [[llm]] = self._sweep(asked, ALONE_LINES[1:])
        for own in llm.results:
            given += judged(own.problem, None if own.truncated else self.pair.text(own.token_ids))
        return given

    def presets(self, router: Router, taus: Sequence[float]) -> list[Line]:
        """Make the lines of CITER over τ, and of audited routing over ρ for each β.

        Each line starts with its safest rule.
        """
        lines: list[Line] = []
        if "citer" in self.params.candidates:
            rules = by_score(sorted((tau for tau in taus if 0 < tau < 1), reverse=True))
            lines.append(Line(Method.of("router", scorer_for(router, LLM), ROUTER), rules))
        if "audited" in self.params.candidates and self.params.risks:
            for audit in self.params.audits:
                rules = [Rule("risk", at, audit) for at in sorted(self.params.risks, reverse=True)]
                scorer = scorer_for(router, rules[0])
                lines.append(Line(Method.of("audited", scorer, AUDITED), rules))
        return lines

    def _candidates(self, router: Router) -> list[Line]:
        """Make the lines of all scorers. τ are quantiles of scores in the SLM's own answers."""
        if "any" not in self.params.candidates or not self.holdout:
            return []
        scorers = scorers_of(router)
        alone = [Line(Method.of("slm", each), [SLM_ALONE.rule]) for each in scorers.values()]
        taus = {
            name: quantiles(own.scores, self.params.fractions)
            for name, [own] in zip(scorers, self._sweep(self.holdout, alone), strict=True)
        }
        return candidates(scorers, taus, self.params)

    def _sweep(self, problems: Sequence[Problem], lines: Sequence[Line]) -> list[list[Run]]:
        names = dict.fromkeys(line.method.name for line in lines)
        rules = digest(*(str(rule) for line in lines for rule in line.rules))
        folder = self.partial / "-".join([problems[0].split, *names, rules[:7]])
        return sweep(self.executor, self._engine, problems, lines, folder, self._sampler)

    @property
    def _sampler(self) -> Sampler:
        return Sampler(self.params.sampling, self.seed)

    @cached_property
    def _engine(self) -> Engine:
        return Engine(self.pair, self.decode.slots, self.decode.max_new_tokens, delayed=True)


def study_stamp(
    identity: dict[str, Any],
    problems: Sequence[Problem],
    params: EvaluateParams,
    decode: DecodeParams,
    seed: int,
) -> dict[str, Any]:
    """The stamp of a study of the pair with this `identity`, on all its questions.

    Raises InputError if the questions are not all of one measure.
    """
    conditions = Conditions.of(problems, params.sampling, identity)
    questions = (problem.problem_id for problem in problems)
    settings = {"seed": seed, "max_new_tokens": decode.max_new_tokens}
    return identity | settings | {"problems": digest(*questions)} | conditions.stamp


def _runs(lines: Iterable[Sequence[Run]]) -> list[Run]:
    return [run for line in lines for run in line]
