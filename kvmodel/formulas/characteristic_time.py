"""Hit ratios of independent objects by the characteristic time (Che 2002; Fricker, Robert, Roberts 2012).

Every object stays for the same time T after the event that renews it; T is where the expected occupancy
fills the cache, sum_i size_i occupancy_i(T) = C. Asymptotically exact for many small objects:
within 0.001 when the cache holds more than 100 and none exceeds 1 % of it. Admission in front of such a
cache is in `admission`; sessions that grow need `reuse`.

Shapes: objects on axis 0, shape (n,) + A; capacities of shape A. Rates in [1/s], sizes and capacities alike.
At C = 0 nothing hits and T = 0; when all objects fit, T is infinite and every hit ratio is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from kvmodel.formulas.laws import Law

__all__ = [
    "CharacteristicTime",
    "fifo",
    "loop_hit_ratio_random",
    "lru",
    "lru_marginal_hit_ratio",
    "lru_renewal",
    "pinned_lru",
    "zipf_popularity",
]

Array = NDArray[Any]


class CharacteristicTime(NamedTuple):
    time: Array  # T [s], shape A
    hit: Array  # hit ratio of each object, (n,) + A
    hit_ratio: Array  # of requests, shape A
    byte_hit_ratio: Array  # of requested bytes, shape A


def zipf_popularity(objects: int, exponent: ArrayLike) -> Array:
    """Probability of each rank, proportional to rank^-exponent, shape (objects,) + A."""
    exponent = np.asarray(exponent, float)
    weight = np.arange(1.0, objects + 1.0).reshape((-1,) + (1,) * exponent.ndim) ** -exponent
    return weight / weight.sum(axis=0)


def _filled(occupancy: Callable[[Array], Array], rate: Array, size: ArrayLike, capacity: ArrayLike) -> Array:
    """T with sum size occupancy(T) = capacity, by bisection in log T; infinite where everything fits."""
    size = size * np.ones_like(rate)
    capacity = np.asarray(capacity, float)
    mean = np.sum(rate * size, axis=0)
    low = np.log(np.maximum(capacity, 1e-200) / mean) - 1.0
    high = low + 80.0
    for _ in range(70):
        middle = 0.5 * (low + high)
        enough = np.sum(size * occupancy(np.exp(middle)), axis=0) >= capacity
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(capacity >= size.sum(axis=0), np.inf, np.where(capacity > 0.0, np.exp(high), 0.0))


def _result(time: Array, hit: Array, rate: Array, size: ArrayLike) -> CharacteristicTime:
    volume = rate * size
    weighted = [np.sum(w * hit, axis=0) / np.sum(w * np.ones_like(hit), axis=0) for w in (rate, volume)]
    return CharacteristicTime(time, hit, *weighted)


def lru(rate: ArrayLike, capacity: ArrayLike, size: ArrayLike = 1.0) -> CharacteristicTime:
    """LRU, Poisson requests: occupancy = hit = 1 - exp(-rate T)."""
    rate = np.asarray(rate, float)
    time = _filled(lambda t: -np.expm1(-rate * t), rate, size, capacity)
    return _result(time, -np.expm1(-rate * time), rate, size)


def lru_marginal_hit_ratio(rate: ArrayLike, capacity: ArrayLike, size: ArrayLike = 1.0) -> Array:
    """d(hit ratio)/d(capacity) = sum rate^2 e / (sum rate * sum size rate e), e = exp(-rate T) [1/unit of
    capacity]."""
    rate = np.asarray(rate, float)
    stay = np.exp(-rate * lru(rate, capacity, size).time)
    return np.sum(rate**2 * stay, axis=0) / np.sum(rate, axis=0) / np.sum(size * rate * stay, axis=0)


def fifo(rate: ArrayLike, capacity: ArrayLike, size: ArrayLike = 1.0) -> CharacteristicTime:
    """FIFO, RANDOM or a TTL that hits do not renew: occupancy = hit = x/(1 + x), x = rate T."""
    rate = np.asarray(rate, float)
    time = _filled(lambda t: rate * t / (1.0 + rate * t), rate, size, capacity)
    return _result(time, 1.0 - 1.0 / (1.0 + rate * time), rate, size)


def lru_renewal(
    rate: ArrayLike, capacity: ArrayLike, gap: Callable[[Array], Law], size: ArrayLike = 1.0
) -> CharacteristicTime:
    """LRU with renewal requests: occupancy rate E min(G, T), hit P(G <= T). `gap(rate)` is the law of each
    object's gaps, with mean 1/rate. Bursty gaps raise the hit ratio far more than any refinement of the
    formula."""
    rate = np.asarray(rate, float)
    law = gap(rate)
    time = _filled(lambda t: rate * law.restricted_mean(t), rate, size, capacity)
    return _result(time, law.cdf(time), rate, size)


def pinned_lru(rate: ArrayLike, capacity: ArrayLike, pinned: ArrayLike, size: ArrayLike = 1.0) -> CharacteristicTime:
    """LRU in what the pinned objects leave: pinned (boolean per object) always hit, the others share C -
    pinned size.

    A capacity smaller than the pinned set leaves nothing for the rest.
    """
    rate, pinned = np.asarray(rate, float), np.asarray(pinned, bool)
    room = np.maximum(capacity - np.sum(np.where(pinned, size, 0.0), axis=0), 0.0)
    rest = lru(np.where(pinned, 0.0, rate), room, np.where(pinned, 0.0, size))
    return _result(rest.time, np.where(pinned, 1.0, rest.hit), rate, size)


def loop_hit_ratio_random(objects: ArrayLike, capacity: ArrayLike) -> Array:
    """Cyclic scan of N objects through random replacement of C < N: h = exp(-(1-h) N/C), the root below one,
    h = -(C/N) W0(-(N/C) exp(-N/C)). LRU has 0 hits there; one where the loop fits."""
    ratio = np.maximum(np.asarray(objects, float) / capacity, 1.0)
    return np.where(ratio > 1.0, -special.lambertw(-ratio * np.exp(-ratio)).real / ratio, 1.0)
