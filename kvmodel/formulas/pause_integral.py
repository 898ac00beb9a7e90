"""Integrals of what a cache still holds over the law of the pause.

What is held falls off with the pause around the time at which the others' working set passes the capacity.
It is evaluated at few nodes there, refined by monotone cubic interpolation, and integrated with weights that
are exact for any pause law (steps included) when the function is straight between the refined nodes. Weights
need only P(pause > t) and E min(pause, t). Derived here.

Shapes: nodes lead, (nodes,) + A.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["average_between", "halved", "pause_weights", "refined"]

Array = NDArray[Any]


def halved(times: Array) -> Array:
    """The nodes and the middles between them."""
    fine = np.repeat(times, 2, axis=0)[:-1]
    fine[1::2] = 0.5 * (times[:-1] + times[1:])
    return fine


def refined(times: Array, values: Array) -> Array:
    """Values at `halved(times)` by monotone cubic interpolation (Fritsch and Butland 1984)."""
    width = np.diff(times, axis=0)
    slope = np.diff(values, axis=0) / np.maximum(width, 1e-300)
    product = slope[:-1] * slope[1:]
    both = np.where(product > 0.0, slope[:-1] + slope[1:], 1.0)
    tangent = np.concatenate([slope[:1], np.where(product > 0.0, 2.0 * product / both, 0.0), slope[-1:]])
    fine = np.repeat(values, 2, axis=0)[:-1]
    fine[1::2] = 0.5 * (values[:-1] + values[1:]) + 0.125 * width * (tangent[:-1] - tangent[1:])
    return fine


def pause_weights(survival: Array, average: Array, end: ArrayLike) -> Array:
    """Weights of a function of the pause at the time nodes: exact for any pause law (steps included) when
    the function is straight between nodes. `average` is the mean survival between neighbours, `end` the
    survival never reached."""
    weights = np.zeros_like(survival)
    weights[:-1] += survival[:-1] - average
    weights[1:] += average - survival[1:]
    weights[-1] += survival[-1] - end
    return weights


def average_between(integral: Array, times: Array) -> Array:
    return np.diff(integral, axis=0) / np.maximum(np.diff(times, axis=0), 1e-300)
