"""The margin of `suffix`: chosen falls and labels, and a calibration on a taught pair."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from citer.decoding.engine import Engine
from citer.decoding.policy import SLM_ALONE
from citer.executors.base import InLine
from citer.labelling import suffix
from citer.labelling.labeller import Labeller, Rollout
from citer.labelling.suffix import MARGIN, Calibration, Suffix, calibrate, choose, sample
from tests.labelling.conftest import Taught


@pytest.mark.parametrize(
    ("falls", "labels", "margin", "equal"),
    [
        ([0.1, 3.0, 5.0, 9.0], [1, 1, 0, 0], MARGIN, 4),  # 4 nats is among the best
        ([0.1, 1.0, 3.0, 9.0], [1, 1, 0, 0], 2.0, 4),
        ([0.1, 5.0, 7.0, 9.0], [1, 1, 0, 0], 6.0, 4),
        ([1.0, 2.0, 8.0, 9.0], [1, 0, 1, 0], 1.5, 3),
        ([5.0, 6.0], [1, 1], 6.5, 2),
        ([5.0, 6.0], [0, 0], MARGIN, 2),
        ([1.0, 2.0], [0, 0], 0.5, 2),
    ],
)
def test_the_margin_with_the_most_equal_labels(
    falls: list[float], labels: list[int], margin: float, equal: int
) -> None:
    chosen = choose(falls, labels)
    assert (chosen.margin, chosen.rolled_out) == (margin, len(falls))
    assert chosen.equal == sum((f <= margin) == bool(y) for f, y in zip(falls, labels, strict=True))
    assert chosen.equal == equal


@pytest.mark.parametrize(("last", "margin"), [(6.5, 5.75), (9.0, 2.0)])
def test_of_equally_good_margins_the_one_nearest_to_4_nats(last: float, margin: float) -> None:
    """Two margins give three equal labels, and 4 nats gives two."""
    assert choose([1.0, 3.0, 5.0, last], [1, 0, 1, 0]).margin == margin


@pytest.fixture
def labeller(taught: Taught, monkeypatch: pytest.MonkeyPatch) -> Labeller:
    monkeypatch.setattr(suffix, "SAMPLE", 20)
    return Labeller(taught.problems, taught.examples, Suffix(taught.pair, 4), 1)


def test_the_sample_is_the_same_for_fewer_problems(taught: Taught, labeller: Labeller) -> None:
    rows = sample(labeller, taught.tokens, 20).to_pylist()
    assert len(rows) == 20
    assert rows == sorted(rows, key=taught.tokens.to_pylist().index)
    unanswered = {key: replace(p, answer=None) for key, p in taught.problems.items()}
    some = unanswered | {"math-0": taught.problems["math-0"], "mc-1": taught.problems["mc-1"]}
    fewer = sample(replace(labeller, problems=some), taught.tokens, 20).to_pylist()
    assert {row["problem_id"] for row in fewer} == {"math-0", "mc-1"}
    assert [row for row in rows if row["problem_id"] in ("math-0", "mc-1")] == [
        row for row in fewer if row in rows
    ]


def test_the_sample_does_not_depend_on_the_order_of_rows(
    taught: Taught, labeller: Labeller
) -> None:
    def sampled(tokens: pa.Table, count: int) -> set[tuple[str, int]]:
        rows = sample(labeller, tokens, count).to_pylist()
        return {(row["problem_id"], row["position"]) for row in rows}

    backwards = taught.tokens.take(np.arange(len(taught.tokens))[::-1])
    assert len(sampled(taught.tokens, 1000)) > 20
    assert sampled(backwards, 20) == sampled(taught.tokens, 20)


def test_the_margin_agrees_with_the_rollouts_of_the_sample(
    taught: Taught, labeller: Labeller, tmp_path: Path
) -> None:
    rollout = Rollout(Engine(taught.pair, 8, 20), SLM_ALONE)
    calibrated = calibrate(InLine(), labeller, rollout, taught.tokens, tmp_path)
    assert calibrated.rolled_out == 20
    rows = sample(labeller, taught.tokens, 20)
    tuned = replace(labeller, method=Suffix(taught.pair, 4, calibrated.margin))
    ours, truth = (
        each.label(rows, lambda _: None)["label"].to_pylist()
        for each in (tuned, replace(labeller, method=rollout))
    )
    assert calibrated.equal == sum(a == b for a, b in zip(ours, truth, strict=True))
    assert calibrate(InLine(), labeller, rollout, taught.tokens, tmp_path) == calibrated


def test_without_answers_the_margin_is_the_constant(
    taught: Taught, labeller: Labeller, tmp_path: Path
) -> None:
    problems = {key: replace(p, answer=None) for key, p in taught.problems.items()}
    rollout = Rollout(Engine(taught.pair, 8, 20), SLM_ALONE)
    found = calibrate(
        InLine(), replace(labeller, problems=problems), rollout, taught.tokens, tmp_path
    )
    assert found == Calibration(MARGIN, 0, 0)
    assert not list(tmp_path.iterdir())
