"""Probability laws of sizes, pauses and numbers of turns.

The closed forms of reuse, retention and queueing all ask a law the same few questions: how likely is at most
t, what is E[min(X, t)], what are the moments, what is the Laplace transform. A law answers them in closed
form where there is one and by quadrature where there is not (the transform of a lognormal).

Shapes: parameters may be arrays of a study's shape A; arguments carry their own axes in front, (n,) + A.
Units: a law has the unit of its parameters (tokens, seconds); a transform's argument has the inverse unit.
Exact sampling is offered for the simulator, which must share nothing else with the closed forms.

Symbols: X the variable, t >= 0 a level, s a complex frequency with Re s >= 0, z = 1 - e a
generating-function argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = [
    "Constant",
    "Exponential",
    "FixedTurns",
    "Gamma",
    "GeometricTurns",
    "Law",
    "Lognormal",
    "Loguniform",
    "Lomax",
    "Mixture",
    "Sum",
    "TabulatedTurns",
    "Turns",
    "Uniform",
    "Weibull",
]

Array = NDArray[Any]
P90 = 1.2815515655446004  # standard normal quantile of 0.9


def _log1p(z: Array) -> Array:
    """log(1 + z) of complex z, accurate for small z (numpy's own is not: it adds the one first); -18 at z =
    -1."""
    growth = np.maximum(z.real * (2.0 + z.real) + z.imag**2, -1.0 + 1e-16)
    return 0.5 * np.log1p(growth) + 1j * np.arctan2(z.imag, 1.0 + z.real)


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
class Lognormal(Law):
    """ln X is normal with mean ln(median) and standard deviation sigma. sigma = 0 is a constant."""

    median: ArrayLike
    sigma: ArrayLike

    @classmethod
    def from_median_p90(cls, median: ArrayLike, p90: ArrayLike) -> Lognormal:
        """sigma = ln(p90/median)/1.2816; needs p90 >= median."""
        return cls(median, np.log(np.asarray(p90) / median) / P90)

    @classmethod
    def from_mean_p90(cls, mean: ArrayLike, p90: ArrayLike) -> Lognormal:
        """Smaller root sigma of ln(p90/mean) = 1.2816 sigma - sigma^2/2; needs p90/mean <= exp(1.2816^2/2) =
        2.27, the largest ratio any lognormal has. Ratios below one need the larger root and are not served:
        NaN-free is kept by clipping the discriminant, so check `p90 <= 2.27 mean` first."""
        ratio = np.log(np.asarray(p90) / mean)
        sigma = P90 - np.sqrt(np.maximum(P90**2 - 2.0 * ratio, 0.0))
        return cls.from_mean_sigma(mean, sigma)

    @classmethod
    def from_mean_cv(cls, mean: ArrayLike, cv: ArrayLike) -> Lognormal:
        """sigma^2 = ln(1 + cv^2), cv the coefficient of variation."""
        return cls.from_mean_sigma(mean, np.sqrt(np.log1p(np.square(cv))))

    @classmethod
    def from_mean_sigma(cls, mean: ArrayLike, sigma: ArrayLike) -> Lognormal:
        """median = mean exp(-sigma^2/2)."""
        return cls(np.asarray(mean) * np.exp(-0.5 * np.square(sigma)), sigma)

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        return (self.median, self.sigma)

    @property
    def mean(self) -> Array:
        return self.median * np.exp(0.5 * np.square(self.sigma))

    @property
    def second_moment(self) -> Array:
        return np.square(self.median) * np.exp(2.0 * np.square(self.sigma))

    def _z(self, t: ArrayLike) -> Array:
        ratio = np.maximum(np.asarray(t, float), 1e-300) / self.median
        return np.log(ratio) / np.maximum(self.sigma, 1e-9)

    def cdf(self, t: ArrayLike) -> Array:
        return special.ndtr(self._z(t))

    def survival(self, t: ArrayLike) -> Array:
        return special.ndtr(-self._z(t))

    def restricted_mean(self, t: ArrayLike) -> Array:
        z = self._z(t)
        tail = special.ndtr(-z)
        return self.mean * special.ndtr(z - self.sigma) + np.where(tail > 0.0, t, 0.0) * tail

    def quantile(self, p: ArrayLike) -> Array:
        return self.median * np.exp(self.sigma * special.ndtri(p))

    def laplace_deficit(self, s: ArrayLike) -> Array:
        """Trapezoidal rule in the normal variable on a line shifted into the complex plane, so that exp(-s
        X) decays instead of oscillating: with s = |s| exp(i theta) the substitution z = x - i y, y =
        min(theta/sigma, 1.25), turns s exp(sigma z) towards the real axis and costs a factor exp(y^2/2) <=
        2.2 in rounding. The rule converges geometrically: 28 points give 1e-6 at sigma 1 and 1e-4 at sigma
        2.5, at every s (derived here)."""
        s, sigma = np.asarray(s, complex), np.asarray(self.sigma, float)
        y = np.clip(np.angle(s) / np.maximum(sigma, 1e-9), -1.25, 1.25)
        turned = s * self.median * np.exp(-1j * sigma * y)
        unit, steps = np.linspace(0.0, 1.0, 28), 27
        span = 9.6 + sigma  # from -4.8 below the median to 4.8 beyond the point that carries the mean
        scale = span / steps / np.sqrt(2.0 * np.pi) * np.exp(0.5 * y * y)
        deficit = 0.0
        for x in (-4.8 + span * u for u in unit):
            deficit = deficit + np.exp(-0.5 * x * x + 1j * x * y) * (
                1.0 - np.exp(-turned * np.exp(sigma * x))
            )
        return scale * deficit

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        return self.median * np.exp(self.sigma * rng.standard_normal(size))


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
        return -np.expm1(-np.asarray(self.order) * _log1p(np.asarray(s, complex) * self.scale))


@dataclass(frozen=True)
class Weibull(Law):
    """P(X > t) = exp(-(t/scale)^order)."""

    order: ArrayLike
    scale: ArrayLike

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        return (self.order, self.scale)

    @property
    def mean(self) -> Array:
        return self.scale * special.gamma(1.0 + 1.0 / np.asarray(self.order))

    @property
    def second_moment(self) -> Array:
        return np.square(self.scale) * special.gamma(1.0 + 2.0 / np.asarray(self.order))

    def cdf(self, t: ArrayLike) -> Array:
        return -np.expm1(-((np.asarray(t) / self.scale) ** self.order))

    def restricted_mean(self, t: ArrayLike) -> Array:
        inverse = 1.0 / np.asarray(self.order)
        return self.mean * special.gammainc(inverse, (np.asarray(t) / self.scale) ** self.order)

    def quantile(self, p: ArrayLike) -> Array:
        return self.scale * (-np.log1p(-np.asarray(p))) ** (1.0 / np.asarray(self.order))

    def laplace_deficit(self, s: ArrayLike) -> Array:
        """X = scale * E^(1/order) with E exponential, E = exp(v): trapezoidal rule in v, turned as for the
        lognormal."""
        s, inverse = np.asarray(s, complex), 1.0 / np.asarray(self.order, float)
        y = np.clip(np.angle(s) / inverse, -1.0, 1.0)
        turn = np.exp(-1j * y)
        points = np.linspace(-16.0, 4.5, 83)
        deficit = 0.0
        for v in points:
            e = np.exp(v) * turn
            deficit = deficit + e * np.exp(-e) * (
                1.0 - np.exp(-s * self.scale * np.exp(inverse * (v - 1j * y)))
            )
        return (points[1] - points[0]) * deficit


@dataclass(frozen=True)
class Lomax(Law):
    """P(X > t) = (1 + t/scale)^(-order): decreasing hazard, heavy tail. The mean is infinite for order <= 1,
    the second moment for order <= 2."""

    order: ArrayLike
    scale: ArrayLike

    @property
    def parameters(self) -> tuple[ArrayLike, ...]:
        return (self.order, self.scale)

    @property
    def mean(self) -> Array:
        excess = np.asarray(self.order, float) - 1.0
        return np.where(excess > 0.0, self.scale / np.where(excess > 0.0, excess, 1.0), np.inf)

    @property
    def second_moment(self) -> Array:
        order = np.asarray(self.order, float)
        product = np.where(order > 2.0, (order - 1.0) * (order - 2.0), 1.0)
        return np.where(order > 2.0, 2.0 * np.square(self.scale) / product, np.inf)

    def cdf(self, t: ArrayLike) -> Array:
        return -np.expm1(-np.asarray(self.order) * np.log1p(np.asarray(t) / self.scale))

    def restricted_mean(self, t: ArrayLike) -> Array:
        log_growth = np.log1p(np.asarray(t) / self.scale)
        excess = np.asarray(self.order, float) - 1.0
        safe = np.where(np.abs(excess) < 1e-12, 1e-12, excess)
        return self.scale * -np.expm1(-safe * log_growth) / safe

    def quantile(self, p: ArrayLike) -> Array:
        return self.scale * np.expm1(-np.log1p(-np.asarray(p)) / self.order)

    def laplace_deficit(self, s: ArrayLike) -> Array:
        """A Lomax variable is exponential with a Gamma(order) rate R/scale, so the deficit is E[s/(s +
        R/scale)]: trapezoidal rule in ln R, no oscillation at any s."""
        y, order = np.asarray(s, complex) * self.scale, np.asarray(self.order, float)
        points = np.linspace(-40.0, 5.0, 181)
        deficit, total = 0.0, 0.0
        for v in points:
            weight = np.exp(order * v - np.exp(v))
            deficit, total = deficit + weight * y / (y + np.exp(v)), total + weight
        return deficit / total


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


class Turns:
    """Number of turns K >= 1 of a session; J = K - 1 turns find an earlier context.

    Subclasses give `parameters`, `factorial_moments` (E J, E J(J-1), E J(J-1)(J-2)), `continuation(e)` and
    `sample`.
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

    def continuation(self, e: ArrayLike) -> Array:
        """sum_{j>=0} P(J > j) z^j at z = 1 - e, for complex |z| <= 1; at e = 0 it is E J."""
        raise NotImplementedError

    def generating_function(self, z: ArrayLike) -> Array:
        """G(z) = E[z^K] = z (1 - (1-z) continuation(1-z))."""
        return z * (1.0 - (1.0 - z) * self.continuation(1.0 - z))


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

    def continuation(self, e: ArrayLike) -> Array:
        r = np.asarray(self.mean_turns, float) - 1.0
        return r / (1.0 + r * np.asarray(e))

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

    def continuation(self, e: ArrayLike) -> Array:
        """(1 - z^J)/(1 - z), written with expm1 and log1p so that z near one does not cancel."""
        j, e = np.asarray(self.count, float) - 1.0, np.asarray(e, complex)
        zero = e == 0.0
        safe = np.where(zero, 0.5, e)
        return np.where(zero, j, -np.expm1(j * _log1p(-safe)) / safe)

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

    def continuation(self, e: ArrayLike) -> Array:
        """Horner's rule over the table."""
        z, value = 1.0 - np.asarray(e), 0.0
        for beyond in self._beyond[::-1]:
            value = beyond + z * value
        return value + 0.0 * z

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        p = self._probability
        return 1 + rng.choice(len(p), size, p=p)
