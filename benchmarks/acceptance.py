"""Compare acceptance rules at the same visits: the cost of an accuracy, for each of them.

    python -m benchmarks.acceptance [SEEDS]       # after `citer run`; SEEDS: 1 to 5, by default 5

Writes `benchmarks/results/acceptance.{json,md}`.

All visits are `risk ρ` by the head `stand`, for the same ρ. A *kind* is an acceptance rule with all
its thresholds; for each target the best one counts, so that every kind is shown at its best. Kinds
have the same number of thresholds, but for `top`. Exact routing by `agree` belongs to each kind.
There are two judges: one learns from the pipeline's labels, where the routed policy finishes the
answer after the SLM's token, and one from rollouts that the LLM finishes alone.

Costs and intervals are those of `benchmarks.audited`. In each forward of the LLM, `kl` also pays
for the SLM's output head, and `judge` for its own weights. The cost in a batch is
that of the cheapest rule that reaches the target, with the LLM delayed.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.audited import BATCHES, GAMMAS, SHARES, entropy_rules, mean_cost
from benchmarks.paired import Outcomes, shown
from benchmarks.workshop import CITER, SEEDS, Families, Workshop, thresholds
from citer.decoding.policy import always_slm
from citer.evaluation.cost import Batch
from citer.evaluation.paired import interval, resamples
from citer.evaluation.rivals import by_score, low_entropy
from citer.evaluation.sweep import Method, by_head
from citer.models.router import Head
from citer.rule import Rule
from citer.storage.tables import replacing, write_json

RISKS = (0.2, 0.5, 0.7, 0.85, 0.9, 0.95, 0.98)
THRESHOLDS = {
    "audit": (0.02, 0.1, 0.25, 0.5),
    "judge": (0.5, 0.7, 0.8, 0.9),
    "kl": (0.03, 0.3, 0.6, 1.0),
    "top": (2, 3),
}
LLM_FINISHES = "judge, LLM finishes"
KINDS = (*THRESHOLDS, LLM_FINISHES)
OURS = "audit 0.1"  # the default of params.yaml
NEAR = 1.25  # rules that may be the cheapest in a batch cost at most so much more at batch 1
RESULTS = Path("benchmarks/results")
Answered = dict[str, list[Outcomes]]


def rules_of(by: str) -> Families:
    """Return the rules of one acceptance rule, by threshold."""
    return {
        f"{by} {threshold:g}": [Rule.audited("risk", risk, f"{by} {threshold}") for risk in RISKS]
        for threshold in THRESHOLDS[by]
    }


def _untrained(shop: Workshop) -> Answered:
    speculative = {"speculative": [Rule("every", gamma, 1) for gamma in GAMMAS]}
    entropy = entropy_rules(shop.answer_thresholds())
    methods = (
        (Method("certainty", low_entropy), entropy),
        (Method("none", always_slm), speculative),
    )
    found = [shop.answer(method, families) for method, families in methods]
    return {name: [each] for family in found for name, each in family.items()}


def _trained(shop: Workshop, seed: int) -> dict[str, Outcomes]:
    first, agree = shop.train_on(shop.first_labels, seed), shop.train_agree(seed).head
    labels = {
        rule: shop.second_labels(first.head, rule) for rule in (CITER, shop.params.label.rule)
    }
    citers, stand = (shop.train_on(each, seed) for each in labels.values())
    judges = [
        shop.train_judge(each, seed).head
        for each in (labels[shop.params.label.rule], shop.llm_labels)
    ]
    answered = shop.answer(by_head("CITER", citers.head), {"CITER": by_score(thresholds(citers))})
    exact = shop.answer(by_head("agree", agree), {"exact": [Rule("risk", r, 1) for r in RISKS]})
    answered |= exact | _by_kind(shop, stand.head, judges, exact["exact"])
    return answered


def _by_kind(
    shop: Workshop, stand: Head, judges: Sequence[Head], exact: Outcomes
) -> dict[str, Outcomes]:
    """Answer by each threshold of each kind. A kind has its thresholds together."""
    families = {name: rules for by in THRESHOLDS for name, rules in rules_of(by).items()}
    found = shop.answer(by_head("stand", stand, judge=judges[0]), families)
    other = shop.answer(by_head("stand", stand, judge=judges[1]), rules_of("judge"))
    found |= {name.replace("judge", LLM_FINISHES): each for name, each in other.items()}
    found = {name: each.joined(exact) for name, each in found.items()}
    kinds = {
        kind: reduce(Outcomes.joined, (found[name] for name in found if _kind(name) == kind))
        for kind in KINDS
    }
    return found | kinds


def _kind(name: str) -> str:
    return name.rpartition(" ")[0]


def summary(answered: Answered, in_task_Q: np.ndarray) -> dict[str, Any]:
    """Compute each method's cost for each target, its gap to the default, its costs in batches."""
    drawn_RQ = resamples(in_task_Q)
    llm = {batch: answered["exact"][0].moved(-1, in_task_Q, batch) for batch in BATCHES}
    results: dict[str, Any] = {}
    for target, share in (*SHARES.items(), ("exact", None)):
        cost = {name: mean_cost(seeds, share, drawn_RQ) for name, seeds in answered.items()}
        results[target] = {
            name: {
                "cost": interval(cost_R),
                "above ours": interval(cost_R - cost[OURS]) if name != OURS else None,
                "rule": [f"{o.rules[o.cheapest(share, in_task_Q)]:.4g}" for o in answered[name]],
                **_in_batches(answered[name], share, in_task_Q, llm),
            }
            for name, cost_R in cost.items()
        }
    return results


def _in_batches(
    seeds: Sequence[Outcomes], share: float | None, in_task_Q: np.ndarray, llm: Mapping[Batch, int]
) -> dict[str, float]:
    """Return the cost of the cheapest rule that reaches the target, by batch; mean over seeds."""
    near = [_near(outcomes, share, in_task_Q) for outcomes in seeds]
    return {
        batch.name: float(
            np.mean(
                [
                    min(outcomes.moved(rule, in_task_Q, batch) for rule in rules) / moved
                    for outcomes, rules in zip(seeds, near, strict=True)
                ]
            )
        )
        for batch, moved in llm.items()
    }


def _near(outcomes: Outcomes, share: float | None, in_task_Q: np.ndarray) -> list[int]:
    """Return the rules that reach the target and cost little more than the cheapest at batch 1."""
    bytes_T = outcomes.bytes_TQ @ in_task_Q
    most = NEAR * bytes_T[outcomes.cheapest(share, in_task_Q)]
    if share is None:
        reaches_T = np.array([e_Q[in_task_Q].all() for e_Q in outcomes.equals_llm_TQ])
    else:
        right_T = outcomes.correct_TQ @ in_task_Q
        reaches_T = right_T >= share * right_T[-1]
    return np.flatnonzero(reaches_T & (bytes_T <= most)).tolist()


def write(results: Mapping[str, Any], file: TextIO) -> None:
    """Write three tables for each task: costs, gaps to the default, costs in batches."""
    console = Console(file=file, width=200)
    for task, by_target in results.items():
        for title, cell in (
            ("cost", _cost),
            (f"cost above `{OURS}`", _above),
            ("cost of the cheapest rule that reaches it, batch 1 / 8 / 32 delayed", _batched),
        ):
            table = Table("method", *by_target, box=box.MARKDOWN)
            for name in by_target["exact"]:
                table.add_row(name, *(cell(methods[name]) for methods in by_target.values()))
            print(f"### {task}: {title}\n", file=file)
            console.print(table)
            print(file=file)


def _cost(row: Mapping[str, Any]) -> str:
    return shown(row["cost"])


def _above(row: Mapping[str, Any]) -> str:
    return shown(row["above ours"], "+") if row["above ours"] else "ours"


def _batched(row: Mapping[str, Any]) -> str:
    return " / ".join(f"{row[batch.name]:.3f}" for batch in BATCHES)


def main() -> None:
    """Write the results after each seed, so that a study that is stopped leaves those it has."""
    shop, count = Workshop.open(), int(sys.argv[1]) if len(sys.argv) > 1 else 5
    answered = _untrained(shop)
    for done, seed in enumerate(SEEDS[:count], 1):
        for name, outcomes in _trained(shop, seed).items():
            answered.setdefault(name, []).append(outcomes)
        results = {task: summary(answered, in_task_Q) for task, in_task_Q in shop.tasks.items()}
        write_json(RESULTS / "acceptance.json", {"seeds": done, "targets": results})
        with replacing(RESULTS / "acceptance.md") as aside, aside.open("w") as file:
            print(f"Seeds: {done}.\n", file=file)
            write(results, file)
    print((RESULTS / "acceptance.md").read_text())


if __name__ == "__main__":
    main()
