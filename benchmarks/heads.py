"""Measure what labels, loss and width of a head are worth, with the same rules for all.

    python -m benchmarks.heads        # after `citer run`

Writes `benchmarks/results/heads.{json,md}`: the least cost at batch 1 for a share of the LLM's
accuracy, and for the LLM's own text, over all test questions. It is the cost of a rule that was
tried, so no number lies between two rules. Every scorer gets the same rules, with thresholds from
the SLM's own answers to the validation questions. A head is as wide as the SLM's state, or
`NARROW`; its weights are part of the cost. Intervals come from a bootstrap over test questions,
with the same resamples for all methods and seeds. Means are over three seeds of training.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console

from benchmarks.fractions import Answered, as_table, note, with_gaps
from benchmarks.paired import Outcomes
from benchmarks.workshop import SEEDS as FIVE
from benchmarks.workshop import Families, Workshop
from citer.decoding.policy import ScoredBy, always_slm
from citer.evaluation.paired import resamples
from citer.evaluation.rivals import CERTAINTIES, by_score
from citer.evaluation.rivals.co_llm import marginal_loss
from citer.evaluation.sweep import Method, by_head
from citer.models.router import Head
from citer.progress import progress
from citer.rule import Rule
from citer.storage.tables import replacing, write_json

SEEDS = FIVE[:3]  # half an hour of CPU
NARROW = 8
RISKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98)
AUDITS = (0.25, 1.0)
GAMMAS = (1, 2, 3, 4, 6, 8, 12, 16)
SHARES = {"95 %": 0.95, "99 %": 0.99}  # of the LLM's accuracy
EXACT = "exact"
OURS = "rollouts"
RESULTS = Path("benchmarks/results")


def rules(taus: Sequence[float]) -> list[Rule]:
    """Return the rules that every scorer gets."""
    return [*by_score(taus), *(Rule("risk", risk, audit) for audit in AUDITS for risk in RISKS)]


def study(shop: Workshop) -> Answered:
    """Collect the outcomes of each method: one for each seed, or one without training."""
    answered: Answered = {}
    for method, tried in _untrained(shop):
        note(answered, shop.answer(method, tried))
    with progress("heads", len(SEEDS), "seeds") as advance:
        for seed in SEEDS:
            for name, head in _heads(shop, seed):
                tried = {name: rules(shop.answer_thresholds(ScoredBy(head)))}
                note(answered, shop.answer(by_head(name, head), tried))
            advance(1)
    return answered


def _untrained(shop: Workshop) -> Iterator[tuple[Method, Families]]:
    for scorer in CERTAINTIES:
        name = scorer.__name__.replace("_", " ")
        yield Method(name, scorer), {name: rules(shop.answer_thresholds(scorer))}
    every = [Rule("every", gamma, 1) for gamma in GAMMAS]
    yield Method("speculative decoding", always_slm), {"speculative decoding": every}


def _heads(shop: Workshop, seed: int) -> Iterator[tuple[str, Head]]:
    """Train each kind of head in both widths."""
    first = shop.train_on(shop.first_labels, seed)
    second = shop.second_labels(first.head, shop.params.label.rule)
    truth_N, contested_N = second["label"].to_numpy(), second["case"].to_numpy() == "contested"
    slm_N, llm_N = (shop.tokens[name].to_numpy() for name in ("slm_token", "llm_token"))
    kinds: dict[str, tuple[pa.Table, np.ndarray]] = {
        OURS: (second, truth_N),
        "contested → SLM": (second, np.where(contested_N, 1, truth_N)),
        "contested → LLM (CITER-S)": (second, np.where(contested_N, 0, truth_N)),
        "agreement": (shop.tokens, slm_N == llm_N),
    }
    for width, suffix in ((None, ""), (NARROW, f", {NARROW} wide")):
        for name, (rows, label_N) in kinds.items():
            yield name + suffix, shop.train(rows, label_N, seed, width).head
        yield "Co-LLM" + suffix, shop.train_likelihood(marginal_loss, seed, width).head


def cost_of_tried(outcomes: Outcomes, share: float, drawn_RQ: np.ndarray) -> np.ndarray:
    """Return cost_R: the cost of the cheapest rule with `share` of the LLM's accuracy."""
    right_RT = drawn_RQ @ outcomes.correct_TQ.T
    reached_RT = right_RT >= share * right_RT[:, -1:]
    return np.where(reached_RT, outcomes.costs(drawn_RQ), np.inf).min(1)


def summary(answered: Answered, questions: int) -> dict[str, dict[str, object]]:
    """Compute the cost of each method for each target, and how far it is above ours."""
    drawn_RQ = resamples(np.ones(questions, bool))
    costs = {
        target: {
            name: np.mean([cost_of_tried(each, share, drawn_RQ) for each in seeds], axis=0)
            for name, seeds in answered.items()
        }
        for target, share in SHARES.items()
    }
    costs[EXACT] = {
        name: np.mean([each.cost_of_exact(drawn_RQ) for each in seeds], axis=0)
        for name, seeds in answered.items()
    }
    gaps = [with_gaps(target, cost, OURS) for target, cost in costs.items()]
    return {"all": {key: value for gap in gaps for key, value in gap.items()}}


def main() -> None:
    shop = Workshop.open()
    results = summary(study(shop), len(shop.test))
    table = as_table(results, OURS, (*SHARES, EXACT))
    write_json(RESULTS / "heads.json", results)
    with replacing(RESULTS / "heads.md") as aside, aside.open("w") as file:
        Console(file=file, width=260).print(table)
    Console(width=260).print(table)


if __name__ == "__main__":
    main()
