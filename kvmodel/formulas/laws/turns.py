"""Laws of the number of turns of a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.laws.complex_logarithm import log1p

__all__ = ["FixedTurns", "GeometricTurns", "TabulatedTurns", "Turns"]

Array = NDArray[Any]


class Turns:
    """Number of turns K >= 1 of a session; J = K - 1 turns find an earlier context.

    Subclasses give `parameters`, `factorial_moments` (E J, E J(J-1), E J(J-1)(J-2)), `continuation(e)`,
    `geometric_parts` and `sample`.
    """

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(*(np.shape(p) for p in self.parameters))

    @property
    def factorial_moments(self) -> tuple[Array, Array, Array]:
        raise NotImplementedError

    @property
    def mean(self) -> Array:
        """E[K] [turns]."""
        return 1.0 + self.factorial_moments[0]

    def survival(self, k: ArrayLike) -> Array:
        """P(K > k)."""
        raise NotImplementedError

    @property
    def after_first(self) -> Turns:
        """Law of K - 1 given K > 1: the turns still to come after the first, at least one."""
        raise NotImplementedError

    def continuation(self, e: ArrayLike) -> Array:
        """sum_{j>=0} P(J > j) z^j at z = 1 - e, for complex |z| <= 1; at e = 0 it is E J."""
        raise NotImplementedError

    def generating_function(self, z: ArrayLike) -> Array:
        """G(z) = E[z^K] = z (1 - (1-z) continuation(1-z))."""
        return z * (1.0 - (1.0 - z) * self.continuation(1.0 - z))

    def geometric_parts(self) -> tuple[Array, Array]:
        """Ratios z and weights w, parts on axis 0, with P(K > k) = sum w z^k: what holds for geometric turns holds for
        any, part by part. The part after is the complex conjugate of the same part from the end, the first its own."""
        raise NotImplementedError


def _parts_on_a_circle(beyond: Array) -> tuple[Array, Array]:
    """Geometric parts of P(K > k), k < n on axis 0: its discrete Fourier transform on a circle so far inside the unit
    one that the copies of the table at k >= n are 1e-6 of it."""
    k = np.arange(len(beyond))
    ratio = 10.0 ** (-6.0 / len(beyond)) * np.exp(2.0j * np.pi * k / len(beyond))
    weight = np.tensordot(ratio[:, None] ** -k, beyond, axes=1) / len(beyond)
    return ratio.reshape(ratio.shape + (1,) * (beyond.ndim - 1)), weight


@dataclass(frozen=True)
class GeometricTurns(Turns):
    """Another turn follows with a fixed probability (mean-1)/mean, whatever came before."""

    mean_turns: ArrayLike

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        return (self.mean_turns,)

    @property
    def factorial_moments(self) -> tuple[Array, Array, Array]:
        r = np.asarray(self.mean_turns, float) - 1.0
        return r, 2.0 * r**2, 6.0 * r**3

    def survival(self, k: ArrayLike) -> Array:
        return (1.0 - 1.0 / np.asarray(self.mean_turns, float)) ** k

    @property
    def after_first(self) -> Turns:
        return self

    def continuation(self, e: ArrayLike) -> Array:
        r = np.asarray(self.mean_turns, float) - 1.0
        return r / (1.0 + r * np.asarray(e))

    def geometric_parts(self) -> tuple[Array, Array]:
        ratio = (1.0 - 1.0 / np.asarray(self.mean_turns, float))[None]
        return ratio, np.ones_like(ratio)

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        return rng.geometric(1.0 / float(self.mean_turns), size)


@dataclass(frozen=True)
class FixedTurns(Turns):
    """Every session has `count` turns (count >= 1; not necessarily whole, then the moments interpolate)."""

    count: ArrayLike

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        return (self.count,)

    @property
    def factorial_moments(self) -> tuple[Array, Array, Array]:
        j = np.asarray(self.count, float) - 1.0
        return j, j * (j - 1.0), j * (j - 1.0) * (j - 2.0)

    def survival(self, k: ArrayLike) -> Array:
        return np.where(np.asarray(k) < self.count, 1.0, 0.0)

    @property
    def after_first(self) -> Turns:
        return FixedTurns(np.maximum(np.asarray(self.count) - 1, 1))

    def continuation(self, e: ArrayLike) -> Array:
        """(1 - z^J)/(1 - z), written with expm1 and log1p so that z near one does not cancel."""
        j, e = np.asarray(self.count, float) - 1.0, np.asarray(e, complex)
        zero = e == 0.0
        safe = np.where(zero, 0.5, e)
        return np.where(zero, j, -np.expm1(j * log1p(-safe)) / safe)

    def geometric_parts(self) -> tuple[Array, Array]:
        """Between whole counts the last turn comes with the probability that keeps the mean."""
        count = np.asarray(self.count, float)
        k = np.arange(np.ceil(count.max())).reshape((-1,) + (1,) * count.ndim)
        return _parts_on_a_circle(np.clip(count - k, 0.0, 1.0))

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        return np.full(size, int(self.count))


@dataclass(frozen=True)
class TabulatedTurns(Turns):
    """K = k with probability proportional to weights[k-1] (axis 0 of the array is k)."""

    weights: ArrayLike

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        return (np.asarray(self.weights)[0],)

    @property
    def _probability(self) -> Array:
        weights = np.asarray(self.weights, float)
        return weights / weights.sum(axis=0)

    @property
    def _beyond(self) -> Array:
        """P(J > j) for j = 0, 1, ..."""
        return 1.0 - np.cumsum(self._probability, axis=0)[:-1]

    @property
    def factorial_moments(self) -> tuple[Array, Array, Array]:
        p = self._probability
        j = np.arange(len(p), dtype=float).reshape((-1,) + (1,) * (p.ndim - 1))
        return (p * j).sum(0), (p * j * (j - 1.0)).sum(0), (p * j * (j - 1.0) * (j - 2.0)).sum(0)

    def survival(self, k: ArrayLike) -> Array:
        p = self._probability
        turn = np.arange(1, len(p) + 1).reshape((-1,) + (1,) * max(np.ndim(k), p.ndim - 1))
        return (np.expand_dims(p, tuple(range(1, turn.ndim - p.ndim + 1))) * (turn > np.asarray(k))).sum(0)

    @property
    def after_first(self) -> Turns:
        return TabulatedTurns(np.asarray(self.weights, float)[1:])

    def continuation(self, e: ArrayLike) -> Array:
        """Horner's rule over the table."""
        z, value = 1.0 - np.asarray(e), 0.0
        for beyond in self._beyond[::-1]:
            value = beyond + z * value
        return value + 0.0 * z

    def geometric_parts(self) -> tuple[Array, Array]:
        return _parts_on_a_circle(np.concatenate([np.ones_like(self._probability[:1]), self._beyond]))

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        p = self._probability
        return 1 + rng.choice(len(p), size, p=p)
