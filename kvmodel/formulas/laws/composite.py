"""Mixtures (pauses of several kinds, hyperexponential laws) and sums of independent parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.laws.law import Law

__all__ = ["Mixture", "Sum"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Mixture(Law):
    """Component j with probability weights[j] (weights are normalised): pauses of several kinds,
    hyperexponential laws."""

    weights: tuple[ArrayLike, ...]
    components: tuple[Law, ...]

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        return (*self.weights, *(p for law in self.components for p in law.parameters))

    def _mix(self, values: list[Array]) -> Array:
        total = sum(np.asarray(w, float) for w in self.weights)
        return sum(np.asarray(w, float) / total * v for w, v in zip(self.weights, values, strict=True))

    @property
    def mean(self) -> Array:
        return self._mix([law.mean for law in self.components])

    @property
    def second_moment(self) -> Array:
        return self._mix([law.second_moment for law in self.components])

    def cdf(self, t: ArrayLike) -> Array:
        return self._mix([law.cdf(t) for law in self.components])

    def survival(self, t: ArrayLike) -> Array:
        return self._mix([law.survival(t) for law in self.components])

    def restricted_mean(self, t: ArrayLike) -> Array:
        return self._mix([law.restricted_mean(t) for law in self.components])

    def quantile(self, p: ArrayLike) -> Array:
        """Bisection between the components' own quantiles, which bracket the mixture's."""
        low = np.min(np.broadcast_arrays(*(law.quantile(p) for law in self.components)), axis=0)
        high = np.max(np.broadcast_arrays(*(law.quantile(p) for law in self.components)), axis=0)
        for _ in range(60):
            middle = 0.5 * (low + high)
            enough = self.cdf(middle) >= p
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high

    @property
    def landmarks(self) -> tuple[Array, ...]:
        return tuple(level for law in self.components for level in law.landmarks)

    def laplace_deficit(self, s: ArrayLike) -> Array:
        return self._mix([law.laplace_deficit(s) for law in self.components])

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        share = np.asarray(self.weights, float)
        kind = rng.choice(len(share), size, p=share / share.sum())
        return np.choose(kind, [law.sample(rng, size) for law in self.components])


@dataclass(frozen=True)
class Sum(Law):
    """Sum of independent parts: new tokens plus output tokens. Only moments, transform and sampling are
    offered."""

    parts: tuple[Law, ...]

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        return tuple(p for law in self.parts for p in law.parameters)

    @property
    def mean(self) -> Array:
        return sum(law.mean for law in self.parts)

    @property
    def second_moment(self) -> Array:
        return sum(law.variance for law in self.parts) + np.square(self.mean)

    def laplace_deficit(self, s: ArrayLike) -> Array:
        """1 - prod(1 - d_j), built up without cancellation: d <- d + d_j - d d_j."""
        deficit = 0.0
        for law in self.parts:
            own = law.laplace_deficit(s)
            deficit = deficit + own - deficit * own
        return deficit

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        return sum(law.sample(rng, size) for law in self.parts)
