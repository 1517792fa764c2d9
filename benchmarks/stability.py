"""Measure how many labels of contested tokens stay the same over sampled rollouts.

    python -m benchmarks.stability        # after `citer run`

Each of TOKENS contested tokens of the preference split is labelled TRIES times, by rollouts at
temperature TEMPERATURE with other noise each time, under router 1 and `label.rule`. arXiv
2601.04766 found 25 % of such labels stable over four rollouts. A label by `suffix` needs no
rollout. It is compared with the most frequent label of the rollouts.
Writes `benchmarks/results/stability.{json,md}`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.workshop import Workshop
from citer.config.params import SamplingParams
from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy, routed
from citer.labelling.agreement import Agreement
from citer.labelling.calibration import sample
from citer.labelling.contests import Outcome
from citer.labelling.labeller import Labeller
from citer.labelling.rollout import Rollout
from citer.labelling.suffix import Suffix
from citer.models.bundle import read_bundle
from citer.models.pair import Pair
from citer.models.sampling import Sampler
from citer.progress import progress
from citer.stages import paths
from citer.storage.tables import replacing, write_json

TOKENS, TRIES, TEMPERATURE, SEED = 400, 4, 0.7, 17
RESULTS = Path("benchmarks/results")


@dataclass(frozen=True)
class Sampled:
    """An engine that samples every answer, with noise of its own per attempt and request."""

    engine: Engine
    attempt: int

    @property
    def pair(self) -> Pair:
        return self.engine.pair

    def decode(self, requests: Iterable[Request], policy: Policy) -> Iterator[Answer]:
        sampler = Sampler(SamplingParams(temperature=TEMPERATURE), SEED)
        noisy = (replace(r, sampling=sampler.sampling(r.key, self.attempt)) for r in requests)
        return self.engine.decode(noisy, policy)


def study(shop: Workshop) -> dict[str, Any]:
    """Return the share of stable labels for each outcome that rolls out, and what suffix says."""
    router, _ = read_bundle(paths.router(1))
    policy = routed(router.to(shop.pair.slm.device), shop.params.label.rule)
    labeller = Labeller(shop.preference, shop.examples, Suffix(shop.pair, shop.engine.slots), 2)
    rows = sample(labeller, shop.tokens, TOKENS)

    def label(outcome: Outcome) -> np.ndarray:
        with progress(type(outcome).__name__, 2 * len(rows), "branches") as advance:
            table = replace(labeller, outcome=outcome).label(rows, advance)
        return table["label"].to_numpy()

    engines = [cast(Engine, Sampled(shop.engine, n)) for n in range(TRIES)]
    by_rollout_KN = np.stack([label(Rollout(each, policy, "slm")) for each in engines])
    by_agreement_KN = np.stack([label(Agreement(each, policy)) for each in engines])
    return {
        "tokens": len(rows),
        "rollout": stability(by_rollout_KN),
        "agreement": stability(by_agreement_KN),
        "suffix": {"equal to most": _equal(by_rollout_KN, label(labeller.outcome))},
        "greedy rollout": {
            "equal to most": _equal(by_rollout_KN, label(Rollout(shop.engine, policy, "slm")))
        },
    }


def stability(label_KN: np.ndarray) -> dict[str, float]:
    """Return the share of tokens with the same label in all tries, and of those with each."""
    ones_N = label_KN.sum(0)
    return {
        "stable": float(np.isin(ones_N, (0, len(label_KN))).mean()),
        "always 1": float((ones_N == len(label_KN)).mean()),
        "always 0": float((ones_N == 0).mean()),
    }


def _equal(label_KN: np.ndarray, label_N: np.ndarray) -> float:
    """Return how often a label equals the most frequent of the tries. Draws are left out."""
    ones_N = 2 * label_KN.sum(0) - len(label_KN)
    return float(((ones_N > 0) == label_N)[ones_N != 0].mean())


def as_table(results: dict[str, Any]) -> Table:
    table = Table("labels by", "figure", "share of the tokens", box=box.MARKDOWN)
    for name, shares in results.items():
        for what, share in shares.items() if isinstance(shares, dict) else ():
            table.add_row(name, what, f"{share:.1%}")
    return table


def main() -> None:
    results = study(Workshop.open())
    write_json(RESULTS / "stability.json", results)
    with replacing(RESULTS / "stability.md") as aside, aside.open("w") as file:
        Console(file=file, width=120).print(as_table(results))
    Console().print(as_table(results))


if __name__ == "__main__":
    main()
