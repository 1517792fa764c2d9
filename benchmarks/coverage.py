"""Simulate how a rule is chosen: how often its promise is broken, and what it costs.

    python -m benchmarks.coverage

Five ways to test the rules of three lines on validation are compared where the risks are known: on
made-up pairs, and on answers of this project's last router, drawn with replacement from its test
questions (so run it in a folder with a finished run). Results: benchmarks/results/coverage.*.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import compress, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.special import betaincinv, ndtr
from scipy.stats import binomtest

from citer.config.params import load_params
from citer.evaluation.choice import Candidate, certified
from citer.evaluation.methods import Row
from citer.evaluation.points import rule_of
from citer.evaluation.sequence import sequence
from citer.rule import Rule
from citer.stages import paths
from citer.storage.tables import write_json, write_text

RESULTS = Path("benchmarks/results")
EPSILON, DELTA = 0.05, 0.05
DRAWS, SEED = 2000, 17
CORRELATION = 0.7  # of the latent losses of two rules on a question: hard questions are lost by all
HELD_OUT = (120, 30)
VALIDATION = (600, 200)


class Counts(NamedTuple):
    """Lost questions of every rule, of n."""

    lost_LT: np.ndarray
    n: int


@dataclass(frozen=True)
class Profile:
    """The true risks of L lines of T rules, and their costs. A line starts with its safest rule."""

    risk_LT: np.ndarray
    cost_LT: np.ndarray

    def draw(self, questions: int, rng: np.random.Generator) -> Counts:
        """Draw which questions each rule loses. The losses of two rules on a question correlate."""
        shape = (*self.risk_LT.shape, questions)
        common_Q, own_LTQ = rng.standard_normal(questions), rng.standard_normal(shape)
        latent_LTQ = CORRELATION**0.5 * common_Q + (1 - CORRELATION) ** 0.5 * own_LTQ
        lost_LTQ = ndtr(latent_LTQ) < self.risk_LT[..., None]
        return Counts(lost_LTQ.sum(-1), questions)


@dataclass(frozen=True)
class Answered(Profile):
    """A profile of real answers, on the questions that the LLM answers right."""

    lost_LTQ: np.ndarray

    @classmethod
    def last(cls) -> "Answered":
        """Read the test answers of the last router by the `RULES` boldest rules of each line."""
        folders = paths.report(max(map(int, load_params().iterations))), paths.RIVALS
        rows, alone = (pq.read_table(each / "outcomes.parquet", filters=TEST) for each in folders)
        llm = {row["problem_id"]: row for row in alone.to_pylist() if row["method"] == "llm"}
        lines: dict[Any, dict[Rule, dict[str, Row]]] = {}
        for row in rows.to_pylist():
            rule = rule_of(row)
            line = lines.setdefault((row["method"], rule.audit, rule.by), {})
            line.setdefault(rule, {})[row["problem_id"]] = row
        right = [key for key, row in llm.items() if row["correct"]]
        answers = [list(line.values())[-RULES:] for line in lines.values()]
        lost_LTQ = np.array([[[not a[k]["correct"] for k in right] for a in t] for t in answers])
        bytes_LT = np.array([[sum(a[k]["bytes"] for k in llm) for a in t] for t in answers])
        cost_LT = bytes_LT / sum(row["bytes"] for row in llm.values())
        return cls(lost_LTQ.mean(-1), cost_LT, lost_LTQ)

    def draw(self, questions: int, rng: np.random.Generator) -> Counts:
        drawn_Q = rng.integers(self.lost_LTQ.shape[-1], size=questions)
        return Counts(self.lost_LTQ[..., drawn_Q].sum(-1), questions)


RULES = 6
TEST = pc.field("split") == "test"


COST_T = np.linspace(0.7, 0.2, 6)
COST_LT = np.stack([COST_T, 0.95 * COST_T, 0.5 + 0.2 * COST_T])
PROFILES = {
    "mixed": Profile(
        np.array(
            [
                [0, 0, 0, 0.002, 0.016, 0.30],
                [0.017, 0.028, 0.045, 0.09, 0.2, 0.4],
                [0, 0, 0, 0, 0, 0],
            ]
        ),
        COST_LT,
    ),
    "every rule just breaks it": Profile(np.full((3, 6), 1.02 * EPSILON), COST_LT),
    "one rule in two breaks it": Profile(
        np.array([[0.051, 0.02, 0.055, 0.01, 0.06, 0.03]] * 3), COST_LT
    ),
    "safe, then just too risky": Profile(
        np.array([[0, 0.01, 0.02, 0.03, 0.051, 0.06]] * 3), COST_LT
    ),
}


Places = list[tuple[int, int]]
Chooser = Callable[[Profile, Counts, Counts], np.ndarray]  # → certified_LT


def by_sequence(profile: Profile, held: Counts, judged: Counts) -> np.ndarray:
    """As `evaluate` does: one sequence of all rules, ordered on held-out questions."""
    order = sequence(_candidates(profile.cost_LT, held), EPSILON)
    judged_LT = _candidates(profile.cost_LT, judged)
    passed = certified([judged_LT[n][t] for n, t in order], EPSILON, DELTA)
    return _at(list(compress(order, passed)), judged)


def to_first_failure(profile: Profile, held: Counts, judged: Counts) -> np.ndarray:
    """The same sequence, at the whole delta until the first rule fails."""
    return _in_order(sequence(_candidates(profile.cost_LT, held), EPSILON), judged, DELTA)


def by_line(profile: Profile, held: Counts, judged: Counts) -> np.ndarray:
    """A fixed-sequence test of each line, at delta divided by the number of lines."""
    lines, rules = judged.lost_LT.shape
    tests = (_in_order([(n, t) for t in range(rules)], judged, DELTA / lines) for n in range(lines))
    return np.logical_or.reduce(list(tests))


def by_bonferroni(profile: Profile, held: Counts, judged: Counts) -> np.ndarray:
    """A test of each rule, at delta divided by the number of rules."""
    return _bounds(judged, DELTA / judged.lost_LT.size) <= EPSILON


def by_e_values(profile: Profile, held: Counts, judged: Counts) -> np.ndarray:
    """A test of each rule by likelihood ratios, closed under their mean.

    The alternative is the risk on the held-out questions, at most 0.8 epsilon. A rule is certified
    if every set of rules that contains it has a mean e-value of at least 1 / delta (Vovk and Wang,
    Annals of Statistics 49, 2021, 1736-1754).
    """
    risk = np.minimum((held.lost_LT + 0.5) / (held.n + 1), 0.8 * EPSILON)
    kept = judged.n - judged.lost_LT
    log = judged.lost_LT * np.log(risk / EPSILON) + kept * np.log((1 - risk) / (1 - EPSILON))
    e_R = np.exp(log).ravel()
    sums_R = np.concatenate([[0], np.sort(e_R).cumsum()[:-1]])  # of the others: a lower bound
    least_R = ((e_R[:, None] + sums_R) / np.arange(1, e_R.size + 1)).min(1)
    return least_R.reshape(log.shape) >= 1 / DELTA


def _candidates(cost_LT: np.ndarray, counts: Counts) -> list[list[Candidate]]:
    rows = zip(counts.lost_LT.tolist(), cost_LT.tolist(), strict=True)
    rule = Rule("score", 0.5)  # its text does not matter
    return [
        [Candidate(rule, counts.n, lost, 0.0, cost) for lost, cost in zip(*row, strict=True)]
        for row in rows
    ]


def _in_order(order: Places, judged: Counts, delta: float) -> np.ndarray:
    passes_LT = _bounds(judged, delta) <= EPSILON
    return _at(list(takewhile(lambda place: passes_LT[place], order)), judged)


def _at(places: Places, judged: Counts) -> np.ndarray:
    """Return certified_LT, True at these places."""
    certified_LT = np.zeros(judged.lost_LT.shape, bool)
    for place in places:
        certified_LT[place] = True
    return certified_LT


def _bounds(judged: Counts, delta: float) -> np.ndarray:
    lost_LT = np.minimum(judged.lost_LT, judged.n - 1)  # all lost: a bound of nearly 1
    return betaincinv(lost_LT + 1, judged.n - lost_LT, 1 - delta)


CHOOSERS: Mapping[str, Chooser] = {
    "one sequence, fallback": by_sequence,
    "one sequence, to the first failure": to_first_failure,
    "a sequence per line, delta / 3 each": by_line,
    "each rule, delta / 18": by_bonferroni,
    "e-values": by_e_values,
}


def simulate(
    profile: Profile, chooser: Chooser, held_out: int, validation: int, draws: int = DRAWS
) -> dict[str, Any]:
    """Choose the cheapest certified rule again and again, and compare it with the truth."""
    rng = np.random.default_rng(SEED)  # every chooser sees the same draws
    broken, any_broken, costs = 0, 0, []
    for _ in range(draws):
        held, judged = profile.draw(held_out, rng), profile.draw(validation, rng)
        certified_LT = chooser(profile, held, judged)
        cost_LT = np.where(certified_LT, profile.cost_LT, np.inf)
        best = np.unravel_index(cost_LT.argmin(), cost_LT.shape)
        broken += bool(certified_LT.any() and profile.risk_LT[best] > EPSILON)
        any_broken += bool((certified_LT & (profile.risk_LT > EPSILON)).any())
        costs.append(min(cost_LT[best], 1.0))
    return {
        "broken": _share(broken, draws),
        "any_broken": _share(any_broken, draws),
        "cost": float(np.mean(costs)),
    }


def _share(count: int, draws: int) -> list[float]:
    """Return a share with its exact interval at 95 %."""
    interval = binomtest(count, draws).proportion_ci(0.95)
    return [count / draws, float(interval.low), float(interval.high)]


def main() -> None:
    rows = [
        {"profile": name, "held_out": held, "validation": n, "chooser": how}
        | simulate(profile, chooser, held, n)
        for name, profile in (PROFILES | {"this project's router": Answered.last()}).items()
        for held, n in zip(HELD_OUT, VALIDATION, strict=True)
        for how, chooser in CHOOSERS.items()
    ]
    settings = {"epsilon": EPSILON, "delta": DELTA, "draws": DRAWS, "correlation": CORRELATION}
    write_json(RESULTS / "coverage.json", {"settings": settings, "rows": rows})
    write_text(RESULTS / "coverage.md", _table(rows))


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# How often a promise is broken, and what the chosen rule costs",
        "",
        f"`python -m benchmarks.coverage`: {DRAWS:,} draws, ε = δ = {EPSILON:g}. Three lines of "
        "six rules; the losses of two rules on a question correlate. *Broken*: the chosen rule's "
        "true risk is above ε; *any*: that of some certified rule is. Both must be at most δ, and "
        "have exact 95 % intervals. *Cost*: of the chosen rule, 1 if none is certified.",
        "",
        "| true risks | held out | validation | test | broken | any | cost |",
        "|---|---:|---:|---|---:|---:|---:|",
    ]
    for row in rows:
        shares = (_percent(*row[name]) for name in ("broken", "any_broken"))
        cells = [row["profile"], row["held_out"], row["validation"], row["chooser"], *shares]
        lines.append(f"| {' | '.join(map(str, cells))} | {row['cost']:.4f} |")
    return "\n".join([*lines, ""])


def _percent(share: float, low: float, high: float) -> str:
    return f"{share:.1%} [{100 * low:.1f}, {100 * high:.1f}]"


if __name__ == "__main__":
    main()
