"""The questions every law answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Law"]

Array = NDArray[Any]


class Law:
    """A non-negative random variable. Subclasses give `parameters`, `mean`, `second_moment`, `cdf`,
    `restricted_mean`, `quantile`, `laplace_deficit` and `sample`; the rest follows."""

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """Study shape A: the parameters broadcast together."""
        return np.broadcast_shapes(*(np.shape(p) for p in self.parameters))

    @property
    def mean(self) -> Array:
        raise NotImplementedError

    @property
    def second_moment(self) -> Array:
        raise NotImplementedError

    @property
    def variance(self) -> Array:
        """E[X^2] - E[X]^2, never below zero by rounding."""
        return np.maximum(self.second_moment - np.square(self.mean), 0.0)

    def cdf(self, t: ArrayLike) -> Array:
        """P(X <= t)."""
        raise NotImplementedError

    def survival(self, t: ArrayLike) -> Array:
        """P(X > t)."""
        return 1.0 - self.cdf(t)

    def restricted_mean(self, t: ArrayLike) -> Array:
        """E[min(X, t)]: t near zero, the mean (possibly infinite) for large t."""
        raise NotImplementedError

    def quantile(self, p: ArrayLike) -> Array:
        """Smallest t with P(X <= t) >= p, for 0 < p < 1."""
        raise NotImplementedError

    def laplace_deficit(self, s: ArrayLike) -> Array:
        """1 - E[exp(-s X)], accurate also where it is tiny (s X << 1)."""
        raise NotImplementedError

    def laplace(self, s: ArrayLike) -> Array:
        """E[exp(-s X)] for complex s with Re s >= 0."""
        return 1.0 - self.laplace_deficit(s)

    @property
    def landmarks(self) -> tuple[Array, ...]:
        """Levels a quadrature over X must not step over: its 10, 50 and 90 % quantiles, or where it jumps."""
        return tuple(self.quantile(p) for p in (0.1, 0.5, 0.9))

    def nodes(self, n: int) -> tuple[Array, Array]:
        """Points (n,) + A and weights (n,) summing to one: Gauss-Legendre in the probability, for smooth
        integrands."""
        x, w = np.polynomial.legendre.leggauss(n)
        p = (0.5 * (1.0 + x)).reshape((n,) + (1,) * len(self.shape))
        return self.quantile(p), 0.5 * w

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        """`size` independent draws (scalar parameters only)."""
        return self.quantile(rng.random(size))
