"""Counts, means and percentiles of values that each stand for many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

PERCENTS = (1, 5, 10, 25, 50, 75, 90, 95, 99, 100)


def distribution(value: np.ndarray, weight: np.ndarray | None = None) -> dict[str, Any] | None:
    """Count, mean and percentiles; None when there is nothing."""
    weight = np.ones(len(value), dtype=np.int64) if weight is None else weight
    count = int(weight.sum())
    if count == 0:
        return None
    points = weighted_percentile(value, weight, PERCENTS).tolist()
    names = [f"p{percent}" if percent < 100 else "max" for percent in PERCENTS]
    mean = float(np.sum(value.astype(float) * weight) / count)
    return {"n": count, "mean": round(mean, 6)} | {n: round(p, 6) for n, p in zip(names, points, strict=True)}


def weighted_percentile(value: np.ndarray, weight: np.ndarray, percent: Sequence[float]) -> np.ndarray:
    """Percentiles of the values, each repeated `weight` times, interpolated linearly as numpy does; NaN
    when empty.
    """
    order = np.argsort(value, kind="stable")
    until = np.cumsum(weight[order])
    if len(until) == 0 or until[-1] == 0:
        return np.full(len(percent), np.nan)
    place = np.asarray(percent, dtype=float) / 100 * (until[-1] - 1)
    low, high = np.floor(place), np.ceil(place)
    at_low = value[order][np.searchsorted(until, low, side="right")]
    at_high = value[order][np.searchsorted(until, high, side="right")]
    return at_low + (place - low) * (at_high - at_low)
