"""Let the gate judge a version, from the files that MLflow keeps of it and of the champion."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from mlflow.entities import Run

from citer.config.params import Params
from citer.evaluation.choice import upper_bound
from citer.evaluation.gate import Answered, Decision, Gate
from citer.evaluation.measure import Conditions
from citer.rule import Rule
from flows import outcomes


class Candidate(NamedTuple):
    """A version, by the run of its router, and how it was measured."""

    run_id: str
    conditions: Conditions

    @classmethod
    def of(cls, router: Run) -> Self:
        return cls(router.info.run_id, Conditions.stored(router.data.tags))

    def answered(self, batch: int, delta: float) -> Answered:
        """Read the answers by the deployed rule, with their bytes at a batch size above 1.

        The rule's certificate is read for confidence 1 - `delta`, whatever it was chosen at.
        """
        batched = outcomes.routed_bytes(self.run_id, batch) if batch > 1 else None
        bound = risk_bound(outcomes.threshold(self.run_id), delta)
        return Answered(outcomes.routed(self.run_id), batched, bound)

    def llm_alone(self, batch: int) -> Answered:
        """Read the LLM's own answers in the same way."""
        batched = outcomes.llm_bytes(self.run_id, batch) if batch > 1 else None
        return Answered(outcomes.llm_alone(self.run_id), batched)


def judge(challenger: Candidate, champion: Candidate | None, params: Params) -> Decision:
    """Decide whether the challenger replaces the champion, if there is one."""
    gate, batch, delta = _gate(params, challenger), params.register_.batch, params.evaluate.delta
    return gate.decide(
        challenger.answered(batch, delta),
        champion.answered(batch, delta) if champion else None,
        challenger.llm_alone(batch),
        certified=outcomes.threshold(challenger.run_id)["certified"],
        champion_conditions=champion.conditions if champion else None,
    )


def no_bar(champion: Candidate, params: Params) -> str:
    """Say that the champion does not keep the promise of `params`; empty if it does."""
    deployed = outcomes.threshold(champion.run_id)
    return _gate(params, champion).no_bar(risk_bound(deployed, params.evaluate.delta))


def risk_bound(deployed: Mapping[str, Any], delta: float) -> float:
    """Bound the risk of a stored `ChosenRule`, by itself, at confidence 1 - delta.

    It is 0 for the LLM alone, and 1 for another rule that is not certified.
    """
    if not Rule(**deployed["rule"]).asks_slm:
        return 0.0
    if not deployed["certified"]:
        return 1.0
    return upper_bound(deployed["discordant"], deployed["n"], delta)


def _gate(params: Params, challenger: Candidate) -> Gate:
    """Return the gate of `params`, for versions that were measured as the challenger."""
    settings, register = params.evaluate, params.register_
    return Gate(
        margin=register.margin,
        byte_margin=register.byte_margin,
        batch=register.batch,
        delta=settings.delta,
        epsilon=settings.epsilon,
        llm_floor=settings.llm_floor,
        conditions=challenger.conditions,
    )
