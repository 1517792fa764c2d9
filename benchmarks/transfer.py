"""Routers on a task that they were not trained on: the part `transfer` of a study.

For each task, and for all together, a router learns from the labels of these tasks alone: two
iterations, `label.rule`, its own `agree` head. Validation questions of the same tasks choose its
rule. All routers then answer the test questions of every task. The SLM is that of the run, which
was finetuned on all tasks, so the study is about routers and not about models.

f95: the LLM fraction for 95 % of the LLM's accuracy under CITER's rules; c95: the cost at batch 1
for it under audited ones. The others are those of the cheapest rule that keeps the promise on
validation: its risk is P(routed wrong | LLM right), and `kept` counts the seeds whose risk is at
most ε on the test questions of the task. Means are over seeds; intervals are those of
`benchmarks.costs`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from benchmarks.workshop import SEEDS, Teacher, Workshop, thresholds
from citer.data.holdout import held_out
from citer.evaluation.choice import cheapest
from citer.evaluation.evidence import choose_rules
from citer.evaluation.paired import Frontier, interval, resamples
from citer.evaluation.points import Findings, outcome_table, point_rows, rule_columns
from citer.evaluation.study import ALONE_LINES, Study
from citer.models.router import Router
from citer.progress import progress
from citer.report.against import Answers, Resampled
from citer.rule import Rule
from citer.sections import Count, Listed, Section

KEPT = 0.95  # of the LLM's accuracy
ALL = "all tasks"


class Transfer(Section):
    """Thresholds lie at `fractions` of a router's holdout scores."""

    fractions: Annotated[tuple[float, ...], Listed]
    seeds: Count = 5


@dataclass(frozen=True)
class Routed:
    """A router's answers to the test questions of all tasks, and the rule that it was given."""

    answers: Answers
    method: str
    rule: Rule

    @property
    def run(self) -> int:
        """The number of the rule's run."""
        return self.answers.run_of(self.method, rule_columns(self.rule))

    @property
    def llm(self) -> int:
        return self.answers.by_method["llm"][0]


Answered = Mapping[str, Sequence[Routed]]  # by the tasks of training, one for each seed


def transferred(shop: Workshop, transfer: Transfer) -> dict[str, dict[str, Any]]:
    """Return a column for each figure of the routers on each task, and for its distance."""
    answered = study(shop, transfer)
    return {task: columns(answered, task, shop.params.evaluate.epsilon) for task in shop.tasks}


def trainings(shop: Workshop) -> dict[str, Workshop]:
    """Return a workshop for each task, and the one of all."""
    return {task: shop.only([task]) for task in shop.tasks} | {ALL: shop}


def study(shop: Workshop, transfer: Transfer) -> Answered:
    """Train a router on each task and on all, for each seed, and answer the test questions."""
    shops, alone = trainings(shop), alone_on(shop)
    answered: dict[str, list[Routed]] = {name: [] for name in shops}
    with progress("transfer", transfer.seeds * len(shops), "routers") as advance:
        for seed in SEEDS[: transfer.seeds]:
            for name, each in shops.items():
                teacher = Teacher(each, seed, shop.first_labels)
                answered[name].append(tested(teacher, transfer.fractions, alone))
                advance(1)
    return answered


def alone_on(shop: Workshop) -> Findings:
    """Run both models alone on validation and test, once for all routers."""
    asked = shop.validation, shop.test
    runs = [run for problems in asked for [run] in shop.sweep(problems, ALONE_LINES)]
    return Findings(outcome_table(runs), point_rows(runs[2:], shop.params.evaluate))


def tested(teacher: Teacher, fractions: Sequence[float], alone: Findings) -> Routed:
    """Train a router, choose its rule on the workshop's validation questions, answer the test."""
    shop, seed = teacher.shop, teacher.params.seed
    stand, agree = teacher.trained("second"), teacher.trained("agree")
    router = Router({"stand": stand.head, "agree": agree.head})
    params = shop.params.evaluate
    holdout = held_out(shop.preference.values(), seed, teacher.params.holdout)
    with TemporaryDirectory() as folder:
        asked = shop.executor, shop.pair, shop.validation, shop.test
        own = Study(*asked, params, Path(folder), holdout)
        findings = own.router(router, thresholds(stand, fractions), alone)
    promised = params.epsilon, params.delta
    chosen, _ = choose_rules(findings, alone, own.conditions.measure, *promised)
    best = cheapest(*chosen.values())
    method = next(name for name, rule in chosen.items() if rule is best)
    answered = Answers.of(pa.concat_tables([alone.outcomes, findings.outcomes]))
    return Routed(answered, method, best.rule)


def columns(answered: Answered, task: str, epsilon: float) -> dict[str, dict[str, Any]]:
    """Return the figures of every router on the test questions of a task, and its gaps.

    A gap is a router's figure minus that of the router which was trained on this task.
    """
    in_task_Q = answered[task][0].answers.task_Q == task
    values = {
        name: _means([figures(each, in_task_Q) for each in seeds])
        for name, seeds in answered.items()
    }
    found: dict[str, dict[str, Any]] = {}
    for figure, own_R in values[task].items():
        found[figure] = {name: interval(each[figure]) for name, each in values.items()}
        found[f"{figure} above own"] = {
            name: interval(each[figure] - own_R) for name, each in values.items() if name != task
        }
    return found | {"kept": {name: kept(e, in_task_Q, epsilon) for name, e in answered.items()}}


def figures(routed: Routed, in_task_Q: np.ndarray) -> dict[str, np.ndarray]:
    """Compute the figures of a router in R resamples of some questions."""
    answers, run, llm = routed.answers, routed.run, routed.llm
    sums, drawn_RQ = Resampled.of(answers, in_task_Q), resamples(in_task_Q)
    enough_R = KEPT * sums.right_RV[:, llm]
    line = answers.line("router")
    fraction_RV = (drawn_RQ @ answers.llm_tokens_VQ.T) / (drawn_RQ @ answers.tokens_VQ.T)
    by_fraction = Frontier.of(fraction_RV[:, line], sums.right_RV[:, line])
    return {
        "f95": by_fraction.cost_for(enough_R),
        "c95": sums.frontiers["audited"].cost_for(enough_R) / sums.moved_RV[:, llm],
        "accuracy": sums.right_RV[:, run] / sums.questions,
        "cost": sums.moved_RV[:, run] / sums.moved_RV[:, llm],
        "risk": risk(answers.correct_VQ[run], answers.correct_VQ[llm], drawn_RQ),
    }


def risk(correct_Q: np.ndarray, llm_Q: np.ndarray, drawn_RQ: np.ndarray) -> np.ndarray:
    """Return P(routed wrong | LLM right) in each resample, 0 if the LLM is never right."""
    return drawn_RQ @ (llm_Q * (1 - correct_Q)) / np.maximum(drawn_RQ @ llm_Q, 1)


def _means(seeds: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.mean([figures[name] for figures in seeds], axis=0) for name in seeds[0]}


def kept(seeds: Sequence[Routed], in_task_Q: np.ndarray, epsilon: float) -> str:
    """Count the seeds whose risk is at most epsilon on the questions themselves."""
    right = (each.answers.correct_VQ[[each.run, each.llm]] for each in seeds)
    risks = [float(risk(own_Q, llm_Q, in_task_Q[None, :])[0]) for own_Q, llm_Q in right]
    return f"{sum(each <= epsilon for each in risks)} of {len(seeds)}"
