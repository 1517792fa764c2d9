"""Place the names of lines beside them, so that few marks lie under a name."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

STEP = 0.5  # between the points of a line that a name should not cover, in heights of a name
GAP = 5.0  # between a name and its line
HIDDEN = 1000  # the badness of a name on another, per point of a line under a name
STRANGE = 3  # the badness of another line nearer than the own one
SHARED = 6  # the badness of a place where another line runs along the own one
FAR = 1e9  # a place that is near to none
SIDES = np.array([(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if (x, y) != (0, 0)], float)


class Box(NamedTuple):
    left: float
    low: float
    right: float
    high: float


class Name(NamedTuple):
    """A name of this size for a line with these corners, an array of (x, y)."""

    line: np.ndarray
    width: float
    height: float


def place(names: Sequence[Name], inside: Box) -> list[tuple[float, float] | None]:
    """Return the centre of each name, or None for a line that is nowhere `inside`.

    All numbers are in pixels, in either direction. A name is put beside a point of its line, at the
    place with the least badness. Points choose before lines, which have more places, and earlier
    names before later ones.
    """
    step = STEP * min((name.height for name in names), default=1.0)
    lines = [_visible(name.line, inside, step) for name in names]
    taken: list[Box] = []
    centres: list[tuple[float, float] | None] = [None] * len(names)
    for number in sorted(range(len(names)), key=lambda number: len(lines[number]) > 1):
        if len(lines[number]):
            x, y = centres[number] = _best(names[number], lines, number, taken, inside)
            taken.append(_around(x, y, names[number]))
    return centres


def _visible(line: np.ndarray, inside: Box, step: float) -> np.ndarray:
    """Return points of a line, `step` pixels apart, that are inside the box."""
    points = np.concatenate([line[:1], *_between(line, step)])
    low, high = np.array(inside[:2]), np.array(inside[2:])
    return points[((points >= low) & (points <= high)).all(1)]


def _between(line: np.ndarray, step: float) -> Iterator[np.ndarray]:
    for start, end in pairwise(line):
        count = max(1, int(np.hypot(*(end - start)) / step))
        yield start + (end - start) * np.linspace(0, 1, count + 1)[1:, None]


def _around(x: float, y: float, name: Name) -> Box:
    return Box(x - name.width / 2, y - name.height / 2, x + name.width / 2, y + name.height / 2)


def _best(
    name: Name, lines: Sequence[np.ndarray], own: int, taken: Sequence[Box], inside: Box
) -> tuple[float, float]:
    half = np.array([name.width, name.height]) / 2
    beside = lines[own][::2]
    centres = (beside[:, None] + SIDES * (half + GAP)).reshape(-1, 2)
    centres = np.clip(centres, inside[:2] + half, inside[2:] - half)
    others = np.concatenate([np.full((1, 2), FAR), *lines[:own], *lines[own + 1 :]])
    badness = _covered(centres, half, lines[own]) + _covered(centres, half, others)
    for box in taken:
        badness += HIDDEN * _overlaps(centres, half, box)
    nearest = _distance(centres, half, others)
    badness += STRANGE * (nearest <= _distance(centres, half, lines[own]))
    apart = _distance(beside, np.zeros(2), others) / (2 * name.height)
    badness += SHARED * np.repeat(np.clip(1 - apart, 0, 1), len(SIDES))
    x, y = centres[int(np.argmin(badness))]
    return float(x), float(y)


def _covered(centres: np.ndarray, half: np.ndarray, line: np.ndarray) -> np.ndarray:
    """Count the points of a line under a name at each centre."""
    return (np.abs(centres[:, None] - line) <= half + 1).all(2).sum(1).astype(float)


def _overlaps(centres: np.ndarray, half: np.ndarray, box: Box) -> np.ndarray:
    middle = (np.array(box[:2]) + box[2:]) / 2
    reach = half + (np.array(box[2:]) - box[:2]) / 2
    return (np.abs(centres - middle) < reach).all(1)


def _distance(centres: np.ndarray, half: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the distance from a name at each centre to the nearest of the points."""
    outside = np.maximum(np.abs(centres[:, None] - points) - half, 0)
    return np.hypot(outside[..., 0], outside[..., 1]).min(1)
