"""What an accuracy costs by each method: the part `costs` of a study.

Intervals come from a bootstrap over test questions, with the same resamples for all methods and
seeds, so that a difference has an interval of its own. They cover the choice of questions only.
Results are means over seeds of labels and training.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from torch import Tensor

from benchmarks.paired import Outcomes
from benchmarks.workshop import SEEDS, Families, Teacher, Workshop, thresholds
from citer.config.params import SamplingParams
from citer.decoding.policy import ScoredBy, Scorer, StepView, always_slm
from citer.evaluation.paired import interval, resamples
from citer.evaluation.rivals.rival import by_score
from citer.evaluation.rivals.untrained import low_entropy
from citer.evaluation.sweep import Method, by_head
from citer.models.router import HIGHEST
from citer.models.sampling import Sampler
from citer.progress import progress
from citer.rule import Rule
from citer.sections import Count, Listed, Section

SEED = 17  # of samples


def max_probability(view: StepView) -> Tensor:
    """Return score_N, the largest probability of the SLM's next-token distribution."""
    return view.logits_NV.softmax(-1).amax(-1).clamp(0, HIGHEST).float()


UNTRAINED: Mapping[str, Scorer] = {
    "entropy": low_entropy,
    "max probability": max_probability,
    "nothing": always_slm,
}
Learnt = Literal["first", "second", "citer", "agree", "Co-LLM"]
Answered = Mapping[str, Sequence[Outcomes]]  # by method, one for each seed


class Scored(Section):
    """What scores the SLM's tokens: a certainty, or a head by what it learns (`Teacher`)."""

    by: Literal["entropy", "max probability", "nothing"] | Learnt
    contested: Literal[0, 1] | None = None
    width: Count | None = None
    tasks: Annotated[tuple[str, ...], Listed] = ()  # that it learns from, if not all


class Tried(Scored):
    """A method: its scorer, and grids of rules, as in `risk audit 0.25`."""

    rules: Annotated[tuple[str, ...], Listed]

    @property
    def scored(self) -> Scored:
        return Scored(**self.model_dump(exclude={"rules"}))


class Costs(Section):
    """The methods, and the targets at which each is compared with one of them.

    Thresholds of `score` lie at `fractions` of the scores: in the SLM's own answers to validation
    (`answers`), or for a head in its holdout. `Outcomes.needed` lists the targets.
    """

    methods: Mapping[str, Tried]
    joined: Mapping[str, Annotated[tuple[str, str], Listed]] = {}  # the rules of two methods
    targets: Mapping[str, str]  # with the method to compare with
    seeds: Count = 5
    by_task: bool = True
    thresholds: Literal["answers", "holdout"] = "holdout"
    fractions: Annotated[tuple[float, ...], Listed]
    risks: Annotated[tuple[float, ...], Listed] = ()
    gammas: Annotated[tuple[int, ...], Listed] = ()
    sampling: SamplingParams | None = None  # an answer is right if it is the LLM's sample

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
            return by_score(taus, beta)
        if visit == "risk":
            return [Rule("risk", risk, beta) for risk in self.risks]
        return [Rule("every", gamma, beta) for gamma in self.gammas]


def compared(shop: Workshop, costs: Costs) -> dict[str, dict[str, Any]]:
    """Return what each method needs for each target by task, and how far it is above ours."""
    if costs.sampling:
        shop = shop.by_llm(Sampler(costs.sampling, SEED))
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

    def note(outcomes: Mapping[str, Outcomes]) -> None:
        for name, each in outcomes.items():
            found[name].append(each)

    for scored in (each for each in scorers if each.by in UNTRAINED):
        scorer = UNTRAINED[scored.by]
        taus = shop.answer_thresholds(costs.fractions, scorer)
        note(shop.answer(Method(scored.by, scorer), costs.families(scored, taus)))
    trained = [each for each in scorers if each.by not in UNTRAINED]
    with progress("study", costs.seeds * len(trained), "heads") as advance:
        for seed in SEEDS[: costs.seeds]:
            teachers: dict[tuple[str, ...], Teacher] = {}
            for scored in trained:
                if scored.tasks not in teachers:
                    teachers[scored.tasks] = Teacher.of(shop, scored.tasks, seed)
                note(_by_head(teachers[scored.tasks], scored, costs))
                advance(1)
    for name, (one, other) in costs.joined.items():
        found[name] = [a.joined(b) for a, b in zip(found[one], found[other], strict=True)]
    return found


def _by_head(teacher: Teacher, scored: Scored, costs: Costs) -> dict[str, Outcomes]:
    """Train a head and answer by its rules."""
    shop = teacher.shop
    trained = teacher.trained(scored.by, scored.contested, scored.width)
    if costs.thresholds == "answers":
        taus = shop.answer_thresholds(costs.fractions, ScoredBy(trained.head))
    else:
        taus = thresholds(trained, costs.fractions)
    return shop.answer(by_head(scored.by, trained.head), costs.families(scored, taus))
