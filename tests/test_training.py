"""Training a head on features whose labels follow a plane, with noise."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from citer.config.params import TrainParams
from citer.data.splits import holdout_rows
from citer.errors import InputError
from citer.models.router import EXTRAS, Head, RouterMLP
from citer.stages.router0 import marginal_loss
from citer.training.router import (
    NARROW,
    Examples,
    OwnLoss,
    Trained,
    fit,
    holdout_loss,
    logistic,
    platt,
    train_head,
    train_logistic,
)

CPU = torch.device("cpu")
SEED = 3
WIDTH = 8


def _params(**changes: Any) -> TrainParams:
    settled = TrainParams(
        learning_rate=0.01, batch_size=64, epochs=30, patience=4, dropout=0.1, holdout=0.25
    )
    return settled.model_copy(update=changes)


def _data(rows: int = 800, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make features, labels of which 90 % are right, and problems of 20 rows each."""
    random = np.random.default_rng(seed)
    feature_NF = random.normal(size=(rows, WIDTH + EXTRAS)).astype(np.float16)
    clean_N = feature_NF[:, 0] + feature_NF[:, 1] > -1
    label_N = np.where(random.random(rows) < 0.1, ~clean_N, clean_N).astype(np.int8)
    return feature_NF, label_N, np.array([f"p{row // 20}" for row in range(rows)], dtype=object)


def _scores(head: Head, feature_NF: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return head.score(torch.from_numpy(feature_NF).float()).numpy()


def _state(trained: Trained) -> list[np.ndarray]:
    assert trained.head.mlp
    return [tensor.numpy() for tensor in trained.head.mlp.state_dict().values()]


def test_the_head_learns_more_than_a_constant() -> None:
    metrics = train_head(*_data(), _params(), SEED, CPU).metrics
    assert metrics["holdout_auc"] > 0.85
    assert metrics["holdout_loss_calibrated"] < 0.8 * metrics["holdout_loss_constant"]
    assert metrics["rows"] == 600
    assert metrics["holdout_rows"] == 200


def test_two_rows_of_a_question_are_held_out_together() -> None:
    keys = [f"q{n}" for n in range(40)]
    once_N = holdout_rows(np.array(keys), seed=3, share=0.25)
    twice_N = holdout_rows(np.array([*keys, *(f"{key}.llm" for key in keys)]), seed=3, share=0.25)
    assert once_N.sum() == 10
    assert twice_N.tolist() == [*once_N, *once_N]


def test_a_single_row_to_train_on_is_refused() -> None:
    feature_NF, label_N, _ = _data(rows=2)
    with pytest.raises(InputError, match="1 labelled token to train on, expected 2 or more"):
        train_head(feature_NF, label_N, np.array(["p0", "p1"]), _params(), SEED, CPU)


def test_the_constant_baseline_is_the_share_of_the_training_rows() -> None:
    data, params = _data(), _params(epochs=1)
    held_N = holdout_rows(data[2], SEED, params.holdout)
    trained_N, label_M = data[1][~held_N], data[1][held_N]
    share = (trained_N.sum() + 1) / (len(trained_N) + 2)
    expected = -np.log(np.where(label_M == 1, share, 1 - share)).mean()
    result = train_head(*data, params, SEED, CPU).metrics["holdout_loss_constant"]
    assert result == pytest.approx(expected)
    assert trained_N.mean() != pytest.approx(label_M.mean()), "the test could not fail"


def test_the_best_state_is_restored_instead_of_the_last() -> None:
    feature_NF, label_N, problem_N = _data(rows=200)
    held_N = holdout_rows(problem_N, seed=0, share=0.3)
    train_M, holdout_M = (torch.from_numpy(np.flatnonzero(side)) for side in (~held_N, held_N))
    examples = Examples(torch.from_numpy(feature_NF), torch.from_numpy(label_N).float(), CPU)
    torch.manual_seed(0)
    mlp = RouterMLP(WIDTH, dropout=0.0)
    params = _params(patience=5, epochs=100)
    losses = fit(mlp, examples, train_M, holdout_M, params, SEED).holdout_loss
    assert losses[-1] > min(losses), "training must have gone past its best"
    assert holdout_loss(mlp, examples, holdout_M) == min(losses)


def test_the_training_loss_is_the_mean_over_the_rows_of_the_epoch() -> None:
    """The steps are so small that the oracle may use the first weights for both batches."""
    data, params = _data(), _params(epochs=1, dropout=0.0, learning_rate=1e-9, batch_size=400)
    trained = train_head(*data, params, SEED, CPU)
    held_N = holdout_rows(data[2], SEED, params.holdout)
    torch.manual_seed(SEED)
    mlp = RouterMLP(WIDTH, params.dropout)
    order = torch.randperm(600, generator=torch.Generator().manual_seed(SEED))
    feature_NF, label_N = (torch.from_numpy(part[~held_N][order]).float() for part in data[:2])
    with torch.no_grad():
        logit_N = torch.cat([mlp(feature_BF) for feature_BF in feature_NF.split(400)])
    expected = -np.log(expit(np.where(label_N == 1, logit_N, -logit_N))).mean()
    assert trained.curve.train_loss == [pytest.approx(expected, rel=1e-5)]


def test_the_curve_has_both_losses_of_every_epoch() -> None:
    trained = train_head(*_data(), _params(), SEED, CPU)
    assert {len(losses) for losses in trained.curve} == {trained.metrics["epochs"]}
    assert min(trained.curve.holdout_loss) == trained.metrics["holdout_loss"]
    assert trained.curve.train_loss[-1] < trained.curve.train_loss[0]


def test_training_stops_when_patience_is_spent() -> None:
    for patience in (1, 3):
        metrics = train_head(*_data(), _params(patience=patience, epochs=100), SEED, CPU).metrics
        assert metrics["epochs"] == metrics["best_epoch"] + patience


def test_one_seed_gives_one_head_and_another_seed_another() -> None:
    first, again, other = (train_head(*_data(), _params(epochs=2), seed, CPU) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(_state(first), _state(again), strict=True))
    assert first.score_M.tolist() == again.score_M.tolist()
    assert first.metrics == again.metrics
    assert not all(np.array_equal(a, b) for a, b in zip(_state(first), _state(other), strict=True))


@pytest.mark.usefixtures("two_threads")
def test_the_number_of_threads_does_not_change_the_head() -> None:
    data, params = _data(rows=6000), _params(epochs=3, batch_size=2048)
    heads = []
    for count in (1, 4):
        torch.set_num_threads(count)
        heads.append(_state(train_head(*data, params, SEED, CPU)))
        assert torch.get_num_threads() == count
    assert all(np.array_equal(*both) for both in zip(*heads, strict=True))


def test_the_callers_random_numbers_do_not_change() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    train_head(*_data(), _params(epochs=1), SEED, CPU)
    assert torch.rand(3).equal(expected)


def test_a_last_batch_of_one_row_does_not_break_training() -> None:
    trained = train_head(*_data(), _params(batch_size=599, epochs=2), SEED, CPU)
    assert trained.metrics["rows"] == 600
    assert all(np.isfinite(array).all() for array in _state(trained))


def test_a_problem_is_never_in_both_training_and_holdout() -> None:
    problem_N = _data()[2]
    held_N = holdout_rows(problem_N, seed=1, share=0.25)
    held, trained = set(problem_N[held_N]), set(problem_N[~held_N])
    assert not held & trained
    assert len(held) == 10
    assert held != set(problem_N[holdout_rows(problem_N, seed=2, share=0.25)])


@pytest.mark.parametrize(("share", "expected"), [(0.001, 1), (0.999, 2)])
def test_neither_training_nor_holdout_is_ever_empty(share: float, expected: int) -> None:
    assert holdout_rows(np.array(["a", "b", "c"]), seed=0, share=share).sum() == expected


def test_a_learning_rate_that_diverges_is_named() -> None:
    with pytest.raises(InputError, match=r"train\.learning_rate"):
        train_head(*_data(), _params(learning_rate=1e30), SEED, CPU)


def test_platt_recovers_the_sigmoid_that_made_the_labels() -> None:
    random = np.random.default_rng(0)
    logit_N = random.normal(size=200_000)
    label_N = (random.random(200_000) < expit(2.0 * logit_N - 0.5)).astype(np.int8)
    slope, intercept = platt(logit_N, label_N)
    assert slope == pytest.approx(2.0, abs=0.05)
    assert intercept == pytest.approx(-0.5, abs=0.03)


def test_platt_stays_finite_on_separable_labels_and_makes_scores_average_its_targets() -> None:
    logit_N, label_N = np.array([-3.0, -1.0, 1.0, 2.0, 4.0]), np.array([0, 0, 1, 1, 1])
    slope, intercept = platt(logit_N, label_N)
    assert 0 < slope < 10
    targets = [1 / 4, 1 / 4, 4 / 5, 4 / 5, 4 / 5]
    assert expit(slope * logit_N + intercept).mean() == pytest.approx(np.mean(targets), abs=1e-4)


@pytest.mark.parametrize("only", [0, 1])
def test_labels_of_one_class_do_not_change_the_logits(only: int) -> None:
    assert platt(np.array([0.3, -2.0]), np.array([only, only])) == (1.0, 0.0)


def test_labels_of_one_class_still_make_a_head() -> None:
    feature_NF, label_N, problem_N = _data(rows=100)
    trained = train_head(feature_NF, np.ones_like(label_N), problem_N, _params(), SEED, CPU)
    assert "holdout_auc" not in trained.metrics
    assert trained.head.score(torch.from_numpy(feature_NF).float()).mean() > 0.9


def test_a_logistic_regression_finds_the_weights_that_made_the_labels() -> None:
    random = np.random.default_rng(0)
    weight_E = np.arange(EXTRAS) / 4.0
    feature_NF = random.normal(2.0, 3.0, (20_000, EXTRAS))
    mlp = logistic(feature_NF, random.random(20_000) < expit(feature_NF @ weight_E - 20))
    assert mlp.layers[0].weight[0].numpy() == pytest.approx(weight_E, abs=0.15)
    assert mlp.layers[0].bias.item() == pytest.approx(-20, abs=1.5)


def test_a_logistic_head_reads_the_numbers_of_certainty_alone() -> None:
    features, labels, problems = _data()
    informed = features.copy()
    informed[:, -1] = labels
    blind, told = (
        train_logistic(data, labels, problems, _params(), SEED, CPU)
        for data in (features, informed)
    )
    probe_NF = torch.from_numpy(informed).float()
    assert blind.score(probe_NF).std() < 0.1 < told.score(probe_NF).std()
    changed = probe_NF.clone()
    changed[:, :WIDTH] = 0
    assert torch.equal(told.score(changed), told.score(probe_NF))


@pytest.mark.parametrize("only", [0, 1])
def test_a_logistic_regression_of_one_class_is_sure_of_it(only: int) -> None:
    features, labels, problems = _data()
    head = train_logistic(features, np.full_like(labels, only), problems, _params(), SEED, CPU)
    score_N = head.score(torch.from_numpy(features).float())
    assert torch.allclose(score_N, torch.tensor(float(only)), atol=1e-5)


def test_the_scores_of_a_trained_head_are_those_of_its_held_out_rows() -> None:
    data, params = _data(), _params(epochs=2)
    trained = train_head(*data, params, SEED, CPU)
    held_M = np.flatnonzero(holdout_rows(data[2], SEED, params.holdout))
    assert trained.holdout_M.tolist() == held_M.tolist()
    score_M = _scores(trained.head, data[0][held_M])
    assert trained.score_M == pytest.approx(score_M, abs=1e-6)


def test_a_logistic_regression_is_scikit_learns() -> None:
    """The penalty is half of the squared weights of standardised features."""
    feature_NF, label_N, _ = _data()
    feature_NF = feature_NF.astype(np.float64) * np.arange(1, WIDTH + EXTRAS + 1)
    mlp = logistic(feature_NF, label_N)
    expected = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-10, max_iter=1000))
    expected.fit(feature_NF, label_N)
    logit_N = mlp(torch.from_numpy(feature_NF).float()).numpy()
    assert logit_N == pytest.approx(expected.decision_function(feature_NF), abs=1e-3)


def test_a_logistic_regression_takes_any_loss() -> None:
    def loss(logit_N: torch.Tensor, target_N: torch.Tensor) -> torch.Tensor:
        return (logit_N - target_N).square().mean()

    feature_NF, _, _ = _data()
    wanted_N = 3.0 - 2.0 * feature_NF[:, 0].astype(np.float64)
    mlp = logistic(feature_NF, wanted_N, loss)
    assert mlp(torch.from_numpy(feature_NF).float()).numpy() == pytest.approx(wanted_N, abs=0.02)


def test_a_head_by_another_loss_is_calibrated_by_labels() -> None:
    """Both kinds of heads learn which model expects the token: the SLM where x is positive."""
    feature_NF, _, problem_N = _data()
    x_N = feature_NF[:, -1].astype(np.float64)
    logprob_N2 = np.stack([np.zeros_like(x_N), -4 * x_N], 1)
    given = feature_NF, logprob_N2, problem_N, _params(), SEED, CPU
    label_N = (x_N > 0) == (np.random.default_rng(SEED).random(len(x_N)) < 0.75)
    held_N = holdout_rows(problem_N, SEED, _params().holdout)
    own = OwnLoss(marginal_loss, label_N)
    trained, head = train_head(*given, NARROW, own), train_logistic(*given, own)
    assert trained.metrics == {}
    assert trained.head.mlp
    assert trained.head.mlp.hidden_size == NARROW == 8
    for each in (trained.head, head):
        score_N = _scores(each, feature_NF)
        assert score_N[x_N > 1].mean() > 0.7 > 0.3 > score_N[x_N < -1].mean()
        raw_M = _scores(Head(each.mlp), feature_NF[held_N])
        calibrated = platt(np.log(raw_M / (1 - raw_M)), label_N[held_N])
        assert (each.slope, each.intercept) == pytest.approx(calibrated, abs=5e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_head_trained_on_cuda_learns_the_same_thing() -> None:
    trained = train_head(*_data(), _params(), SEED, torch.device("cuda"))
    assert trained.metrics["holdout_auc"] > 0.85
