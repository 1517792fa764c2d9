"""What an accuracy costs by each method: the part `costs` of a study.

Intervals come from a bootstrap over test questions, with the same resamples for all methods and
seeds, so that a difference has an interval of its own. They cover the choice of questions only.
Results are means over seeds of labels and training.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import numpy as np

from benchmarks.workshop import SEEDS, Families, Teacher, Workshop
from citer.decoding.policy import CERTAINTIES, ScoredBy, Scorer, always_slm
from citer.evaluation.metrics import fraction_for
from citer.evaluation.paired import Frontier, interval, resamples
from citer.evaluation.sweep import Method, Run
from citer.progress import progress
from citer.rule import Rule
from citer.sections import Count, Listed, Section

UNTRAINED: Mapping[str, Scorer] = {**CERTAINTIES, "nothing": always_slm}
Learnt = Literal["first", "second", "citer", "agree", "Co-LLM"]
Answered = Mapping[str, "Sequence[Outcomes]"]  # by method, one for each seed


class Scored(Section):
    """What scores the SLM's tokens: a certainty, or a head by what it learns (`Teacher`)."""

    by: Literal["entropy", "probability", "nothing"] | Learnt
    contested: Literal[0, 1] | None = None
    width: Count | None = None


class Tried(Scored):
    """A method: its scorer, and grids of rules, as in `risk audit 0.25`."""

    rules: Annotated[tuple[str, ...], Listed]

    @property
    def scored(self) -> Scored:
        return Scored(**self.model_dump(exclude={"rules"}))


class Costs(Section):
    """The methods, and the targets at which each is compared with one of them.

    Thresholds of `score` lie at `fractions` of the scores in the SLM's own answers to validation.
    `Outcomes.needed` lists the targets.
    """

    methods: Mapping[str, Tried]
    joined: Mapping[str, Annotated[tuple[str, str], Listed]] = {}  # the rules of two methods
    targets: Mapping[str, str]  # with the method to compare with
    seeds: Count = 5
    by_task: bool = True
    fractions: Annotated[tuple[float, ...], Listed]
    risks: Annotated[tuple[float, ...], Listed] = ()
    gammas: Annotated[tuple[int, ...], Listed] = ()

    def families(self, scored: Scored, taus: Sequence[float]) -> Families:
        """Return the rules of each method with this scorer."""
        return {
            name: [rule for grid in tried.rules for rule in self.rules(grid, taus)]
            for name, tried in self.methods.items()
            if tried.scored == scored
        }

    def rules(self, grid: str, taus: Sequence[float]) -> list[Rule]:
        visit, _, audit = grid.partition(" audit ")
        beta = float(audit or 0)
        if visit == "score":
            return [Rule("score", tau, beta) for tau in taus]
        if visit == "risk":
            return [Rule("risk", risk, beta) for risk in self.risks]
        return [Rule("every", gamma, beta) for gamma in self.gammas]


@dataclass(frozen=True)
class Outcomes:
    """A method's answers to Q questions under T rules, from the SLM alone to the LLM alone.

    The methods below evaluate R resamples: resample r holds question q `drawn_RQ[r, q]` times.
    """

    rules: Sequence[Rule]
    correct_TQ: np.ndarray
    llm_tokens_TQ: np.ndarray
    tokens_TQ: np.ndarray
    bytes_TQ: np.ndarray  # moved at batch 1
    equals_llm_TQ: np.ndarray  # whether the answer equals the LLM's, token for token

    @classmethod
    def of(cls, runs: Sequence[Run]) -> "Outcomes":
        rows = [run.results for run in runs]
        digest_TQ = np.array([[result.digest for result in row] for row in rows])
        return cls(
            [run.rule for run in runs],
            np.array([[result.correct for result in row] for row in rows], float),
            np.array([[result.counts.llm_tokens for result in row] for row in rows], float),
            np.array([[result.counts.tokens for result in row] for row in rows], float),
            np.array([_moved(run) for run in runs], float),
            digest_TQ == digest_TQ[-1],
        )

    def joined(self, other: "Outcomes") -> "Outcomes":
        """Return one method with the rules of both."""
        names = [field.name for field in fields(self)]
        return Outcomes(*(_joined(getattr(self, name), getattr(other, name)) for name in names))

    def needed(self, target: str, drawn_RQ: np.ndarray) -> np.ndarray:
        """Return what a target takes in each resample.

        `f95` is the LLM fraction for 95 % of the LLM's accuracy, `c95` the cost for it, both
        between rules, `c95 tried` the cost of a rule that was tried, and `exact` the cost of a rule
        whose answers are the LLM's own. Others than 95 are read alike.
        """
        if target == "exact":
            return self.cost_of_exact(drawn_RQ)
        name, _, tried = target.partition(" ")
        share = float(name[1:]) / 100
        if name.startswith("f"):
            return self.fraction_for(share, drawn_RQ)
        return self.cost_of_tried(share, drawn_RQ) if tried else self.cost_for(share, drawn_RQ)

    def fraction_for(self, share: float, drawn_RQ: np.ndarray) -> np.ndarray:
        """Return fraction_R: the LLM fraction for `share` of the LLM's accuracy, interpolated."""
        right_RT = drawn_RQ @ self.correct_TQ.T
        fraction_RT = (drawn_RQ @ self.llm_tokens_TQ.T) / (drawn_RQ @ self.tokens_TQ.T)
        points = zip(fraction_RT, right_RT, strict=True)
        return np.array(
            [
                fraction_for(share * right_T[-1], fraction_T, right_T)
                for fraction_T, right_T in points
            ]
        )

    def costs(self, drawn_RQ: np.ndarray) -> np.ndarray:
        """Return cost_RT: each rule's bytes at batch 1, relative to the LLM alone."""
        moved_RT = drawn_RQ @ self.bytes_TQ.T
        return moved_RT / moved_RT[:, -1:]

    def cost_for(self, share: float, drawn_RQ: np.ndarray) -> np.ndarray:
        """Return cost_R: the least cost for `share` of the LLM's accuracy.

        Interpolates linearly between the efficient rules; no cheaper rule is as accurate. A mix
        of two rules, each for a part of the questions, reaches the points between them.
        """
        right_RT = drawn_RQ @ self.correct_TQ.T
        return Frontier.of(self.costs(drawn_RQ), right_RT).cost_for(share * right_RT[:, -1])

    def cost_of_tried(self, share: float, drawn_RQ: np.ndarray) -> np.ndarray:
        """Return cost_R: the cost of the cheapest rule with `share` of the LLM's accuracy."""
        right_RT = drawn_RQ @ self.correct_TQ.T
        reached_RT = right_RT >= share * right_RT[:, -1:]
        return np.where(reached_RT, self.costs(drawn_RQ), np.inf).min(1)

    def cost_of_exact(self, drawn_RQ: np.ndarray) -> np.ndarray:
        """Return cost_R: the cost of the cheapest rule whose answers all equal the LLM's."""
        differing_RT = drawn_RQ @ ~self.equals_llm_TQ.T
        return np.where(differing_RT == 0, self.costs(drawn_RQ), np.inf).min(1)


def _joined(first: Any, second: Any) -> Any:
    """Concatenate the rules of two methods. In both, the models alone come first and last."""
    if isinstance(first, np.ndarray):
        return np.concatenate([first[:-1], second[1:]])
    return [*first[:-1], *second[1:]]


def _moved(run: Run) -> list[int]:
    return [run.prices.moved(each.trace.slm, each.trace.llm) for each in run.results]


def compared(shop: Workshop, costs: Costs) -> dict[str, dict[str, Any]]:
    """Return what each method needs for each target by task, and how far it is above ours."""
    answered = answers(shop, costs)
    tasks = shop.tasks if costs.by_task else {"all": np.ones(len(shop.test), bool)}
    return {
        task: dict(columns(answered, in_task_Q, costs.targets)) for task, in_task_Q in tasks.items()
    }


def columns(
    answered: Answered, in_task_Q: np.ndarray, targets: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield, for each target, the columns of what methods need and of their gaps to ours."""
    drawn_RQ = resamples(in_task_Q)
    for target, ours in targets.items():
        needed = {
            name: np.mean([outcomes.needed(target, drawn_RQ) for outcomes in seeds], axis=0)
            for name, seeds in answered.items()
        }
        yield target, {name: interval(value_R) for name, value_R in needed.items()}
        yield (
            f"{target} above {ours}",
            {name: interval(v_R - needed[ours]) for name, v_R in needed.items() if name != ours},
        )


def answers(shop: Workshop, costs: Costs) -> Answered:
    """Answer the test questions by all methods: once for each seed, or once without training."""
    scorers = list(dict.fromkeys(tried.scored for tried in costs.methods.values()))
    found: dict[str, list[Outcomes]] = {name: [] for name in costs.methods}

    def note(answered: Mapping[str, Sequence[Run]]) -> None:
        for name, runs in answered.items():
            found[name].append(Outcomes.of(runs))

    for scored in (each for each in scorers if each.by in UNTRAINED):
        scorer = UNTRAINED[scored.by]
        taus = shop.answer_thresholds(costs.fractions, scorer)
        note(shop.answer(Method(scored.by, scorer), costs.families(scored, taus)))
    learnt = [each for each in scorers if each.by not in UNTRAINED]
    with progress("study", costs.seeds * len(learnt), "heads") as advance:
        for seed in SEEDS[: costs.seeds]:
            teacher = Teacher(shop, seed)
            for scored in learnt:
                trained = teacher.trained(scored.by, scored.contested, scored.width)
                scorer = ScoredBy(trained.head)
                taus = shop.answer_thresholds(costs.fractions, scorer)
                note(shop.answer(Method.of(scored.by, scorer), costs.families(scored, taus)))
                advance(1)
    for name, (one, other) in costs.joined.items():
        found[name] = [a.joined(b) for a, b in zip(found[one], found[other], strict=True)]
    return found
