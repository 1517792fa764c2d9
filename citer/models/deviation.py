"""The deviation between two computations of the same numbers."""

from torch import Tensor


def deviation(ours: Tensor, theirs: Tensor) -> float:
    """Return |ours - theirs| / |theirs|, in norms. It is NaN if either tensor has a NaN."""
    ours, theirs = ours.double(), theirs.double()
    return float((ours - theirs).norm() / theirs.norm())
