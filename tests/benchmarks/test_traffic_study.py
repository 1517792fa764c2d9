"""The simulated streams against the evidence that a server keeps."""

import numpy as np
import pytest

from benchmarks import traffic
from citer.serving.martingales import Detector, Product


def test_alarms_are_those_of_the_servers_own_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "STREAMS", 20)
    monkeypatch.setattr(traffic, "ANSWERS", 400)
    found = traffic.alarms(lambda n: 0.05 if n < 200 else 0.25)
    random = np.random.default_rng(traffic.SEED)
    lost_NS = np.array([random.random(20) < (0.05 if n < 200 else 0.25) for n in range(400)])
    assert found["detector"].tolist() == [
        _first(Detector(), losses, traffic.FALSE_ALARMS) for losses in lost_NS.T
    ]
    assert found["e-process"].tolist() == [
        _first(Product(), losses, 1 / traffic.DELTA) for losses in lost_NS.T
    ]
    counts = np.lib.stride_tricks.sliding_window_view(lost_NS, traffic.WINDOW, axis=0).sum(-1)
    for name, least in (("window", 25), ("loose window", 21)):  # P(K ≥ 25) = 3e-5
        late = [np.flatnonzero(column >= least) for column in counts.T]
        assert found[name].tolist() == [
            int(each[0]) + traffic.WINDOW - 1 if len(each) else 400 for each in late
        ]
    assert any(each < 400 for each in found["window"])


def _first(evidence: Detector | Product, losses: np.ndarray, bound: float) -> int:
    for n, lost in enumerate(losses):
        evidence.take(bool(lost), traffic.LIMIT)
        if evidence.value >= bound:
            return n
    return len(losses)
