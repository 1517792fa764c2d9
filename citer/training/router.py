"""Train a head of a router on features and labels, and calibrate its scores."""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.metrics import log_loss, roc_auc_score
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from citer.config.params import TrainParams
from citer.data.splits import holdout_rows
from citer.errors import InputError
from citer.models.router import EXTRAS, Head, RouterMLP
from citer.progress import progress

INFERENCE_ROWS = 8192
NARROW = 8  # the width of the small MLPs
ROUNDS = 200  # of a logistic regression, at most


Loss = Callable[[Tensor, Tensor], Tensor]


class OwnLoss(NamedTuple):
    """A loss of targets that are no labels, and the labels that calibrate the scores."""

    loss: Loss
    label_N: np.ndarray


class Curve(NamedTuple):
    """Mean cross-entropy in nats, by epoch.

    `train_loss` is that of the batches of the epoch, as the weights change and with dropout, so
    it may lie above `holdout_loss`.
    """

    train_loss: list[float]
    holdout_loss: list[float]


class Trained(NamedTuple):
    head: Head
    metrics: dict[str, float]
    curve: Curve
    holdout_M: np.ndarray  # indices of the held-out rows
    score_M: np.ndarray  # their calibrated scores


@dataclass(frozen=True)
class Examples:
    """feature_NF (float16) and target_N in main memory. Batches are moved to `device`."""

    feature_NF: Tensor
    target_N: Tensor
    device: torch.device
    loss: Loss = binary_cross_entropy_with_logits  # of logit_B and target_B, or target_BK

    def batch(self, row_B: Tensor) -> tuple[Tensor, Tensor]:
        feature_BF = self.feature_NF[row_B].to(self.device).float()
        return feature_BF, self.target_N[row_B].to(self.device)

    def apply(self, function: Callable[[Tensor], Tensor], row_M: Tensor) -> Tensor:
        """Compute function(feature_BF) batch by batch, and return all results on the CPU."""
        with torch.inference_mode():
            parts = [function(self.batch(row_B)[0]) for row_B in row_M.split(INFERENCE_ROWS)]
        return torch.cat(parts).cpu()


def train_head(
    feature_NF: np.ndarray,
    target_N: np.ndarray,
    problem_N: np.ndarray,
    params: TrainParams,
    seed: int,
    device: torch.device,
    hidden_size: int | None = None,
    own: OwnLoss | None = None,
) -> Trained:
    """Train a head. Held-out problems decide when training stops, and calibrate the scores.

    `feature_NF`, `target_N` and `problem_N` (problem ids) have one row per labelled token. The MLP
    is as wide as the SLM's state, or as `hidden_size`.

    Without an `own` loss, the targets are labels. A head by another loss has no metrics. Raises
    InputError if there are too few problems, or if training diverges.
    """
    held_N = holdout_rows(problem_N, seed, params.holdout)
    targets = torch.from_numpy(feature_NF), torch.tensor(target_N).float()
    loss, label_N = own or OwnLoss(binary_cross_entropy_with_logits, target_N)
    examples = Examples(*targets, device, loss)
    mlp, curve = _fitted(examples, held_N, params, seed, hidden_size)
    holdout_M = _rows(held_N)
    logit_M = examples.apply(mlp, holdout_M).double().numpy()
    head = Head(mlp, *platt(logit_M, label_N[held_N]))
    score_M = examples.apply(head.score, holdout_M).double().numpy()
    metrics = {} if own else _metrics(score_M, target_N[held_N], target_N[~held_N], curve)
    return Trained(head, metrics, curve, holdout_M.numpy(), score_M)


def train_logistic(
    feature_NF: np.ndarray,
    target_N: np.ndarray,
    problem_N: np.ndarray,
    params: TrainParams,
    seed: int,
    device: torch.device,
    own: OwnLoss | None = None,
) -> Head:
    """Fit a logistic regression on the last `EXTRAS` features, not on the hidden state.

    The problems that `train_head` holds out calibrate it. An `own` loss is as in `train_head`.
    """
    held_N = holdout_rows(problem_N, seed, params.holdout)
    extra_NE = feature_NF[:, -EXTRAS:].astype(np.float32)
    loss, label_N = own or OwnLoss(binary_cross_entropy_with_logits, target_N)
    mlp = logistic(extra_NE[~held_N], target_N[~held_N], loss)
    with torch.inference_mode():
        logit_M = mlp(torch.from_numpy(extra_NE[held_N])).double().numpy()
    return Head(mlp.to(device), *platt(logit_M, label_N[held_N]))


def logistic(
    feature_NF: np.ndarray, target_N: np.ndarray, loss: Loss = binary_cross_entropy_with_logits
) -> RouterMLP:
    """Fit a linear logit on standardised features, and return it as an MLP without hidden layers.

    Half of the squared weights is added to the sum of the losses, as in scikit-learn.
    """
    raw_NF, wanted_N = torch.from_numpy(feature_NF).double(), torch.tensor(target_N).double()
    mean_F, scale_F = raw_NF.mean(0), raw_NF.std(0, correction=0)
    scale_F[scale_F == 0] = 1
    scaled_NF = (raw_NF - mean_F) / scale_F
    weight_F, bias = (mean_F.new_zeros(size).requires_grad_() for size in (len(mean_F), ()))
    optimizer = torch.optim.LBFGS(
        [weight_F, bias], max_iter=ROUNDS, tolerance_grad=1e-7, line_search_fn="strong_wolfe"
    )

    def penalised() -> Tensor:
        optimizer.zero_grad()
        penalty = weight_F.square().sum() / (2 * len(raw_NF))
        total = loss(scaled_NF @ weight_F + bias, wanted_N) + penalty
        total.backward()
        return total

    with _one_thread():
        optimizer.step(penalised)
    mlp = RouterMLP(0, 0.0, len(mean_F)).eval().requires_grad_(False)
    weight_F = weight_F.detach() / scale_F
    fitted = {"weight": weight_F[None], "bias": (bias.detach() - weight_F @ mean_F)[None]}
    mlp.layers[0].load_state_dict(fitted)
    return mlp


def _fitted(
    examples: Examples, held_N: np.ndarray, params: TrainParams, seed: int, hidden_size: int | None
) -> tuple[RouterMLP, Curve]:
    """Train a new MLP. Return it with its losses after each epoch."""
    if (~held_N).sum() < 2:  # batch norm needs two rows
        raise InputError("preference split: 1 labelled token to train on, expected 2 or more")
    device, inputs = examples.device, examples.feature_NF.shape[1]
    with torch.random.fork_rng([device] if device.type == "cuda" else []), _one_thread():
        torch.manual_seed(seed)
        mlp = RouterMLP(hidden_size or inputs - EXTRAS, params.dropout, inputs).to(device)
        return mlp, fit(mlp, examples, _rows(~held_N), _rows(held_N), params, seed)


def _rows(mask_N: np.ndarray) -> Tensor:
    return torch.from_numpy(np.flatnonzero(mask_N))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread. Another number of threads would change the last bits of the weights."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def fit(
    mlp: RouterMLP,
    examples: Examples,
    train_M: Tensor,
    holdout_M: Tensor,
    params: TrainParams,
    seed: int,
) -> Curve:
    """Train with early stopping, and leave `mlp` in its best state and in evaluation mode."""
    optimizer = torch.optim.AdamW(mlp.parameters(), lr=params.learning_rate)
    shuffling = torch.Generator().manual_seed(seed)
    curve, best = Curve([], []), dict[str, Tensor]()
    losses = curve.holdout_loss
    with progress("train", params.epochs, "epochs") as advance:
        while len(losses) < params.epochs and not _stalled(losses, params.patience):
            order = torch.randperm(len(train_M), generator=shuffling)
            batches = train_M[order].split(params.batch_size)
            curve.train_loss.append(_train_epoch(mlp, examples, batches, optimizer))
            losses.append(holdout_loss(mlp, examples, holdout_M))
            if losses.index(min(losses)) == len(losses) - 1:
                best = copy.deepcopy(mlp.state_dict())
            advance(1)
    mlp.load_state_dict(best)
    mlp.eval()  # no epoch may be left to run
    return curve


def _stalled(losses: list[float], patience: int) -> bool:
    return len(losses) > patience and min(losses[-patience:]) >= min(losses[:-patience])


def _train_epoch(
    mlp: RouterMLP,
    examples: Examples,
    batches: tuple[Tensor, ...],
    optimizer: torch.optim.Optimizer,
) -> float:
    """Return the mean cross-entropy of the rows, in nats."""
    mlp.train()
    usable = [row_B for row_B in batches if len(row_B) > 1]  # the next epoch shuffles again
    total = torch.zeros((), dtype=torch.float64, device=examples.device)
    for row_B in usable:
        feature_BF, label_B = examples.batch(row_B)
        loss = examples.loss(mlp(feature_BF), label_B)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += len(row_B) * loss.detach()
    return total.item() / sum(map(len, usable))


def holdout_loss(mlp: RouterMLP, examples: Examples, holdout_M: Tensor) -> float:
    """Return the mean loss in nats, before calibration. Raises InputError if it is not finite."""
    mlp.eval()
    logit_M = examples.apply(mlp, holdout_M)
    loss = examples.loss(logit_M, examples.target_N[holdout_M]).item()
    if not math.isfinite(loss):
        raise InputError(f"train.learning_rate: the holdout loss became {loss}, expected a number")
    return loss


def _metrics(
    score_M: np.ndarray, held_M: np.ndarray, trained_N: np.ndarray, curve: Curve
) -> dict[str, float]:
    # The constant score is the share of ones in training.
    share = (trained_N.sum() + 1) / (len(trained_N) + 2)
    metrics = {
        "rows": len(trained_N),
        "holdout_rows": len(held_M),
        "label_share": float(trained_N.mean()),
        "holdout_label_share": float(held_M.mean()),
        "holdout_loss_calibrated": float(log_loss(held_M, score_M, labels=[0, 1])),
        "holdout_loss_constant": float(
            log_loss(held_M, np.full(len(held_M), share), labels=[0, 1])
        ),
    }
    if 0 < held_M.mean() < 1:
        metrics["holdout_auc"] = float(roc_auc_score(held_M, score_M))
    least, losses = min(curve.holdout_loss), curve.holdout_loss
    best = {"epochs": len(losses), "best_epoch": 1 + losses.index(least)}
    return metrics | {"holdout_loss": least} | best


def platt(logit_N: np.ndarray, label_N: np.ndarray) -> tuple[float, float]:
    """Fit slope and intercept of P(1) = sigmoid(slope * logit + intercept).

    Platt (1999). His targets keep the fit finite for separable labels. Returns (1, 0) if all
    labels are equal.
    """
    positives = int(label_N.sum())
    negatives = len(label_N) - positives
    if not positives or not negatives:
        return 1.0, 0.0
    target_N = np.where(label_N == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))

    def loss_and_gradient(weights: np.ndarray) -> tuple[float, np.ndarray]:
        z_N = weights[0] * logit_N + weights[1]
        error_N = expit(z_N) - target_N
        loss = np.mean(np.logaddexp(0, z_N) - target_N * z_N)
        return loss, np.array([np.mean(error_N * logit_N), np.mean(error_N)])

    slope, intercept = minimize(loss_and_gradient, (1.0, 0.0), jac=True, method="BFGS").x.tolist()
    return slope, intercept
