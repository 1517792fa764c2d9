"""Choose the margin of the method `suffix` by a few rollouts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from citer.executors.base import Executor
from citer.labelling.labeller import Labeller, label_in_chunks
from citer.labelling.rollout import Rollout
from citer.labelling.suffix import MARGIN
from citer.models.sampling import stable_hash

SAMPLE = 200  # contested tokens that are rolled out


class Calibration(NamedTuple):
    """A margin in nats. With it, `equal` of `rolled_out` tokens get the label of their rollouts."""

    margin: float = MARGIN
    equal: int = 0
    rolled_out: int = 0

    def __str__(self) -> str:
        if not self.rolled_out:
            return f"suffix: margin {self.margin:g} nats; no row has an answer to calibrate it by"
        same = f"{self.equal} of {self.rolled_out} rolled-out tokens get the same label"
        return f"suffix: margin {self.margin:.2f} nats, calibrated: {same}"


def calibrate(
    executor: Executor, labeller: Labeller, rollout: Rollout, tokens: pa.Table, partial: Path
) -> Calibration:
    """Choose the margin for a `labeller` by `suffix`.

    Rolls out contested tokens of problems with answers, and keeps finished chunks in `partial`.
    """
    rows = sample(labeller, tokens, SAMPLE)
    if not len(rows):
        return Calibration()
    graded = replace(labeller, method=rollout)
    truth = label_in_chunks(executor, graded, rows, partial / "rollouts", "calibrate")
    falls = label_in_chunks(executor, labeller, rows, partial / "falls", "calibrate")
    fall = dict(zip(_keys(falls), falls["fall"].to_pylist(), strict=True))
    return choose([fall[key] for key in _keys(truth)], truth["label"].to_pylist())


def sample(labeller: Labeller, tokens: pa.Table, count: int) -> pa.Table:
    """Return `count` contested rows of problems with answers, or all if there are fewer.

    A row's rank depends on its problem and position only, so that the sample is the same in every
    run and hardly changes with the problems.
    """
    answered = [p.problem_id for p in labeller.problems.values() if p.answer is not None]
    graded = pc.is_in(tokens["problem_id"], pa.array(answered, pa.string())).to_numpy()
    row_M = np.flatnonzero((labeller.cases(tokens) == "contested") & graded)
    ranks = [stable_hash(f"{key}@{position}") for key, position in _keys(tokens.take(row_M))]
    return tokens.take(np.sort(row_M[np.argsort(ranks)[:count]]))


def choose(falls: Sequence[float], labels: Sequence[int]) -> Calibration:
    """Return the margin with the most equal labels, and of several the one nearest to MARGIN."""
    if not falls:
        return Calibration()
    fall_N, label_N = np.array(falls), np.array(labels)
    edges = np.unique(fall_N)
    edges = np.array([edges[0] - 1, *edges, edges[-1] + 1])
    margins = [MARGIN, *((edges[1:] + edges[:-1]) / 2).tolist()]
    equal = {margin: int(((fall_N <= margin) == label_N).sum()) for margin in margins}
    best = min(margins, key=lambda margin: (-equal[margin], abs(margin - MARGIN)))
    return Calibration(best, equal[best], len(falls))


def _keys(rows: pa.Table) -> list[tuple[str, int]]:
    both = (rows[name].to_pylist() for name in ("problem_id", "position"))
    return list(zip(*both, strict=True))
