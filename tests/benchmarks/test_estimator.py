"""The estimator of docs/examples: its Newton step, against a dense solution of the same system."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "docs/examples/estimator.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("estimator_example", EXAMPLE)
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_hundred_rounds_move_the_estimator_by_a_damped_newton_step(example: ModuleType) -> None:
    places, rng = 4, np.random.default_rng(7)
    estimator = example.Estimator(places)
    rounds = [(rng.normal(2, 1, places).tolist(), int(rng.integers(places + 1))) for _ in range(99)]
    rows, label_N, place_N = [], [], []
    for odds, accepted in [*rounds, ([1.0], 0)]:
        for place, feature in enumerate(odds[: accepted + 1]):
            rows.append([feature, *np.eye(places)[place]])
            label_N.append(place < accepted)
            place_N.append(place)
        before = estimator.slope, estimator.intercept_K.copy()
        estimator.learn(odds, accepted)
    row_NF, start_F = np.array(rows), np.array([before[0], *before[1]])
    p_N = 1 / (1 + np.exp(-row_NF @ start_F))
    hessian_FF = row_NF.T @ (row_NF * (p_N * (1 - p_N))[:, None]) + 1e-3 * np.eye(places + 1)
    step_F = np.linalg.solve(hessian_FF, row_NF.T @ (np.array(label_N) - p_N))
    n_K = np.bincount(place_N, minlength=places)
    slope = step_F[0] * n_K.sum() / (n_K.sum() + 50)
    assert estimator.slope - before[0] == pytest.approx(slope)
    # The intercepts' own step goes with the damped one of the slope.
    gradient_K = row_NF[:, 1:].T @ (np.array(label_N) - p_N)
    coupled_K = hessian_FF[0, 1:] * slope
    moved_K = (gradient_K - coupled_K) / np.diag(hessian_FF)[1:] * n_K / (n_K + 50)
    assert estimator.intercept_K - before[1] == pytest.approx(moved_K)


def test_an_exact_rule_visits_at_each_first_draft_that_differs(example: ModuleType) -> None:
    agrees = [True, True, False, True, True, True]
    scores = {"largest probability": [0.9, 0.6, 0.9, 0.9, 0.9, 0.5]}
    answer = example.Forced(5, agrees, scores, [])
    visits = example.visits(answer, 0.6, "largest probability", example.Estimator(16))
    found = [(visit.drafted, visit.seen, visit.kept) for visit in visits]
    # .9 * .6 < .6 after two drafts, both kept; then .9 * .9 * .5 < .6 after three.
    assert found == [(2, 2, 2), (3, 5, 6)]
