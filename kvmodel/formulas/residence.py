"""Hits where a context leaves some time after it was written, used or not: FIFO, random, a lifetime that hits do not renew.

A context is one entry: written whole by a turn that finds nothing, lengthened by later turns, and gone when the first
of these comes:

    R after it was written      fifo; also a lifetime
    at a constant rate r        random: the victim is any entry
    idle for tau                a retention; the stay of LRU

So a turn finds the context if every pause since it was written was shorter than tau and their sum shorter than R. With
phi(s) = E exp(-(s + r) G) 1(G <= tau), the pauses an entry outlives, the turns that write are a renewal sequence,
u_k = sum_j u_j d_(k-j), d_n the probability of a stay of n turns, and

    U(z) = sum_k u_k z^(k-1) = 1 / ((1 - z) M(z)),     M(z) = L^-1 [ 1 / (s (1 - z phi(s))) ](R)

M counts the turns within a stay when each is followed by another with probability z. Geometric turns take U at one z;
any other law is a mixture of such, `Turns.geometric_parts`. Sizes do not depend on pauses, so what is found is what can
be reused less the contexts before the turns that write, and a session occupies, with S_k = first + (k - 1) step,

    (first U + step z U') H + step U z H' [token s],     H(z) = L^-1 [ (z psi + (1 - z) y) / (s (1 - z phi)) ](R)

psi and y the transforms of the time an entry waits for another turn and after the last one.

How long is R? LRU keeps a token for the time the others need to touch what it can hold, P(stay > t) = `paused_survival`,
exact for one context or a million. A stay under FIFO ends when the others have written as much: the same law, longer by
one factor, as they write less than they touch. Under random replacement the stay is exponential, its mean that law. The
factor is where the mean occupancy, finished contexts and heads included, is that of LRU in the same cache.

Heads: variants are touched by renewal with the law of the time since anyone last used them, the number of touches in R
corrected to its exact mean. First turns find a head as often as it is there. Poisson touches give hit = occupancy =
lambda T / (1 + lambda T). A context is of use only behind its head. Derived here.

Shapes: study shape A trails; parts of the turns, frequencies, ages lead. Tokens and seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.laplace_inversion import jump_series
from kvmodel.formulas.laws import Constant, FixedTurns
from kvmodel.formulas.pause_integral import average_between, pause_weights
from kvmodel.formulas.reuse import HitTokens, Touch, characteristic_time, paused_survival
from kvmodel.formulas.working_set import SessionStream, crossing, reused_within, shared_pools, variant_groups

__all__ = ["fifo_hit_tokens", "lru_lifetime_hit_tokens", "random_hit_tokens"]

Array = NDArray[Any]
_SERIES = jump_series()
_PART = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 64)])  # of an age: pauses are resolved to 11 %
_DECAY = np.exp(-np.multiply.outer(_SERIES.frequency, _PART))
_EDGES = np.concatenate([[1e-6], np.geomspace(0.03, 30.0, 15)])  # of the law of LRU's stay, over its characteristic time
_LONGEST = 30.0  # mean stays after which nothing is left of a memoryless one
_FOREVER = 1e150  # [s]
_FACTORS = (0.1, 300.0)  # a stay over that of LRU: below one where LRU's own is so wide that long pauses hold the cache


# ----------------------------------------------------------------------------------------- from writing to the next


class _Limits(NamedTuple):
    """What ends an entry: laws of two limits, nodes on axis 0 with weights of sum one, and a constant rate."""

    age: Array  # since it was written [s]
    age_weight: Array
    idle: Array  # since its last use [s]
    idle_weight: Array
    rate: Array  # [1/s], at each age

    @property
    def times(self) -> Array:
        """Times since a use at which pauses are looked at, up to each age [s]."""
        return _column(_PART, self.age.ndim) * self.age

    def over_idle(self, parts: Sequence[Array]) -> Array:
        return sum(weight * part for weight, part in zip(self.idle_weight, parts, strict=True))


class _Pauses(NamedTuple):
    """How long an entry waits for its next use: at the times of the grid, between them, and at each idle limit."""

    outlasting: Array  # P(pause > t, or over its limit), mean over the limits
    between: Array  # its mean between two times
    never: Array  # P(pause > limit)


class _Cycle(NamedTuple):
    """From one writing to the next, means over the limits; parts of the turns on axis 0."""

    turns: Array  # M
    turns_slope: Array  # M'
    held: Array  # H [s]
    held_slope: Array  # z H' [s]


def _cycle(pauses: _Pauses, limits: _Limits, ratio: Array, usable: ArrayLike = 1.0) -> _Cycle:
    """usable: chance that a turn may use the entry at all (its head is there), after pauses of the grid."""
    s, leaving = _column(_SERIES.frequency, limits.age.ndim), limits.rate * limits.age  # in units of 1/age
    masses = pause_weights(pauses.outlasting, pauses.between, pauses.outlasting[-1])
    masses = masses * np.exp(-_column(_PART, limits.age.ndim) * leaving)
    touched, found = (np.tensordot(_DECAY, part, axes=1) for part in (masses, masses * usable))
    late = [np.exp(-(s + leaving) * np.minimum(limit / limits.age, 60.0)) for limit in limits.idle]
    waits = 1.0 - limits.over_idle([part * n for part, n in zip(late, pauses.never, strict=True)]) - touched
    z = ratio[:, None, None]
    segment = (z * waits + (1.0 - z) * (1.0 - limits.over_idle(late))) / (s + leaving)
    once = 1.0 / (1.0 - z * found)
    held = limits.age * segment * once
    parts = (once, found * once**2, held, held * z * found * once)
    return _Cycle(*((limits.age_weight * _SERIES.value_of_parts(part / s)).sum(axis=1) for part in parts))


def _column(values: Array, ndim: int) -> Array:
    return values.reshape((-1,) + (1,) * ndim)


def _parts(stream: SessionStream, ndim: int) -> tuple[Array, Array]:
    """Ratios and weights of the turns, axis 0 in front of the study axes."""
    ratio, weight = stream.turns.geometric_parts()
    return tuple(v.reshape(v.shape[:1] + (1,) * (ndim - v.ndim) + v.shape[1:]) for v in (ratio, weight))


def _own_pauses(stream: SessionStream, limits: _Limits) -> _Pauses:
    times, patient = limits.times, [replace(stream, retention=limit) for limit in limits.idle]
    return _Pauses(
        limits.over_idle([s.outlasting(times) for s in patient]),
        limits.over_idle([average_between(s.outlasting_integral(times), times) for s in patient]),
        np.stack(np.broadcast_arrays(*(s.outlasting(_FOREVER) for s in patient))),
    )


def _private(stream: SessionStream, limits: _Limits, usable: ArrayLike) -> tuple[Array, Array]:
    """Tokens found, and token-seconds held, per session."""
    z, weight = _parts(stream, limits.age.ndim)
    cycle = _cycle(_own_pauses(stream, limits), limits, z, usable)
    written = 1.0 / ((1.0 - z) * cycle.turns)
    later = z * (cycle.turns - (1.0 - z) * cycle.turns_slope) * written**2
    first, step = stream.first.mean, stream.step.mean

    def over_parts(values: Array) -> Array:
        return (weight * values).sum(axis=0).real

    lost = first * (over_parts(written) - 1.0) + step * (over_parts(later - written) + 1.0)
    held = over_parts((first * written + step * later) * cycle.held + step * written * cycle.held_slope)
    return stream.paused_moments[1] - lost, held


# ------------------------------------------------------------------------------------------------------ shared heads


class _Heads(NamedTuple):
    """One variant of a group of equally popular ones."""

    held: Array  # share of the time it is there; first turns find it as often
    later: Array  # share of later turns of sessions that find it
    after: Array  # the same, after each pause of the grid


class _Touches(NamedTuple):
    """Touches of all variants of a pool: rates of first and later turns, and the session's own pauses."""

    first: Array  # [1/s]
    later: Array  # [1/s]
    own: _Pauses
    more: tuple[Array, Array]  # further turns of the session within an age, after a first and after a later turn


def _touches(users: Sequence[SessionStream], limits: _Limits) -> _Touches:
    returning = [user.arrival_rate * user.paused_moments[0] for user in users]
    first, later = sum(user.arrival_rate for user in users), sum(returning)
    own, after_first, after_any = [], 0.0, 0.0
    for user, rate in zip(users, returning, strict=True):
        pauses = _own_pauses(user, limits)
        own.append([rate * part / np.maximum(later, 1e-300) for part in pauses])
        z, weight = _parts(user, limits.age.ndim)
        more = weight * (_cycle(pauses, limits._replace(rate=0.0 * limits.rate), z).turns - 1.0)
        after_first = after_first + user.arrival_rate * more.sum(axis=0).real
        after_any = after_any + user.arrival_rate * (more / (1.0 - z)).sum(axis=0).real
    more = after_first / first, (after_any - after_first) / np.maximum(later, 1e-300)
    return _Touches(first, later, _Pauses(*(sum(part) for part in zip(*own, strict=True))), more)


def _heads(users: Sequence[SessionStream], touches: _Touches, share: Array, limits: _Limits) -> _Heads:
    """Renewal by the time since anyone last touched the variant: quiet(t) at first turns, quiet(t) P(pause > t) later."""
    times, own = limits.times, touches.own
    all_turns = touches.first + touches.later
    part = touches.later / all_turns

    def quiet(limit: Array, t: Array) -> Array:
        return np.exp(-share * sum(replace(user, retention=limit).sessions_seen(t) for user in users))

    each = [quiet(limit, times) for limit in limits.idle]
    alone, between = limits.over_idle(each), limits.over_idle([_steady(one) for one in each])
    never = np.stack([quiet(limit, np.minimum(limit, _FOREVER)) for limit in limits.idle])
    mixed = [
        only * (1.0 - part + part * mine)
        for only, mine in zip((alone, between, never), own, strict=True)
    ]
    one = np.ones((1,) * limits.age.ndim)
    cycle = _cycle(_Pauses(*mixed), limits, one)
    renewed = _cycle(_Pauses(*mixed), limits._replace(rate=0.0 * limits.rate), one)
    age = (limits.age_weight * limits.age).sum(axis=0)
    bias = touches.more[0] - touches.more[1]  # a first turn writes as often as the head is missing, a later one the rest
    exact = (1.0 + share * all_turns * age + touches.more[1] - share * touches.first * age * bias) / np.maximum(
        1.0 - touches.first / all_turns * bias, 1e-300
    )
    turns = 1.0 + (cycle.turns[0].real - 1.0) * (exact - 1.0) / np.maximum(renewed.turns[0].real - 1.0, 1e-300)
    written = share * all_turns / turns
    held = np.clip(written * cycle.held[0].real, 0.0, 1.0)
    lost = np.clip((written - share * touches.first * (1.0 - held)) / np.maximum(share * touches.later, 1e-300), 0.0, 1.0)
    # it leaves at any time after the session's own use; lost is what nobody has written again since
    since = np.concatenate([np.zeros_like(times[:1]), np.cumsum(between * np.diff(times, axis=0), axis=0)])
    mean = (pause_weights(own.outlasting, own.between, 0.0) * since).sum(axis=0)
    return _Heads(held, 1.0 - lost, np.clip(1.0 - lost * since / np.maximum(mean, 1e-300), 0.0, 1.0))


def _steady(survival: Array) -> Array:
    """Mean between nodes of what falls exponentially between them."""
    step = -np.diff(np.log(np.maximum(survival, 1e-300)), axis=0)
    return survival[:-1] * np.where(step > 1e-9, -np.expm1(-step) / np.maximum(step, 1e-9), 1.0)


# ----------------------------------------------------------------------------------------------------- the whole cache


class _Law(NamedTuple):
    """How long LRU keeps a token: ages [s], their weights (sum one), share of the tokens it keeps at all."""

    age: Array  # (ages,) + A
    weight: Array  # (ages,) + A
    share: Array  # A


class _Stays(NamedTuple):
    context: list[_Law]  # of each stream
    head: list[_Law]  # of each pool


def _stays(streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch, shape: tuple[int, ...]) -> _Stays:
    """Survival of probes that nobody else feels: sessions of no rate that come back to their contexts or to a head."""
    lasting = [replace(s, retention=np.inf) for s in streams]
    edges = _column(_EDGES, len(shape)) * np.broadcast_to(characteristic_time(lasting, capacity), shape)
    ages = np.concatenate([0.5 * (edges[:-1] + edges[1:]), 1.3 * edges[-1:]])
    once = [replace(s, arrival_rate=0.0, turns=FixedTurns(2), agents=None) for s in lasting]
    heads = [SessionStream(0.0, Constant(pool.tokens), turns=FixedTurns(2)) for pool, _ in shared_pools(streams)]
    kept = paused_survival([*lasting, *once, *heads], capacity, edges, touch)
    n = len(streams)
    returning = np.stack([np.broadcast_to(s.paused_moments[1] > 0.0, (len(edges), *shape)) for s in streams])
    laws = []
    for part in [*np.where(returning, kept[:n], kept[n : 2 * n]), *kept[2 * n :]]:
        falling = np.minimum.accumulate(part, axis=0)
        share = np.maximum(falling[0], 1e-12)
        laws.append(_Law(ages, -np.diff(falling, axis=0, append=0.0) / share, share))
    return _Stays(laws[:n], laws[n:])


class _Found(NamedTuple):
    private: list[Array]  # tokens per session, by stream
    prefix: list[Array]
    held: Array  # mean occupancy [tokens]


_Rule = Callable[[SessionStream, _Law, Array], _Limits]
"""What ends the entries of a stream, from the law of LRU's stay and the factor."""


def _found(streams: Sequence[SessionStream], stays: _Stays, rule: _Rule, factor: Array) -> _Found:
    prefix: list[ArrayLike] = [0.0 for _ in streams]
    usable: list[ArrayLike] = [1.0 if s.prefix is None else 0.0 for s in streams]
    held: ArrayLike = 0.0
    for (pool, users), law in zip(shared_pools(streams), stays.head, strict=True):
        limits = rule(users[0], law, factor)
        touches = _touches(users, limits)
        for share, count in zip(*(variant_groups(v, factor.ndim) for v in (pool.share, pool.count)), strict=True):
            heads = _heads(users, touches, share, limits)
            held = held + pool.tokens * count * law.share * heads.held
            for i, stream in enumerate(streams):
                if stream.prefix is pool:
                    turns = heads.held + stream.paused_moments[0] * heads.later
                    prefix[i] = prefix[i] + pool.tokens * share * count * law.share * turns
                    usable[i] = usable[i] + share * count * heads.after
    private = []
    for stream, law, use in zip(streams, stays.context, usable, strict=True):
        found, seconds = _private(stream, rule(stream, law, factor), use)
        private.append(law.share * found)
        held = held + stream.arrival_rate * law.share * seconds
    return _Found(private, prefix, held)


def _lru_held(streams: Sequence[SessionStream], stays: _Stays) -> Array:
    """Mean occupancy of LRU: what was used within the stay [tokens]."""
    total: ArrayLike = 0.0
    for stream, law in zip(streams, stays.context, strict=True):
        paused, finished = stream.held_times(law.age)
        seconds = stream.paused_moments[1] * paused + stream.finished_moments[1] * finished
        total = total + stream.arrival_rate * law.share * (law.weight * seconds).sum(axis=0)
    for (pool, users), law in zip(shared_pools(streams), stays.head, strict=True):
        seen = sum(user.sessions_seen(law.age) for user in users)
        for share, count in zip(*(variant_groups(v, seen.ndim - 1) for v in (pool.share, pool.count)), strict=True):
            total = total + pool.tokens * count * law.share * (law.weight * -np.expm1(-share * seen)).sum(axis=0)
    return total


def _hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch, since: ArrayLike, rule: _Rule
) -> HitTokens:
    shape = np.broadcast_shapes(np.shape(capacity), np.shape(since), *(stream.shape for stream in streams))
    stays = _stays(streams, capacity, touch, shape)
    target = np.maximum(_lru_held(streams, stays), 1e-300)

    def over(log_factor: Array) -> Array:
        return np.log(np.maximum(_found(streams, stays, rule, np.exp(log_factor)).held, 1e-300) / target)

    low, high = (np.full(shape, np.log(end)) for end in _FACTORS)
    found = _found(streams, stays, rule, np.exp(crossing(over, low, high, steps=9)))
    recent = reused_within(streams, since)
    whole = [0.0 if s.prefix is None else s.prefix.tokens * s.turns.mean for s in streams]
    some = np.broadcast_to(np.asarray(capacity) > 0.0, shape)
    private, prefix = (
        np.stack([np.where(some, np.clip(tokens, 0.0, most), 0.0) for tokens, most in zip(*each, strict=True)])
        for each in ((found.private, recent[0]), (found.prefix, recent[1]))
    )
    ceilings = [[stream.paused_moments[1] for stream in streams], whole]
    return HitTokens(private, prefix, *(np.stack([np.broadcast_to(v, shape) for v in part]) for part in ceilings))


def _alone(value: ArrayLike, factor: Array) -> tuple[Array, Array]:
    """A limit that is known: one node."""
    return np.broadcast_to(value, factor.shape)[None], np.ones((1, *factor.shape))


# ------------------------------------------------------------------------------------------------------------- rules


def fifo_hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch = "reverse", since: ArrayLike = np.inf
) -> HitTokens:
    """Tokens found per session when contexts leave in the order they were written; hits do not renew them."""

    def rule(stream: SessionStream, law: _Law, factor: Array) -> _Limits:
        age = np.minimum(factor * law.age, stream.lifetime)
        return _Limits(age, law.weight, *_alone(stream.retention, factor), 0.0 * age)

    return _hit_tokens(streams, capacity, touch, since, rule)


def random_hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch = "reverse", since: ArrayLike = np.inf
) -> HitTokens:
    """Tokens found per session when any entry may leave, each as likely as the others."""

    def rule(stream: SessionStream, law: _Law, factor: Array) -> _Limits:
        mean = factor * law.age
        age = np.minimum(_LONGEST * mean, stream.lifetime)
        return _Limits(age, law.weight, *_alone(stream.retention, factor), 1.0 / mean)

    return _hit_tokens(streams, capacity, touch, since, rule)


def lru_lifetime_hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch = "reverse", since: ArrayLike = np.inf
) -> HitTokens:
    """Tokens found per session under LRU when a context is also dropped `lifetime` after it was written."""

    def rule(stream: SessionStream, law: _Law, factor: Array) -> _Limits:
        idle = np.minimum(factor * law.age, stream.retention)
        age, alone = _alone(np.minimum(stream.lifetime, _LONGEST * idle[-1]), factor)
        return _Limits(age, alone, idle, law.weight, 0.0 * age)

    return _hit_tokens(streams, capacity, touch, since, rule)
