"""Calibrate a head's scores on held-out labels, and compute thresholds from them."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

FRACTIONS = tuple(step / 200 for step in range(201))


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


def thresholds(score_N: np.ndarray) -> dict[str, float]:
    """Compute τ for each of `FRACTIONS`: midway between two scores, or 0 for none and 1 for all."""
    ordered_N = np.sort(score_N)
    midpoints = np.concatenate([[0.0], (ordered_N[:-1] + ordered_N[1:]) / 2, [1.0]])
    below = np.rint(np.array(FRACTIONS) * len(ordered_N)).astype(int)
    taus = midpoints[below].tolist()
    return {f"{fraction:g}": tau for fraction, tau in zip(FRACTIONS, taus, strict=True)}
