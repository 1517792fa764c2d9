"""Which methods are run on which split, and what each split may decide."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from citer.config import EvaluateParams
from citer.data.problems import Problem
from citer.decoding.delay import usual_llm_batch
from citer.decoding.engine import Engine
from citer.evaluation.points import Findings, Row, outcome_rows, point_rows
from citer.evaluation.rivals import certainty, random
from citer.evaluation.sweep import Method, Run, sweep
from citer.evaluation.threshold import Candidate, Threshold, choose
from citer.io import digest
from citer.models.bundle import identity
from citer.models.pair import Pair
from citer.models.router import Router


@dataclass(frozen=True)
class Study:
    """A pair, the questions that it is asked, and how."""

    pair: Pair
    validation: Sequence[Problem]
    test: Sequence[Problem]
    params: EvaluateParams

    @cached_property
    def stamp(self) -> dict[str, Any]:
        """What two studies must have in common for their rows to be compared."""
        asked = (problem.problem_id for problem in (*self.validation, *self.test))
        settings = self.params.model_dump(mode="json", include={"seed", "max_new_tokens"})
        return identity(self.pair) | settings | {"problems": digest(*asked)}

    def rivals(self) -> Findings:
        """The methods without a router: each model alone, and, on test, entropy and random.

        Entropy thresholds lie where the scores of the SLM's own answers on validation have the
        target LLM fractions. Chance gets a third of those: its answers share few tokens, and its
        frontier is all but a line.
        """
        fractions = [fraction for fraction in self.params.llm_fractions if 0 < fraction < 1]
        alone = [*self._alone(self.validation), *self._alone(self.test)]
        scores = [score for result in alone[0].results for score in result.scores]
        entropy, chance = Method("entropy", certainty), Method("random", random(self.params.seed))
        runs = [
            *alone,
            *self._sweep(self.test, entropy, quantiles(scores, fractions)),
            *self._sweep(self.test, chance, fractions[::3]),
        ]
        return Findings(list(outcome_rows(runs)), point_rows(runs, self.params))

    def _alone(self, problems: Sequence[Problem]) -> list[Run]:
        """The SLM alone, with the certainty of each of its tokens, and the LLM alone."""
        slm, llm = self._sweep(problems, Method("alone", certainty), [0.0, 1.0])
        return [replace(slm, method="slm"), replace(llm, method="llm")]

    def router(
        self, router: Router, thresholds: Sequence[float], rivals: Findings
    ) -> tuple[Findings, Threshold]:
        """Run every threshold on both splits; choose τ on validation."""
        method = Method("router", lambda view: router.score(view.hidden_NH), router.weight_bytes)
        inner = [tau for tau in thresholds if 0 < tau < 1]
        tried = self._sweep(self.validation, method, inner)
        alone = rivals.llm_alone("validation")
        safest_first = [candidate(run, alone) for run in reversed(tried)]
        threshold = choose(safest_first, self.params.epsilon, self.params.delta)
        runs = [*tried, *self._sweep(self.test, method, inner)]
        points = point_rows(runs, self.params, rivals.points)
        return Findings(list(outcome_rows(runs)), points), threshold

    def _sweep(
        self, problems: Sequence[Problem], method: Method, thresholds: Sequence[float]
    ) -> list[Run]:
        return sweep(self._engine, problems, method, thresholds)

    @cached_property
    def _engine(self) -> Engine:
        slots = self.params.slots
        return Engine(self.pair, slots, self.params.max_new_tokens, usual_llm_batch(slots))


def quantiles(scores: Sequence[float], fractions: Sequence[float]) -> list[float]:
    """Thresholds that put these shares of the scores below them, midway between two scores."""
    return np.unique(np.quantile(scores, fractions, method="midpoint")).tolist()


def candidate(run: Run, alone: Mapping[str, Row]) -> Candidate:
    """A run beside the LLM's own answers to the same questions, by problem_id."""
    rows = list(outcome_rows([run]))
    pairs = [(row, alone[row["problem_id"]]) for row in rows]
    return Candidate(
        tau=run.threshold,
        n=len(pairs),
        discordant=sum(llm["correct"] and not routed["correct"] for routed, llm in pairs),
        llm_fraction=sum(row["llm_tokens"] for row in rows) / sum(row["tokens"] for row in rows),
        cost=sum(row["bytes"] for row in rows) / sum(llm["bytes"] for _, llm in pairs),
    )
