"""Where another byte of cache stops paying: economic knee, cliffs, and the geometric knee as a label.

A value curve is given on a grid of capacities: axis 0 is the grid, increasing, the other axes are the
study's (A); a grid of shape (n,) serves curves of shape (n,) + A. Values may be hit tokens, seconds saved or
USD/s; a rent is value per unit of capacity in the same units. LRU curves of sessions are convex before the
working set fits, so marginal values are taken on the concave hull: greedy steps on the raw curve would stop
before the cliff.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Cliff",
    "EconomicKnee",
    "GeometricKnee",
    "capacity_within",
    "cliff",
    "concave_hull",
    "economic_knee",
    "geometric_knee",
    "marginal_value",
]

Array = NDArray[Any]


class EconomicKnee(NamedTuple):
    """Grid points, shape A; an edge flag says that the grid ends before the answer."""

    capacity: Array
    low: Array  # best capacity at a rent 20 % higher
    high: Array  # best capacity at a rent 20 % lower
    at_lower_edge: Array
    at_upper_edge: Array


class Cliff(NamedTuple):
    """The widest bridge of the hull over the curve, shape A."""

    start: Array  # capacity before the rise
    end: Array  # capacity at which the working set fits
    rise: Array  # value gained from start to end
    depth: Array  # largest distance of the curve below the hull
    present: Array  # depth is more than `least` of the curve's range


class GeometricKnee(NamedTuple):
    capacity: Array
    prominence: Array  # largest distance above the diagonal, 0 to 1
    axis: str


def _grid(capacity: ArrayLike, value: ArrayLike, study_axes: int = 0) -> tuple[Array, Array]:
    """Both with the grid on axis 0 and at least `study_axes` aligned axes behind it."""
    capacity, value = np.asarray(capacity, float), np.asarray(value, float)
    ndim = max(capacity.ndim, value.ndim, study_axes + 1)
    aligned = [a.reshape(a.shape[:1] + (1,) * (ndim - a.ndim) + a.shape[1:]) for a in (capacity, value)]
    return tuple(np.broadcast_arrays(*aligned))


def marginal_value(capacity: ArrayLike, value: ArrayLike) -> Array:
    """Slope of the concave hull between neighbouring capacities, shape (n - 1,) + A [value per unit of
    capacity].

    slope_j = min_{a <= j} max_{b > j} (V_b - V_a)/(C_b - C_a): the min-max form of the least concave
    majorant. Never increasing; equal to the curve's own slope where the curve is concave. Needs n^2 numbers
    per curve.
    """
    x, v = _grid(capacity, value)
    n = len(x)
    run, rise = x[None, :] - x[:, None], v[None, :] - v[:, None]
    ahead = np.arange(n)[None, :] > np.arange(n)[:, None]
    ahead = ahead.reshape((n, n) + (1,) * (x.ndim - 1))
    chord = np.where(ahead, rise / np.where(ahead, run, 1.0), -np.inf)
    best_ahead = np.maximum.accumulate(chord[:, ::-1], axis=1)[:, ::-1]
    worst_start = np.minimum.accumulate(best_ahead, axis=0)
    j = np.arange(n - 1)
    return worst_start[j, j + 1]


def concave_hull(capacity: ArrayLike, value: ArrayLike) -> Array:
    """Least concave curve above the values, on the same grid, shape (n,) + A. What a cache split in two
    reaches (Talus)."""
    x, v = _grid(capacity, value)
    return np.concatenate([v[:1], v[:1] + np.cumsum(marginal_value(x, v) * np.diff(x, axis=0), axis=0)])


def economic_knee(capacity: ArrayLike, value: ArrayLike, rent: ArrayLike, margin: float = 0.2) -> EconomicKnee:
    """Capacity with the largest value minus rent: where the hull's marginal value equals the rent.

    rent [value per unit of capacity], shape A; `low` and `high` are the knees at (1 + margin) and (1 -
    margin) times the rent. The optimum of V(C) - rent C over the grid is a vertex of the hull, so no slope
    is estimated; resolution is the grid's. Zero rent gives the smallest capacity of the largest value, an
    infinite one the smallest capacity.
    """
    rent = np.asarray(rent, float)
    x, v = _grid(capacity, value, rent.ndim)
    cost = np.where(np.isinf(rent), np.finfo(float).max ** 0.5, rent)
    at = [np.argmax(v - factor * cost * x, axis=0) for factor in (1.0, 1.0 + margin, 1.0 - margin)]
    picked = [np.take_along_axis(np.broadcast_to(x, x.shape[:1] + a.shape), a[None], axis=0)[0] for a in at]
    return EconomicKnee(*picked, at[0] == 0, at[0] == len(x) - 1)


def capacity_within(capacity: ArrayLike, value: ArrayLike, share: ArrayLike = 0.99) -> Array:
    """Smallest capacity whose value reaches `share` of the largest, straight between grid points, shape A."""
    x, v = _grid(capacity, value)
    wanted = share * v.max(axis=0)
    at = np.maximum(np.argmax(v >= wanted, axis=0), 1)[None]
    x0, x1, v0, v1 = (np.take_along_axis(a, i, axis=0)[0] for a, i in ((x, at - 1), (x, at), (v, at - 1), (v, at)))
    return x0 + (x1 - x0) * np.clip((wanted - v0) / np.where(v1 > v0, v1 - v0, 1.0), 0.0, 1.0)


def cliff(capacity: ArrayLike, value: ArrayLike, least: float = 0.02) -> Cliff:
    """The cliff of the curve, if it has one: the hull segment under which the curve hangs deepest.

    Before `start` more capacity pays by itself; between `start` and `end` it pays little until the working
    set fits. `present` is false where the curve is concave within `least` of its range; then start, end and
    rise mean nothing.
    """
    x, v = _grid(capacity, value)
    gap = concave_hull(x, v) - v
    span = np.maximum(v.max(axis=0) - v.min(axis=0), 1e-300)
    deepest = np.argmax(gap, axis=0)[None]
    index = np.arange(len(x)).reshape((-1,) + (1,) * (x.ndim - 1))
    touching = gap <= 1e-9 * span
    start = np.max(np.where(touching & (index <= deepest), index, 0), axis=0)[None]
    end = np.min(np.where(touching & (index >= deepest), index, len(x) - 1), axis=0)[None]
    x0, x1, v0, v1 = (np.take_along_axis(a, i, axis=0)[0] for a, i in ((x, start), (x, end), (v, start), (v, end)))
    return Cliff(x0, x1, v1 - v0, gap.max(axis=0), gap.max(axis=0) > least * span)


def geometric_knee(capacity: ArrayLike, value: ArrayLike, axis: Literal["linear", "log"] = "linear") -> GeometricKnee:
    """Point farthest above the diagonal of the unit square (Kneedle, Satopaa et al. 2011, offline,
    sensitivity aside).

    A label only: it moves with the range of the grid and with the axis, and knows no price. `axis` scales
    the capacity.
    """
    x, v = _grid(capacity, value)
    scale = np.log(x) if axis == "log" else x
    across = (scale - scale[:1]) / (scale[-1:] - scale[:1])
    span = v.max(axis=0) - v.min(axis=0)
    above = (v - v.min(axis=0)) / np.where(span > 0.0, span, 1.0) - across
    at = np.argmax(above, axis=0)[None]
    return GeometricKnee(np.take_along_axis(x, at, axis=0)[0], above.max(axis=0), axis)
