"""A function at one point, read off its Laplace transform: damped Fourier series with a window.

    f(x) = exp(a)/x sum_k' (-1)^k w_k Re F((a + i pi k)/x)        (first term halved)

Abate and Whitt, ORSA J. Computing 7 (1995), with a choice of window w: Euler's binomial average of the last
partial sums for continuous functions, Jackson's positive kernel for functions with jumps. Corrected so that
constants and straight lines come out exactly. Errors found on working-set laws: below 0.001 of the limit of
a continuous function; a jump is blurred over about 2 % of x by Jackson's kernel, which keeps it monotone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = ["FourierSeries", "continuous_series", "jump_series"]

Array = NDArray[Any]
_DAMPING = 4.6  # what f does beyond 3 x enters with weight exp(-2 * 4.6) = 1e-4


class FourierSeries(NamedTuple):
    """Frequencies and weights for x = 1, shape (k,)."""

    frequency: Array
    weight: Array

    def frequencies(self, x: ArrayLike) -> Array:
        """Where the transform is wanted [1/unit of x], shape (k,) + A for x > 0 of shape A."""
        return self.frequency.reshape((-1,) + (1,) * np.ndim(x)) / x

    def value(self, transform: Array, x: ArrayLike) -> Array:
        """f(x), shape A, from the transform at `frequencies(x)`."""
        return np.einsum("k...,k->...", transform.real, self.weight) / x

    def value_of_parts(self, transform: Array) -> Array:
        """f(1) of complex functions, parts on axis 0 and frequencies on axis 1: of real ones, and of pairs that are
        conjugates of each other, at places j and -j of the axis (a discrete Fourier transform of real functions)."""
        mirrored = np.roll(transform[::-1], 1, axis=0).conj()
        return 0.5 * np.einsum("jk...,k->j...", transform + mirrored, self.weight)


def _series(window: Array) -> FourierSeries:
    """The window smooths f over x; its mass and mean are divided out."""
    k = np.arange(len(window))
    frequency = _DAMPING + 1j * np.pi * k
    weight = np.exp(_DAMPING) * (-1.0) ** k * window * np.where(k == 0, 0.5, 1.0)
    mass, mean = np.sum(weight * (1.0 / frequency).real), np.sum(weight * (1.0 / frequency**2).real)
    return FourierSeries(frequency * mean / mass, weight * mean / mass**2)


def continuous_series(lines: int = 20, averaged: int = 9) -> FourierSeries:
    """Series with Euler's average over the last `averaged` of `lines` terms."""
    return _series(np.r_[np.ones(lines - averaged + 1), special.bdtrc(np.arange(averaged), averaged, 0.5)])


def jump_series(lines: int = 48) -> FourierSeries:
    """Series with Jackson's kernel of `lines` terms: a monotone f stays monotone in x."""
    k, angle = np.arange(lines + 1), np.pi / (lines + 2)
    return _series(((lines + 2 - k) * np.cos(k * angle) + np.sin(k * angle) / np.tan(angle)) / (lines + 2))
