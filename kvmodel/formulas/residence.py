"""Hits where a context leaves some time after it was written, whether it is used or not: FIFO, random, fixed lifetimes.

A context is one entry: written whole by a turn that finds nothing, lengthened by later turns, and gone when the first
of these comes:

    R after it was written      fifo: R = T; also a retention that hits do not renew
    at a constant rate r        random: r = 1/T, the victim is any entry
    idle for tau                a retention that hits renew; the characteristic time of LRU

So a turn finds the context if all pauses since it was written were shorter than tau and their sum, weighed by
exp(-r sum), within R. With phi the transform of a pause that is survived, E exp(-(s + r) G) 1(G <= tau), turns written
are a renewal sequence over the turns, u_k = sum_j u_j d_(k-j), d_n the probability of a stay of n turns:

    U(z) = sum_k u_k z^(k-1) = 1 / ((1 - z) M(z)),     M(z) = L^-1 [ 1 / (s (1 - z phi(s))) ](R)

M counts the turns within a stay when each is followed by another with probability z. Geometric turns take U at one z;
any other law is a mixture of such, `Turns.geometric_parts`. Sizes do not depend on pauses, so what is found is what can
be reused less the contexts of the turns that write, and what a session occupies is, with S_k = first + (k - 1) step,

    E sum over written and later turns of S (time until the next turn or the end of the stay)
      = (first U + step z U') H + step U H',    H(z) = L^-1 [ (z psi + (1 - z) y) / (s (1 - z phi)) ](R)

psi and y the transforms of a segment before another turn and after the last. T is where the mean occupancy, finished
contexts and heads included, is the capacity. A head is touched by renewal with the law of the time since anyone last
used its variant: exact for Poisson touches (hit = occupancy = lambda T / (1 + lambda T)) and for a variant that one
session at a time uses.

With n contexts held on average T is not sharp: a stay under FIFO ends when the others have written C, a compound
Poisson sum of about n terms, so R is gamma with mean T and squared coefficient of variation 1/n (n counted by size,
C / (E S^2 / E S) in the working set). Derived here.

Shapes: study shape A trails; turns' parts, frequencies and nodes lead. Tokens and seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas import special
from kvmodel.formulas.laplace_inversion import jump_series
from kvmodel.formulas.pause_integral import average_between, pause_weights
from kvmodel.formulas.reuse import HitTokens, Touch
from kvmodel.formulas.working_set import (
    SessionStream,
    SharedPrefix,
    crossing,
    shared_pools,
    variant_groups,
    working_set_mean,
    working_set_variance,
)

__all__ = ["fifo_hit_tokens", "random_hit_tokens"]

Array = NDArray[Any]
_SERIES = jump_series()
_PART = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 71)])  # of a stay: pauses are resolved to 10 %
_DECAY = np.exp(-np.multiply.outer(_SERIES.frequency, _PART))
_LOG_FOREVER = 27.0  # e^27 s are 17,000 years
_LONGEST = 30.0  # mean stays after which nothing is left of a memoryless one


class _Stay(NamedTuple):
    """When an entry leaves, whatever it is used for."""

    time: Array  # R, nodes of its law on axis 0 [s]
    weight: Array  # of the nodes, sum 1
    rate: ArrayLike  # r [1/s]


class _Cycle(NamedTuple):
    """Means over the law of R, parts of the turns on axis 0."""

    turns: Array  # M
    turns_slope: Array  # M'
    held: Array  # H [s]
    held_later: Array  # H' [s]


def _cycle(outlasting: Array, averages: Array, idle: ArrayLike, at_idle: Array, stay: _Stay, ratio: Array) -> _Cycle:
    """Turns and seconds within a stay from P(pause > t) at the nodes `_PART` of each R and its mean between them.

    outlasting, averages: (nodes of the grid, nodes of R) + A; idle: tau; at_idle: the survival there.
    """
    found = 0.0
    for time, weight, survival, average in zip(
        stay.time, stay.weight, np.moveaxis(outlasting, 1, 0), np.moveaxis(averages, 1, 0), strict=True
    ):
        s = _SERIES.frequency.reshape((-1,) + (1,) * time.ndim)  # in units of 1/R
        leaving = stay.rate * time
        masses = pause_weights(survival, average, survival[-1]) * np.exp(-leaving * _column(_PART, time.ndim))
        again = np.tensordot(_DECAY, masses, axes=1)
        late = np.exp(-(s + leaving) * np.minimum(idle / time, 60.0))
        segment = ((1.0 - late * at_idle - again) / (s + leaving), (1.0 - late) / (s + leaving))
        z = ratio[:, None]
        once = 1.0 / (1.0 - z * again)
        held = (z * segment[0] + (1.0 - z) * segment[1]) * once
        parts = [once, again * once**2, time * held, time * z * held * again * once]
        found = found + weight * np.stack([_SERIES.value_of_parts(part / s) for part in parts])
    return _Cycle(*found)


def _column(values: Array, ndim: int) -> Array:
    return values.reshape((-1,) + (1,) * ndim)


def _aligned(values: Array, ndim: int) -> Array:
    """Axis 0 in front, the study axes behind it, `ndim` axes in all."""
    return values.reshape(values.shape[:1] + (1,) * (ndim - values.ndim) + values.shape[1:])


class _Heads(NamedTuple):
    """One variant of a group of equally popular ones."""

    held: Array  # share of the time it is there
    later: Array  # share of later turns of sessions that find it; first turns find it as often as it is there


def _session_cycle(stream: SessionStream, stay: _Stay) -> tuple[_Cycle, Array, Array]:
    """Cycle of a private context, with the ratios and weights of the turns' parts."""
    times = _column(_PART, stay.time.ndim) * stay.time
    averages = average_between(stream.outlasting_integral(times), times)
    at_idle = stream.gap.survival(np.minimum(stream.retention, 1e150))
    ratio, weight = (_aligned(part, stay.time.ndim) for part in stream.turns.geometric_parts())
    return _cycle(stream.outlasting(times), averages, stream.retention, at_idle, stay, ratio), ratio, weight


def _private(stream: SessionStream, stay: _Stay) -> tuple[Array, Array]:
    """Tokens found, and token-seconds held, per session."""
    cycle, z, weight = _session_cycle(stream, stay)
    missing = (1.0 - z) * cycle.turns
    written = 1.0 / missing
    later = z * (cycle.turns - (1.0 - z) * cycle.turns_slope) * written**2
    first, step = stream.first.mean, stream.step.mean

    def over_parts(values: Array) -> Array:
        return (weight * values).sum(axis=0).real

    lost = first * (over_parts(written) - 1.0) + step * over_parts(later - written + weight.sum(axis=0))
    held = over_parts((first * written + step * later) * cycle.held + step * written * cycle.held_later)
    return stream.paused_moments[1] - lost, held


def _heads(users: Sequence[SessionStream], share: Array, stay: _Stay) -> _Heads:
    """Renewal by the time since anyone last touched the variant: quiet(t) at first turns, quiet(t) P(pause > t) later."""
    times = _column(_PART, stay.time.ndim) * stay.time
    first = sum(user.arrival_rate for user in users)
    later = sum(user.arrival_rate * user.paused_moments[0] for user in users)
    turns = [user.arrival_rate * user.paused_moments[0] / (first + later) for user in users]
    quiet = np.exp(-share * sum(user.sessions_seen(times) for user in users))
    own = [user.outlasting(times) for user in users]
    between = [average_between(user.outlasting_integral(times), times) for user in users]
    # a steady flow of others between two nodes, as the session's own pause between them
    step = -np.diff(np.log(np.maximum(quiet, 1e-300)), axis=0)
    average = quiet[:-1] * np.where(step > 1e-9, -np.expm1(-step) / np.maximum(step, 1e-9), 1.0)
    mixed, mixed_average = (
        only + sum(n * (mine - 1.0) * only for n, mine in zip(turns, each, strict=True))
        for only, each in ((quiet, own), (average, between))
    )
    idle = np.max(np.broadcast_arrays(*(user.retention for user in users)), axis=0)
    end = np.minimum(idle, 1e150)
    at_idle = np.exp(-share * sum(user.sessions_seen(end) for user in users))
    at_idle = at_idle * (1.0 + sum(n * (user.outlasting(end) - 1.0) for n, user in zip(turns, users, strict=True)))
    cycle = _cycle(mixed, mixed_average, idle, at_idle, stay, np.ones((1,) * (stay.time.ndim)))
    written = share * (first + later) / cycle.turns[0]
    held = np.clip(written * cycle.held[0], 0.0, 1.0)
    lost = (written - share * first * (1.0 - held)) / np.maximum(share * later, 1e-300)
    return _Heads(held, np.clip(1.0 - lost, 0.0, 1.0))


_Rule = Callable[[Sequence[SessionStream], Array], list[tuple[SessionStream, _Stay]]]


def _found_and_held(streams: Sequence[SessionStream], stays: dict[int, _Stay], tops=None) -> tuple[list[Array], list[Array], Array]:
    """Private and head tokens found per session of each stream, and the mean occupancy [tokens]."""
    private, occupied = zip(*(_private(stream, stays[id(stream)]) for stream in streams), strict=True)
    if tops: private = [p*tops[id(s)] for p,s in zip(private,streams)]; occupied=[p*tops[id(s)] for p,s in zip(occupied,streams)]
    held = sum(stream.arrival_rate * tokens for stream, tokens in zip(streams, occupied, strict=True))
    prefix: list[Array] = [np.zeros(np.shape(tokens)) for tokens in private]
    for pool, users in shared_pools(streams):
        stay = stays[id(users[0])]
        groups = (variant_groups(v, stay.time.ndim - 1) for v in (pool.share, pool.count))
        for share, count in zip(*groups, strict=True):
            heads = _heads(users, share, stay)
            held = held + pool.tokens * count * heads.held
            for i, stream in enumerate(streams):
                if stream.prefix is pool:
                    turns = heads.held + stream.paused_moments[0] * heads.later
                    prefix[i] = prefix[i] + pool.tokens * share * count * turns
    return list(private), prefix, held


def _hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, since: ArrayLike, rule: _Rule, tops=None
) -> HitTokens:
    """What is found at the time T at which the mean occupancy is the capacity."""
    shape = np.broadcast_shapes(np.shape(capacity), np.shape(since), *(stream.shape for stream in streams))
    room = np.broadcast_to(np.maximum(np.asarray(capacity, float), 0.0), shape)
    heads = [0.0 if stream.prefix is None else stream.prefix.tokens for stream in streams]
    touched = sum(
        s.arrival_rate * (s.paused_moments[1] + s.finished_moments[1] + s.turns.mean * head)
        for s, head in zip(streams, heads, strict=True)
    )
    low = np.log(np.maximum(room, 1e-9) / np.maximum(touched, 1e-100)) + np.zeros(shape)

    def over(log_time: Array) -> Array:
        held = _found_and_held(*rule(streams, np.exp(log_time)), tops)[2]
        return np.log(np.maximum(held, 1e-300) / np.maximum(room, 1e-9))

    time = np.exp(crossing(over, low, np.maximum(low + 1.0, _LOG_FOREVER)))
    private, prefix, _ = _found_and_held(*rule(streams, time), tops)
    contexts = [np.broadcast_to(stream.paused_moments[1], shape) for stream in streams]
    whole = [np.broadcast_to(head * stream.turns.mean, shape) for stream, head in zip(streams, heads, strict=True)]
    some = room > 0.0
    found = [
        np.stack([np.where(some, np.clip(tokens, 0.0, most), 0.0) for tokens, most in zip(part, most_of, strict=True)])
        for part, most_of in ((private, contexts), (prefix, whole))
    ]
    return HitTokens(*found, np.stack(contexts), np.stack(whole))


def _spread(streams: Sequence[SessionStream], time: Array, capacity: ArrayLike) -> tuple[Array, Array]:
    """Nodes and weights of the gamma law of a stay of mean T."""
    mean, variance = working_set_mean(streams, time), working_set_variance(streams, time)
    held = np.maximum(mean, 1e-300) / np.maximum(variance, 1e-300) * capacity
    order = np.clip(held, 1.0, 1e4)
    node, weight = np.polynomial.legendre.leggauss(5)
    part = special.gammaincinv(order, _column(0.5 * (1.0 + node), np.ndim(order))) / order
    weight = _column(0.5 * weight, np.ndim(order))
    return time * part / (weight * part).sum(axis=0), np.broadcast_to(weight, part.shape)


def fifoq(streams, capacity, nodes=16):
    """experimental: law of the stay from LRU's paused survival, depth factor apart"""
    from kvmodel.formulas.reuse import paused_survival, characteristic_time
    shape = np.broadcast_shapes(np.shape(capacity), *(s.shape for s in streams))
    T0 = np.broadcast_to(characteristic_time(streams, capacity), shape)
    grid = np.concatenate([[1e-4], np.geomspace(0.05, 12, nodes)])
    q = paused_survival([replace(s, retention=np.inf) for s in streams], capacity, _column(grid, len(shape)) * T0)  # (streams, grid)+A
    laws = {}
    for s, part in zip(streams, q):
        part = np.minimum.accumulate(part, axis=0)
        top = part[:1]
        w = -np.diff(part / np.maximum(top, 1e-9), axis=0)
        w = np.concatenate([w, (part[-1:] / np.maximum(top, 1e-9))], axis=0)
        t = np.concatenate([0.5 * (grid[1:] + grid[:-1]), [grid[-1]*1.3]])
        laws[id(s)] = (np.maximum(t, 0.03), w, top[0])
    def rule(streams, time):
        return streams, {id(s): _Stay(_column(laws[id(s)][0], len(shape)) * time, laws[id(s)][1], 0.0) for s in streams}
    tops = {id(s): laws[id(s)][2] for s in streams}
    return _hit_tokens(streams, capacity, np.inf, rule, tops)


def fifo_hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch = "reverse", since: ArrayLike = np.inf, sharp=False
) -> HitTokens:
    def rule(streams, time):
        nodes, weight = (time[None], np.ones_like(time)[None]) if sharp else _spread(streams, time, capacity)
        return streams, {id(s): _Stay(np.minimum(nodes, s.lifetime), weight, 0.0) for s in streams}

    return _hit_tokens(streams, capacity, since, rule)


def random_hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch = "reverse", since: ArrayLike = np.inf
) -> HitTokens:
    def rule(streams, time):
        longest = _LONGEST * time[None]
        return streams, {
            id(s): _Stay(np.minimum(longest, s.lifetime), np.ones_like(longest), 1.0 / time) for s in streams
        }

    return _hit_tokens(streams, capacity, since, rule)
