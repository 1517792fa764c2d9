"""How far numbers are from those that another way to compute them gives."""

from torch import Tensor


def deviation(ours: Tensor, theirs: Tensor) -> float:
    """The norm of the difference over that of `theirs`; NaN where either holds no number."""
    ours, theirs = ours.double(), theirs.double()
    return float((ours - theirs).norm() / theirs.norm())
