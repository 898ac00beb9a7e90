"""Laws whose transform is elementary: constant, exponential, uniform, loguniform, gamma."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas import special
from kvmodel.formulas.laws.complex_logarithm import log1p
from kvmodel.formulas.laws.law import Law

__all__ = ["Constant", "Exponential", "Gamma", "Loguniform", "Uniform"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Constant(Law):
    """X = value."""

    value: ArrayLike

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        return (self.value,)

    @property
    def mean(self) -> Array:
        return np.asarray(self.value, float)

    @property
    def second_moment(self) -> Array:
        return np.square(self.mean)

    def cdf(self, t: ArrayLike) -> Array:
        return np.where(np.asarray(t) >= self.value, 1.0, 0.0)

    def restricted_mean(self, t: ArrayLike) -> Array:
        return np.minimum(self.value, t)

    def quantile(self, p: ArrayLike) -> Array:
        return self.mean + 0.0 * np.asarray(p)

    @property
    def landmarks(self) -> tuple[Array, ...]:
        return (self.mean,)

    def laplace_deficit(self, s: ArrayLike) -> Array:
        return -np.expm1(-np.asarray(s) * self.value)


@dataclass(frozen=True)
class Exponential(Law):
    """P(X > t) = exp(-t/scale); `scale` is the mean."""

    scale: ArrayLike

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        return (self.scale,)

    @property
    def mean(self) -> Array:
        return np.asarray(self.scale, float)

    @property
    def second_moment(self) -> Array:
        return 2.0 * np.square(self.mean)

    def cdf(self, t: ArrayLike) -> Array:
        return -np.expm1(-np.asarray(t) / self.scale)

    def survival(self, t: ArrayLike) -> Array:
        return np.exp(-np.asarray(t) / self.scale)

    def restricted_mean(self, t: ArrayLike) -> Array:
        return self.scale * self.cdf(t)

    def quantile(self, p: ArrayLike) -> Array:
        return -np.log1p(-np.asarray(p)) * self.scale

    def laplace_deficit(self, s: ArrayLike) -> Array:
        y = np.asarray(s) * self.scale
        return y / (1.0 + y)


@dataclass(frozen=True)
class Uniform(Law):
    """Uniform between low and high, low < high."""

    low: ArrayLike
    high: ArrayLike

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        return (self.low, self.high)

    @property
    def mean(self) -> Array:
        return 0.5 * (np.asarray(self.low, float) + self.high)

    @property
    def second_moment(self) -> Array:
        low, high = np.asarray(self.low, float), np.asarray(self.high, float)
        return (low * low + low * high + high * high) / 3.0

    def cdf(self, t: ArrayLike) -> Array:
        return np.clip((np.asarray(t) - self.low) / (np.asarray(self.high) - self.low), 0.0, 1.0)

    def restricted_mean(self, t: ArrayLike) -> Array:
        inside = np.clip(t, self.low, self.high)
        width = np.asarray(self.high, float) - self.low
        return np.minimum(t, self.low) + (inside - self.low) * (1.0 - 0.5 * (inside - self.low) / width)

    def quantile(self, p: ArrayLike) -> Array:
        return self.low + np.asarray(p) * (np.asarray(self.high) - self.low)

    def laplace_deficit(self, s: ArrayLike) -> Array:
        width = np.asarray(s) * (np.asarray(self.high, float) - self.low)
        small = np.abs(width) < 1e-4
        safe = np.where(small, 1.0, width)
        # below 1e-4 the series of (1-e^-w)/w is exact to 1e-13 and does not cancel
        average_deficit = np.where(small, 0.5 * width * (1.0 - width / 3.0), 1.0 + np.expm1(-safe) / safe)
        at_low = -np.expm1(-np.asarray(s) * self.low)
        return at_low + (1.0 - at_low) * average_deficit


@dataclass(frozen=True)
class Loguniform(Law):
    """log X uniform between log low and log high, 0 < low <= high: equally likely in ratio."""

    low: ArrayLike
    high: ArrayLike

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        return (self.low, self.high)

    def _moment(self, order: int) -> Array:
        """E[X^k] = (high^k - low^k) / (k log(high/low)), low^k where the ends meet."""
        ratio = np.log(np.divide(self.high, self.low)) * order
        return np.power(np.asarray(self.low, float), order) * special.exprel(ratio)

    @property
    def mean(self) -> Array:
        return self._moment(1)

    @property
    def second_moment(self) -> Array:
        return self._moment(2)

    def cdf(self, t: ArrayLike) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.log(np.divide(t, self.low)) / np.log(np.divide(self.high, self.low))
        return np.where(np.asarray(t) >= self.high, 1.0, np.clip(np.nan_to_num(share), 0.0, 1.0))

    def restricted_mean(self, t: ArrayLike) -> Array:
        """E[X; X <= t] + t P(X > t), the first (t - low)/log(high/low)."""
        level = np.clip(t, self.low, self.high)
        below = (level - self.low) / np.log(np.maximum(np.divide(self.high, self.low), 1.0 + 1e-12))
        return np.minimum(t, below + level * self.survival(level))

    def quantile(self, p: ArrayLike) -> Array:
        return np.asarray(self.low, float) * np.power(np.divide(self.high, self.low), p)

    def laplace_deficit(self, s: ArrayLike) -> Array:
        """1 - (E1(s low) - E1(s high)) / log(high/low), the exponential integral."""
        ratio = np.maximum(np.divide(self.high, self.low), 1.0 + 1e-12)
        z = np.asarray(s, complex)
        return 1.0 - (special.exp1(z * self.low) - special.exp1(z * self.low * ratio)) / np.log(ratio)


@dataclass(frozen=True)
class Gamma(Law):
    """Density x^(k-1) exp(-x/scale); mean k*scale. `order` is k > 0."""

    order: ArrayLike
    scale: ArrayLike

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        return (self.order, self.scale)

    @property
    def mean(self) -> Array:
        return np.asarray(self.order, float) * self.scale

    @property
    def second_moment(self) -> Array:
        return self.mean * (self.mean + self.scale)

    def cdf(self, t: ArrayLike) -> Array:
        return special.gammainc(self.order, np.asarray(t) / self.scale)

    def survival(self, t: ArrayLike) -> Array:
        return special.gammaincc(self.order, np.asarray(t) / self.scale)

    def restricted_mean(self, t: ArrayLike) -> Array:
        tail = self.survival(t)
        below = special.gammainc(np.asarray(self.order) + 1.0, np.asarray(t) / self.scale)
        return self.mean * below + np.where(tail > 0.0, t, 0.0) * tail

    def quantile(self, p: ArrayLike) -> Array:
        return special.gammaincinv(self.order, p) * self.scale

    def laplace_deficit(self, s: ArrayLike) -> Array:
        return -np.expm1(-np.asarray(self.order) * log1p(np.asarray(s, complex) * self.scale))
