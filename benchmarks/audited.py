"""Measure audits: the cost of an accuracy, and of the LLM's own answers, for each method.

    python -m benchmarks.audited       # after `citer run`

Writes `benchmarks/results/audited.{json,md}`.

Heads: five seeds of labels and training. `stand` is trained on the labels of iteration 2, whose
rollouts follow `label.rule` of params.yaml; CITER has its own, with rollouts by CITER's rule.
`agree` is trained on the LLM's tokens.

Cost: bytes moved at batch 1, relative to the LLM alone. For a share of the LLM's accuracy it is the
least cost, interpolated linearly between the efficient points of a method and of both models alone.
For exact answers it is the cost of the cheapest rule whose answers all equal the LLM's, token for
token. Each resample uses the best γ of speculative decoding, which favours that method.

Intervals: a bootstrap over test questions, with the same resamples for all methods and seeds. Means
are over seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.paired import Outcomes, shown
from benchmarks.workshop import CITER, SEEDS, Families, Workshop, thresholds
from citer.decoding.policy import always_slm
from citer.evaluation.cost import DELAYED, Batch, batches
from citer.evaluation.paired import interval, resamples
from citer.evaluation.rivals import by_score, low_entropy
from citer.evaluation.sweep import Method, by_head
from citer.progress import progress
from citer.rule import Rule
from citer.storage.tables import replacing, write_json

RISKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99)
GAMMAS = (1, 2, 3, 4, 6, 8, 12, 16)
AUDIT = 0.1
# As in evaluation: for an accuracy, rules of both β compete; for exact answers, rules with β = 1.
SHARES = {"90 %": 0.9, "95 %": 0.95, "99 %": 0.99}  # of the LLM's accuracy
OURS = {**dict.fromkeys(SHARES, "audited"), "exact": "exact"}
BATCHES = [batch for batch in batches((8, 32)) if batch.slots == 1 or batch.schedule == DELAYED]
RESULTS = Path("benchmarks/results")
Row = Mapping[str, Any]  # one method
Results = Mapping[str, Mapping[str, Row]]  # by target and method


def by_risk(audit: float) -> list[Rule]:
    return [Rule("risk", risk, audit) for risk in RISKS]


def audited_scores(taus: Sequence[float]) -> list[Rule]:
    return [Rule("score", tau, AUDIT) for tau in taus]


def stand_rules(taus: Sequence[float]) -> Families:
    return {
        "CITER, `stand`": by_score(taus),
        "audited, β .1": by_risk(AUDIT),
        "audited, by score": audited_scores(taus),
        "exact, `stand`": by_risk(1),
    }


def agree_rules() -> Families:
    return {
        "audited, `agree`": by_risk(AUDIT),
        "exact": by_risk(1),
    }


def entropy_rules(taus: Sequence[float]) -> Families:
    return {
        "entropy": by_score(taus),
        "BiLD-like, by score": audited_scores(taus),
        "BiLD-like, by risk": by_risk(AUDIT),
    }


def study(shop: Workshop) -> dict[str, list[Outcomes]]:
    """Collect the outcomes of each method: one for each seed, or one without training."""
    speculative = {"speculative": [Rule("every", gamma, 1) for gamma in GAMMAS]}
    untrained = entropy_rules(shop.answer_thresholds())
    answered = {
        name: [outcomes]
        for method, families in (
            (Method("certainty", low_entropy), untrained),
            (Method("speculative", always_slm), speculative),
        )
        for name, outcomes in shop.answer(method, families).items()
    }
    with progress("audited", len(SEEDS), "seeds") as advance:
        for seed in SEEDS:
            for name, outcomes in _trained(shop, seed).items():
                answered.setdefault(name, []).append(outcomes)
            advance(1)
    return answered


def _trained(shop: Workshop, seed: int) -> dict[str, Outcomes]:
    first, agree = shop.train_on(shop.first_labels, seed), shop.train_agree(seed).head
    citers, stand = (
        shop.train_on(shop.second_labels(first.head, rule), seed)
        for rule in (CITER, shop.params.label.rule)
    )
    answered: dict[str, Outcomes] = {}
    for method, families in (
        (by_head("CITER", citers.head), {"CITER": by_score(thresholds(citers))}),
        (by_head("stand", stand.head), stand_rules(thresholds(stand))),
        (by_head("agree", agree), agree_rules()),
    ):
        answered |= shop.answer(method, families)
    return answered | {"audited": answered["audited, β .1"].joined(answered["exact"])}


def summary(answered: Mapping[str, Sequence[Outcomes]], in_task_Q: np.ndarray) -> Results:
    """Compute each method's cost for each target, its gap to ours, and its costs in batches."""
    drawn_RQ = resamples(in_task_Q)
    llm = {batch: answered["exact"][0].moved(-1, in_task_Q, batch) for batch in BATCHES}
    results: dict[str, Any] = {}
    for target, ours in OURS.items():
        share = SHARES.get(target)
        cost = {name: mean_cost(seeds, share, drawn_RQ) for name, seeds in answered.items()}
        results[target] = {
            name: {
                "cost": interval(cost_R),
                "above ours": interval(cost_R - cost[ours]) if name != ours else None,
                "rules": [_at_rule(outcomes, share, in_task_Q, llm) for outcomes in answered[name]],
            }
            for name, cost_R in cost.items()
        }
    return results


def mean_cost(seeds: Sequence[Outcomes], share: float | None, drawn_RQ: np.ndarray) -> np.ndarray:
    costs = [
        outcomes.cost_for(share, drawn_RQ) if share else outcomes.cost_of_exact(drawn_RQ)
        for outcomes in seeds
    ]
    return np.mean(costs, axis=0)


def _at_rule(
    outcomes: Outcomes, share: float | None, in_task_Q: np.ndarray, llm: Mapping[Batch, int]
) -> dict[str, Any]:
    """Find the cheapest rule that reaches the target, with its cost for each way of batching."""
    rule = outcomes.cheapest(share, in_task_Q)
    costs = {b.name: outcomes.moved(rule, in_task_Q, b) / moved for b, moved in llm.items()}
    same = float(np.mean(outcomes.equals_llm_TQ[rule], where=in_task_Q))
    return {"rule": f"{outcomes.rules[rule]:.4g}", "the LLM's answers": same} | costs


def write(results: Mapping[str, Results], file: TextIO) -> None:
    """Write three tables for each task: costs, gaps to ours, costs of single rules in batches."""
    console = Console(file=file, width=160)
    for task, by_target in results.items():
        for title, cell in (
            ("cost", _cost),
            ("cost above ours", _above),
            ("cost of the cheapest rule that reaches it, batch 1 / 8 / 32 delayed", _in_batches),
        ):
            print(f"### {task}: {title}\n", file=file)
            console.print(_table(by_target, cell))
            print(file=file)


def _table(by_target: Results, cell: Callable[[Row], str]) -> Table:
    table = Table("method", *by_target, box=box.MARKDOWN)
    for name in by_target["exact"]:
        table.add_row(name, *(cell(methods[name]) for methods in by_target.values()))
    return table


def _cost(row: Row) -> str:
    return shown(row["cost"])


def _above(row: Row) -> str:
    return shown(row["above ours"], "+") if row["above ours"] else "ours"


def _in_batches(row: Row) -> str:
    means = (np.mean([rule[batch.name] for rule in row["rules"]]) for batch in BATCHES)
    return " / ".join(f"{mean:.3f}" for mean in means)


def main() -> None:
    shop = Workshop.open()
    answered = study(shop)
    results = {task: summary(answered, in_task_Q) for task, in_task_Q in shop.tasks.items()}
    accuracies = {task: shop.accuracies(in_task_Q) for task, in_task_Q in shop.tasks.items()}
    write_json(RESULTS / "audited.json", {"accuracy": accuracies, "targets": results})
    with replacing(RESULTS / "audited.md") as aside, aside.open("w") as file:
        write(results, file)
    print((RESULTS / "audited.md").read_text())


if __name__ == "__main__":
    main()
