"""A law read off data: its quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.laws.law import Law

__all__ = ["Empirical"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Empirical(Law):
    """Quantiles at equally spaced probabilities, from the smallest value to the largest; uniform between neighbours.

    knots  at least two values, none below the one before, on axis 0; shape (n + 1,) + A.
    Equal neighbours carry an atom of mass 1/n.
    """

    knots: ArrayLike

    @classmethod
    def of(cls, values: ArrayLike, pieces: int = 20) -> Empirical:
        """Law of some values, with their mean: the largest knot is moved until the mean is theirs (and not below the
        one before it, where the values end in fewer than one in `pieces` of them)."""
        values = np.asarray(values, float)
        knots = np.quantile(values, np.linspace(0.0, 1.0, pieces + 1))
        missing = pieces * values.mean() - 0.5 * (knots[:-1] + knots[1:]).sum()
        knots[-1] = max(knots[-1] + 2.0 * missing, knots[-2])
        return cls(knots)

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        return (np.asarray(self.knots)[0],)

    @property
    def _ends(self) -> tuple[Array, Array]:
        """Lower and upper end of each piece, (n,) + A."""
        knots = np.asarray(self.knots, float)
        return knots[:-1], knots[1:]

    @property
    def mean(self) -> Array:
        low, high = self._ends
        return (0.5 * (low + high)).mean(axis=0)

    @property
    def second_moment(self) -> Array:
        low, high = self._ends
        return ((low * low + low * high + high * high) / 3.0).mean(axis=0)

    def _pieces(self, t: ArrayLike) -> tuple[Array, Array, Array]:
        """Ends of the pieces in front of the argument's axes, and the argument."""
        t = np.asarray(t)
        low, high = (
            end.reshape(end.shape[:1] + (1,) * max(t.ndim - end.ndim + 1, 0) + end.shape[1:]) for end in self._ends
        )
        return low, high, t

    def cdf(self, t: ArrayLike) -> Array:
        low, high, t = self._pieces(t)
        width = high - low
        inside = np.clip((t - low) / np.where(width > 0.0, width, 1.0), 0.0, 1.0)
        return np.where(width > 0.0, inside, np.where(t >= high, 1.0, 0.0)).mean(axis=0)

    def restricted_mean(self, t: ArrayLike) -> Array:
        low, high, t = self._pieces(t)
        width, level = high - low, np.clip(t, low, high)
        above = (level - low) * (1.0 - 0.5 * (level - low) / np.where(width > 0.0, width, 1.0))
        return (np.minimum(t, low) + np.where(width > 0.0, above, 0.0)).mean(axis=0)

    def quantile(self, p: ArrayLike) -> Array:
        knots = np.asarray(self.knots, float)
        p = np.asarray(p, float)
        if knots.ndim == 1:
            return np.interp(p, np.linspace(0.0, 1.0, len(knots)), knots)
        low, high = self._ends
        part = np.clip(p * len(low) - np.arange(len(low)).reshape((-1,) + (1,) * max(p.ndim, knots.ndim - 1)), 0.0, 1.0)
        return knots[0] + (
            (high - low).reshape(low.shape[:1] + (1,) * (part.ndim - low.ndim) + low.shape[1:]) * part
        ).sum(axis=0)

    def laplace_deficit(self, s: ArrayLike) -> Array:
        """Mean over the pieces of 1 - exp(-s low) (1 - exp(-w))/w, w = s (high - low); a series for small w."""
        knots = np.asarray(self.knots, float)
        s, total = np.asarray(s), 0.0
        for low, high in pairwise(knots):
            w = s * (high - low)
            small = np.abs(w) < 1e-3
            safe = np.where(small, 1.0, w)
            spread = np.where(small, 0.5 * w * (1.0 - w / 3.0), 1.0 + np.expm1(-safe) / safe)
            at_low = -np.expm1(-s * low)
            total = total + at_low + (1.0 - at_low) * spread
        return total / (len(knots) - 1)
