"""Arrival rates that vary: over the day, or in bursts of random length.

Given the path of the rate, arrivals are still Poisson, so what the others touch in a window is still compound Poisson;
only its intensity is another. A turn that comes `age` after its session began belongs to the rate of that earlier time,
so a session that returns after a pause t sees, with X the rate over its mean,

    F_t = int X(now - v) f_t(v) dv   the others' rate    f_t: ages of what was last touched up to t ago
    R_t = int X(now - v) r_t(v) dv   returns like it     r_t: ages of what waits, t later

    transform of f_t:  waiting(s) E int_0^min(Gap,t) exp(-s u) du + finished(s) int_0^t exp(-s u) du, over that at s = 0
    transform of r_t:  waiting(s) exp(-s t) / waiting(0)
    waiting(s)  = sum_k P(K > k) a_k z^(k-1),  finished(s) = sum_k P(K = k) a_k z^(k-1),   z = E exp(-s Gap),
    the latter without what is deleted
    a_k = E[1 - exp(-S_k / C)]: a context weighs as tokens against a large cache, and as one where each fills it

Hits after each pause are averaged over (F_t, R_t). Levels that repeat: over the phases, with the Fourier series of X.
Bursts of exponential length: X has two values and the correlation exp(-|u| / tau), so by its spectrum

    var F_t = var X int |f_t(w)|^2 S(w) dw,   cov(F_t, R_t) likewise,   S(w) = (tau / pi) / (1 + (w tau)^2)

and F_t is taken to follow the beta law between the two values with that variance (the exact law of a telegraph signal
behind an exponential filter, Wonham and Fuller 1958), R_t to be linear in F_t. Slow changes become a plain mixture over
the rates, fast ones their mean. Derived here; errors against simulation: docs/reuse.md.

Shapes: paths lead, (paths,) + A; time in [s].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas import special
from kvmodel.formulas.reuse import HitTokens, Touch
from kvmodel.formulas.working_set import SessionStream, characteristic_time

__all__ = ["RatePaths", "burst_rates", "hit_tokens_at_one_window", "level_rates"]

Array = NDArray[Any]
HARMONICS = 200
PAUSES = np.geomspace(1e-1, 1e7, 33)  # [s]
_SLOWEST = 1e-3  # of the mean rate: where nothing arrives, windows would have no end
_FREQUENCY = np.exp(np.linspace(-9.0, 9.0, 49))  # times tau; the spectrum is 1e-4 of its integral beyond
_NODE, _PART = (0.5 * values for values in np.polynomial.legendre.leggauss(6))
_NODE = 0.5 + _NODE


@dataclass(frozen=True)
class RatePaths:
    """Paths a rate may have taken, as one stream in a cache of one capacity feels them: field `rates` of the stream.

    time    share of the time each path stands for, (paths,) + (1,) * axes, sum 1
    tables  at `PAUSES`, (pauses, paths) + A: rate of the others seen, of returns and of all turns, over their means
    All streams of a cache share the paths. A has all axes of the study, so that paths stand before them.
    """

    time: Array
    tables: tuple[Array, Array, Array]

    @property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(*(table.shape[1:] for table in self.tables))

    def seen(self, t: ArrayLike) -> Array:
        """Rate of sessions a window of t sees, over the mean rate."""
        return _interpolated(self.tables[0], t)

    def returning(self, t: ArrayLike) -> Array:
        """Returns after a pause t, over their mean."""
        return _interpolated(self.tables[1], t)

    def using(self, t: ArrayLike) -> Array:
        """All turns, where a window of t sees `seen`, over their mean."""
        return _interpolated(self.tables[2], t)

    def after(self, t: ArrayLike) -> tuple[Array, Array, Array]:
        """All three."""
        return self.seen(t), self.returning(t), self.using(t)


def _interpolated(table: Array, t: ArrayLike) -> Array:
    """Straight in log t; constant before and after the pauses of the table."""
    place = np.log(np.clip(t, PAUSES[0], PAUSES[-1]) / PAUSES[0]) / np.log(PAUSES[1] / PAUSES[0])
    place = np.broadcast_to(place, np.broadcast_shapes(place.shape, table.shape[1:]))
    below = np.minimum(place.astype(int), len(PAUSES) - 2)
    others = np.indices(table.shape[1:], sparse=True)
    low, high = table[(below, *others)], table[(below + 1, *others)]
    return low + (place - below) * (high - low)


class _Ages(NamedTuple):
    """Transforms of the age, one at s = 0."""

    seen: Array  # of what a window of t sees
    returning: Array  # of what returns after t
    using: Array  # of all turns


def _ages(stream: SessionStream, s: Array, capacity: Array) -> Iterator[_Ages]:
    """At each of `PAUSES`."""
    deficit, left = stream.gap.laplace_deficit(s), 1.0 - np.asarray(stream.deleted, float)
    waiting, finished = _weighed(stream, deficit, capacity)
    all_waiting, all_finished = (part.real for part in _weighed(stream, 0.0 * deficit, capacity))
    turns = (1.0 + (1.0 - deficit) * stream.turns.continuation(deficit)) / stream.turns.mean
    begin, paused, paused_time = 0.0, 0.0, 0.0
    spread = np.sqrt(PAUSES[1] / PAUSES[0])
    for end in PAUSES:
        outlasting = stream.gap.restricted_mean(end) - stream.gap.restricted_mean(begin)
        paused = paused + outlasting * np.exp(-s * begin) * _averaged(s * (end - begin))
        paused_time, begin = paused_time + outlasting, end
        window = waiting * paused + left * finished * end * _averaged(s * end)
        # of pauses longer than a period only the mean of those around counts
        later = np.exp(-s * end / spread) * _averaged(s * end * (spread - 1.0 / spread))
        later = later * waiting / np.maximum(all_waiting, 1e-300)
        yield _Ages(window / np.maximum(all_waiting * paused_time + left * all_finished * end, 1e-300), later, turns)


def _weighed(stream: SessionStream, deficit: Array, capacity: Array) -> tuple[Array, Array]:
    """sum_k P(K > k) a_k z^(k-1) and sum_k P(K = k) a_k z^(k-1), a_k = E[1 - exp(-S_k / C)], z = 1 - deficit."""
    context = np.maximum(stream.context_scale, 1e-9)
    r = 1.0 / np.clip(capacity, 1e-3 * context, 1e6 * context) + 0j  # weights do not change beyond
    first, step = stream.first.laplace_deficit(r) + 1e-12, stream.step.laplace_deficit(r)  # empty ones count alike
    z, going, shorter = 1.0 - deficit, stream.turns.continuation(deficit), deficit + step * (1.0 - deficit)
    lighter = (1.0 - first) * stream.turns.continuation(shorter)
    waiting = going - lighter
    return waiting, first + z * going - (1.0 - step) * z * lighter - waiting


def _averaged(x: Array) -> Array:
    """(1 - exp(-x)) / x; 1 at zero."""
    small = np.abs(x) < 1e-9
    safe = np.where(small, 1.0, x)
    return np.where(small, 1.0, -np.expm1(-safe) / safe)


def level_rates(
    stream: SessionStream, period: ArrayLike, share: ArrayLike, factor: ArrayLike, capacity: ArrayLike
) -> RatePaths:
    """A rate that goes through levels, one after the other, and repeats.

    period    [s], time after which the levels repeat
    share     of the period spent at each level, (levels,) + A, sum 1
    factor    rate at the level over the mean rate, (levels,) + A, sum(share factor) = 1
    capacity  of the cache, with all study axes [tokens]
    Paths are six phases of every level, dense behind the step. One level gives factor one.
    """
    share, factor, period, capacity = _aligned(stream, (share, factor), (period, capacity))
    n = np.arange(1.0, HARMONICS + 1.0).reshape((-1,) + (1,) * capacity.ndim)
    turn = 2.0j * np.pi * n
    begin = np.cumsum(share, axis=0) - share
    rate = sum(f * (np.exp(-turn * a) - np.exp(-turn * (a + b))) for f, a, b in zip(factor, begin, share, strict=True))
    rate = rate / turn * np.sinc(n / (HARMONICS + 1.0))  # Lanczos: no overshoot at the steps
    phase = np.concatenate([a + np.multiply.outer(_NODE**2, length) for a, length in zip(begin, share, strict=True)])
    wave = [2.0 * rate * np.exp(turn * at) for at in phase]
    found = [
        [np.stack([1.0 + (one * age).real.sum(axis=0) for one in wave]) for age in ages]
        for ages in _ages(stream, turn / period, capacity)
    ]
    return _paths(np.concatenate([np.multiply.outer(2.0 * _NODE * _PART, length) for length in share]), found)


def burst_rates(
    stream: SessionStream, share: ArrayLike, factor: ArrayLike, mean_length: ArrayLike, capacity: ArrayLike
) -> RatePaths:
    """A rate that jumps to another level for bursts of exponential length, and back for exponential times.

    share        of the time in a burst                                    [-], below 1
    factor       rate in a burst over the mean rate, at most 1 / share     [-]
    mean_length  of a burst                                                [s]
    capacity     of the cache, with all study axes                         [tokens]
    Paths are quantiles of what is seen, six below 1 - share and six above. Factor one gives factor one.
    """
    share, high, length, capacity = _aligned(stream, (), (share, factor, mean_length, capacity))
    low = (1.0 - share * high) / (1.0 - share)
    tau = length * (1.0 - share)
    x = _FREQUENCY.reshape((-1,) + (1,) * capacity.ndim)
    spectrum = x / (1.0 + x**2)
    spectrum = spectrum / spectrum.sum()
    node = _NODE.reshape((-1,) + (1,) * capacity.ndim)
    quantile = np.concatenate([node * (1.0 - share), 1.0 - share + node * share])
    time = np.concatenate([np.multiply.outer(_PART, part) for part in (1.0 - share, share)])
    found = []
    for seen, *ages in _ages(stream, 1j * x / tau, capacity):
        spread = np.clip((spectrum * np.abs(seen) ** 2).sum(axis=0), 1e-6, 1.0 - 1e-6)
        beta = 1.0 / spread - 1.0
        rate = low + (high - low) * special.betaincinv(share * beta, (1.0 - share) * beta, quantile)
        rate = rate / (time * rate).sum(axis=0)
        slopes = [(spectrum * (seen * np.conj(age)).real).sum(axis=0) / spread for age in ages]
        found.append([rate, *(1.0 + slope * (rate - 1.0) for slope in slopes)])
    return _paths(time, found)


def _paths(time: Array, found: Sequence[Sequence[Array]]) -> RatePaths:
    """Seen rates stay above zero, and the others' mean over the time is one."""
    seen, *others = (np.stack(np.broadcast_arrays(*column)) for column in zip(*found, strict=True))
    others = [np.maximum(part, 0.0) for part in others]
    returning, using = (part / (time * part).sum(axis=1, keepdims=True) for part in others)
    return RatePaths(time, (np.maximum(seen, _SLOWEST), returning, using))


def hit_tokens_at_one_window(
    rule: Callable[..., HitTokens],
    streams: Sequence[SessionStream],
    capacity: ArrayLike,
    touch: Touch = "reverse",
    since: ArrayLike = np.inf,
) -> HitTokens:
    """Hits by a closed form for steady rates, at the rates that the characteristic time sees, averaged over the paths.

    For rules other than LRU, whose closed form takes the rates seen after each pause: `reuse.hit_tokens`. Up to 0.1 off
    where some pauses are far longer than others.
    """
    time = next((stream.rates.time for stream in streams if stream.rates is not None), None)
    if time is None:
        return rule(streams, capacity, touch, since)
    window = characteristic_time([replace(stream, rates=None) for stream in streams], capacity)
    steady, returning, using = [], [], []
    for stream in streams:
        seen, *weights = (1.0, 1.0, 1.0) if stream.rates is None else stream.rates.after(window)
        steady.append(replace(stream, rates=None, arrival_rate=stream.arrival_rate * seen))
        for part, weight in zip((returning, using), weights, strict=True):
            part.append(weight + 0.0 * time)
    hits = rule(steady, capacity, touch, since)
    returns, uses = (time * np.stack(np.broadcast_arrays(*part)) for part in (returning, using))
    return HitTokens(  # the paths lie behind the streams, and the streams of heads behind their levels
        (returns * hits.private).sum(axis=1),
        (uses * hits.heads).sum(axis=2),
        (time * hits.reusable_private).sum(axis=1),
        (time * hits.reusable_heads).sum(axis=2),
    )


def _aligned(stream: SessionStream, levels: Sequence[ArrayLike], plain: Sequence[ArrayLike]) -> tuple[Array, ...]:
    """Study axes behind the levels, all with as many as the widest."""
    levels, plain = [np.asarray(v, float) for v in levels], [np.asarray(v, float) for v in plain]
    ndim = max([len(stream.shape), *(v.ndim - 1 for v in levels), *(v.ndim for v in plain)])
    levels = np.broadcast_arrays(*(v.reshape(v.shape[:1] + (1,) * (ndim + 1 - v.ndim) + v.shape[1:]) for v in levels))
    return (*levels, *(v.reshape((1,) * (ndim - v.ndim) + v.shape) for v in plain))
