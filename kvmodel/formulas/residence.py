"""Hits where a context leaves some time after it was written, used or not: FIFO, random, lifetimes.

How long does an entry stay? LRU keeps a token for as long as the others need to touch what can lie above it:
P(stay > t) = `reuse.paused_survival`, exact for one context or a million. The other rules stop keeping it when the
others have *written* as much, which takes longer, as what they find they do not write. So their stay has the same law,
longer by one factor, and the factor is where the mean occupancy, finished contexts and heads included, is that of LRU
in the same cache. A token that LRU never holds, because the context before it fills the cache, no rule holds.

FIFO and lifetimes. A context is one entry: written whole by a turn that finds nothing, lengthened by later turns, gone
a time R after it was written, or idle for tau (a retention; the stay of LRU). A turn finds it if every pause since it
was written was shorter than tau and their sum shorter than R. With phi(s) = E exp(-s G) 1(G <= tau) the turns that
write are a renewal sequence, u_k = sum_j u_j d_(k-j), d_n the probability of a stay of n turns:

    U(z) = sum_k u_k z^(k-1) = 1 / ((1 - z) M(z)),     M(z) = L^-1 [ 1 / (s (1 - z phi(s))) ](R)

M counts the turns within a stay when each is followed by another with probability z. Geometric turns take U at one z;
any other law is a mixture of such, `Turns.geometric_parts`. Sizes do not depend on pauses, so what is found is what can
be reused less the contexts before the turns that write, and a session occupies, with S_k = first + (k - 1) step,

    (first U + step z U') H + step U z H' [token s],     H(z) = L^-1 [ (z psi + (1 - z) y) / (s (1 - z phi)) ](R)

psi and y the transforms of the time an entry waits for another turn and after the last one. A variant of a head is
written x times a second: x (1 + touches expected in R) = touches; a first turn finds it as often as it is there, R x.
Poisson touches give hit = occupancy = lambda T / (1 + lambda T).

Random. The stay is exponential, its mean that law, and it knows no age: what was used a time x ago is there with
probability r(x) = E exp(-x / stay). Hits are means of r over the time since the last use: the session's own pause, or
anyone's touch of the variant.

Behind a head that is lost, a context is of no use. Derived here.

Shapes: study shape A trails; parts of the turns, frequencies, ages lead. Tokens and seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.laplace_inversion import jump_series
from kvmodel.formulas.laws import Constant, FixedTurns
from kvmodel.formulas.pause_integral import average_between, pause_weights
from kvmodel.formulas.reuse import HitTokens, Touch, paused_survival, stay_times
from kvmodel.formulas.working_set import (
    SessionStream,
    SharedPrefix,
    crossing,
    reused_within,
    shared_pools,
    variant_groups,
)

__all__ = ["fifo_hit_tokens", "lru_lifetime_hit_tokens", "random_hit_tokens"]

Array = NDArray[Any]
_SERIES = jump_series(32)
_PART = np.concatenate([[0.0], np.geomspace(2e-3, 1.0, 34)])  # of an age: pauses are resolved to 21 %
_DECAY = np.exp(-np.multiply.outer(_SERIES.frequency, _PART))
_AGES = 13  # of the law of a stay
_SINCE = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 90)])  # of a stay: times since a use that matter to random
_SOON, _FOREVER = 1e-9, 1e150  # [s]
_FACTORS = (0.2, 60.0)  # a stay over that of LRU


# ----------------------------------------------------------------------------------------------- the law of LRU's stay


class _Law(NamedTuple):
    """How long LRU keeps a token: ages [s], their weights (sum one), and the share of the tokens it keeps at all."""

    age: Array  # (ages,) + A
    weight: Array  # (ages,) + A
    share: Array  # A


class _Stays(NamedTuple):
    context: list[_Law]  # of each stream
    head: list[_Law]  # of each pool


def _stays(streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch, shape: tuple[int, ...]) -> _Stays:
    """Survival of probes that nobody else feels: sessions of no rate that come back to their contexts or to a head."""
    lasting = [replace(s, retention=np.inf) for s in streams]
    later = np.maximum(stay_times(lasting, np.broadcast_to(capacity, shape), _AGES), _SOON)
    later = np.broadcast_to(later, (_AGES, *shape))
    edges = np.concatenate([1e-6 * later[:1], later])
    ages = np.concatenate([0.5 * (edges[:-1] + edges[1:]), 1.3 * edges[-1:]])
    once = [replace(s, arrival_rate=0.0, turns=FixedTurns(2), agents=None) for s in lasting]
    heads = [SessionStream(0.0, Constant(pool.tokens), turns=FixedTurns(2)) for pool, _ in shared_pools(streams)]
    kept = paused_survival([*lasting, *once, *heads], capacity, edges, touch)
    n = len(streams)
    returning = np.stack([np.broadcast_to(s.paused_moments[1] > 0.0, edges.shape) for s in streams])
    laws = []
    for part in [*np.where(returning, kept[:n], kept[n : 2 * n]), *kept[2 * n :]]:
        falling = np.minimum.accumulate(part, axis=0)
        share = falling[0]
        weight = -np.diff(falling, axis=0, append=0.0) / np.maximum(share, 1e-12)
        laws.append(_Law(ages, np.where(share > 1e-12, weight, 1.0 / len(ages)), share))  # no room: any law will do
    return _Stays(laws[:n], laws[n:])


def _lru_held(streams: Sequence[SessionStream], stays: _Stays) -> Array:
    """Mean occupancy of LRU: what was used within the stay [tokens]."""
    total: ArrayLike = 0.0
    for stream, law in zip(streams, stays.context, strict=True):
        paused, finished = stream.held_times(law.age)
        seconds = stream.paused_moments[1] * paused + stream.finished_moments[1] * finished
        total = total + stream.arrival_rate * law.share * (law.weight * seconds).sum(axis=0)
    for (pool, users), law in zip(shared_pools(streams), stays.head, strict=True):
        seen = sum(user.sessions_seen(law.age) for user in users)
        for share, count in _groups(pool, np.ndim(seen) - 1):
            total = total + pool.tokens * count * law.share * (law.weight * -np.expm1(-share * seen)).sum(axis=0)
    return total


def _groups(pool: SharedPrefix, ndim: int) -> Iterable[tuple[Array, Array]]:
    """Share and number of the variants of each group, the study axes behind."""
    return zip(*(variant_groups(v, ndim) for v in (pool.share, pool.count)), strict=True)


def _column(values: Array, ndim: int) -> Array:
    return values.reshape((-1,) + (1,) * ndim)


# ------------------------------------------------------------------------------------------------ the cache as a whole


class _Context(NamedTuple):
    """What becomes of one session's context."""

    found: Array  # tokens
    held: Array  # token-seconds


class _Heads(NamedTuple):
    """One variant of a group of equally popular ones."""

    held: Array  # share of the time it is there; first turns find it as often
    later: list[Array]  # share of later turns that find it, by user
    after: Array  # the same, after each pause of the rule's grid


class _Rule(NamedTuple):
    """Closed forms of a rule, given the law of LRU's stay and the factor by which its own is longer."""

    context: Callable[[SessionStream, _Law, Array, ArrayLike], _Context]  # the last: usable, after each pause
    heads: Callable[[Sequence[SessionStream], _Law, Array], Callable[[Array], _Heads]]  # of a variant's popularity


class _Found(NamedTuple):
    private: list[Array]  # tokens per session, by stream
    prefix: list[Array]
    held: Array  # mean occupancy [tokens]


def _found(streams: Sequence[SessionStream], stays: _Stays, rule: _Rule, factor: Array) -> _Found:
    prefix: list[ArrayLike] = [0.0 for _ in streams]
    usable: list[ArrayLike] = [1.0 if s.prefix is None else 0.0 for s in streams]
    held: ArrayLike = 0.0
    for (pool, users), law in zip(shared_pools(streams), stays.head, strict=True):
        of_variant = rule.heads(users, law, factor)
        mine = [i for i, stream in enumerate(streams) if stream.prefix is pool]
        for share, count in _groups(pool, factor.ndim):
            heads = of_variant(share)
            held = held + pool.tokens * count * law.share * heads.held
            for i, later in zip(mine, heads.later, strict=True):
                turns = heads.held + streams[i].paused_moments[0] * later
                prefix[i] = prefix[i] + pool.tokens * share * count * law.share * turns
                usable[i] = usable[i] + share * count * heads.after
    private = []
    for stream, law, use in zip(streams, stays.context, usable, strict=True):
        context = rule.context(stream, law, factor, use)
        private.append(law.share * context.found)
        held = held + stream.arrival_rate * law.share * context.held
    return _Found(private, prefix, held)


def _hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch, since: ArrayLike, rule: _Rule
) -> HitTokens:
    shape = np.broadcast_shapes(np.shape(capacity), np.shape(since), *(stream.shape for stream in streams))
    stays = _stays(streams, capacity, touch, shape)
    target = np.maximum(_lru_held(streams, stays), 1e-300)

    def over(log_factor: Array) -> Array:
        return np.log(np.maximum(_found(streams, stays, rule, np.exp(log_factor)).held, 1e-300) / target)

    low, high = (np.full(shape, np.log(end)) for end in _FACTORS)
    found = _found(streams, stays, rule, np.exp(crossing(over, low, high, steps=7)))
    recent, recent_heads = reused_within(streams, since)
    levels = len(recent_heads)  # one, or none: prefixes that nest are not modelled
    some = np.broadcast_to(np.asarray(capacity) > 0.0, shape)
    private, prefix = (
        np.stack([np.where(some, np.clip(tokens, 0.0, most), 0.0) for tokens, most in zip(*each, strict=True)])
        for each in ((found.private, recent), (found.prefix, recent_heads[0] if levels else recent))
    )
    contexts, whole = (
        np.stack([np.broadcast_to(most, shape) for most in part])
        for part in ([s.paused_moments[1] for s in streams], [s.head_tokens * s.turns.mean for s in streams])
    )
    return HitTokens(private, prefix[None][:levels], contexts, whole[None][:levels])


# --------------------------------------------------------------------------------------------------- FIFO and lifetimes


class _Limits(NamedTuple):
    """What ends an entry: laws of two limits, nodes on axis 0 with weights of sum one."""

    age: Array  # since it was written [s]
    age_weight: Array
    idle: Array  # since its last use [s]
    idle_weight: Array

    @property
    def times(self) -> Array:
        """Times since a use at which pauses are looked at, up to each age [s]."""
        return _column(_PART, self.age.ndim) * self.age

    def over_idle(self, parts: Sequence[Array]) -> Array:
        return sum(weight * part for weight, part in zip(self.idle_weight, parts, strict=True))


class _Cycle(NamedTuple):
    """From one writing to the next, means over the limits; parts of the turns on axis 0."""

    ratio: Array  # z
    weight: Array
    turns: Array  # M
    turns_slope: Array  # M'
    held: Array  # H [s]
    held_slope: Array  # z H' [s]

    def over_parts(self, values: Array) -> Array:
        return (self.weight * values).sum(axis=0).real


def _pauses(stream: SessionStream, limits: _Limits) -> Array:
    """Probability of the pauses at the times of the grid, those over an idle limit at none."""
    times, patient = limits.times, [replace(stream, retention=limit) for limit in limits.idle]
    outlasting = limits.over_idle([s.outlasting(times) for s in patient])
    between = limits.over_idle([average_between(s.outlasting_integral(times), times) for s in patient])
    return pause_weights(outlasting, between, outlasting[-1])


def _cycle(stream: SessionStream, limits: _Limits, masses: Array, usable: ArrayLike = 1.0) -> _Cycle:
    """masses: `_pauses`. usable: chance that a turn may use the entry (its head is there), after each of them."""
    s = _column(_SERIES.frequency, limits.age.ndim)  # in units of 1/age
    touched, found = (np.tensordot(_DECAY, part, axes=1) for part in (masses, masses * usable))
    late = [np.exp(-s * np.minimum(limit / limits.age, 60.0)) for limit in limits.idle]
    never = [
        part * stream.gap.survival(np.minimum(limit, _FOREVER)) for part, limit in zip(late, limits.idle, strict=True)
    ]
    z, weight = (
        v.reshape(v.shape[:1] + (1,) * (limits.age.ndim - v.ndim) + v.shape[1:]) for v in stream.turns.geometric_parts()
    )
    each, left = z[:, None, None], 1.0 - np.asarray(stream.deleted, float)
    segment = (
        each * (1.0 - limits.over_idle(never) - touched) + (1.0 - each) * left * (1.0 - limits.over_idle(late))
    ) / s
    once = 1.0 / (1.0 - each * found)
    held = limits.age * segment * once
    parts = (once, found * once**2, held, held * each * found * once)
    return _Cycle(z, weight, *((limits.age_weight * _SERIES.value_of_parts(p / s)).sum(axis=1) for p in parts))


def _written_context(stream: SessionStream, limits: _Limits, usable: ArrayLike) -> _Context:
    c = _cycle(stream, limits, _pauses(stream, limits), usable)
    written = 1.0 / ((1.0 - c.ratio) * c.turns)
    later = c.ratio * (c.turns - (1.0 - c.ratio) * c.turns_slope) * written**2
    first, step = stream.first.mean, stream.step.mean
    lost = first * (c.over_parts(written) - 1.0) + step * (c.over_parts(later - written) + 1.0)
    held = c.over_parts((first * written + step * later) * c.held + step * written * c.held_slope)
    return _Context(stream.paused_moments[1] - lost, held)


def _written_heads(users: Sequence[SessionStream], limits: _Limits) -> Callable[[Array], _Heads]:
    """A variant is written x times a second, by first turns as often as it is not there and by later ones: the turns
    that follow in the same session differ, after a first one and after any."""
    first = sum(user.arrival_rate for user in users)
    later = sum(user.arrival_rate * user.paused_moments[0] for user in users)
    unlimited = limits._replace(idle=np.full_like(limits.idle, np.inf))
    masses = [_pauses(user, unlimited) for user in users]
    after_first, after_any = 0.0, 0.0
    for user, each in zip(users, masses, strict=True):
        cycle = _cycle(user, unlimited, each)
        more = cycle.turns - 1.0
        after_first = after_first + user.arrival_rate / first * cycle.over_parts(more)
        after_any = after_any + user.arrival_rate * cycle.over_parts(more / (1.0 - cycle.ratio))
    after_later = (after_any - first * after_first) / np.maximum(later, 1e-300)
    bias, mean_age = after_first - after_later, (limits.age_weight * limits.age).sum(axis=0)
    every, idle = [replace(user, retention=np.inf) for user in users], np.minimum(limits.idle, _FOREVER)
    seen, seen_idle = (sum(user.sessions_seen(t) for user in every) for t in (limits.times, idle))

    def of_variant(share: Array) -> _Heads:
        quiet, over_idle = np.exp(-share * seen), np.exp(-share * seen_idle)
        touches = share * (first + later)
        more = 1.0 + touches * mean_age + after_later - share * first * mean_age * bias
        written = np.clip((touches - share * first * bias) / more, 0.0, touches)
        held = np.clip(written * mean_age, 0.0, 1.0)
        # found by a turn, it leaves at any time within R: lost if nobody has written it again since
        gaps = 0.5 * (quiet[1:] + quiet[:-1]) * np.diff(limits.times, axis=0)
        since = np.concatenate([0.0 * gaps[:1], np.cumsum(gaps, axis=0)])
        after = 1.0 - (1.0 - written / touches) * since / limits.age
        lost = [1.0 - held - (limits.age_weight * (m * (after - held)).sum(axis=0)).sum(axis=0) for m in masses]
        told = share * sum(
            user.arrival_rate * user.paused_moments[0] * part for user, part in zip(users, lost, strict=True)
        )
        scale = np.maximum(written - share * first * (1.0 - held), 0.0) / np.maximum(told, 1e-300)
        found = [np.clip(1.0 - scale * part, 0.0, 1.0) for part in lost]
        own = [limits.over_idle(over_idle * user.gap.survival(idle)) for user in users]
        both = [
            _both(part, 1.0 - gone)
            for part, gone in zip((held, *found), (limits.over_idle(over_idle), *own), strict=True)
        ]
        return _Heads(both[0], both[1:], after)

    return of_variant


def _both(one: Array, other: Array) -> Array:
    """Found by two limits: the odds of losing it to either add up, as rates do."""
    return 1.0 / (1.0 / np.maximum(one, 1e-300) + 1.0 / np.maximum(other, 1e-300) - 1.0)


def _writing_rule(limits: Callable[[SessionStream, _Law, Array], _Limits]) -> _Rule:
    return _Rule(
        lambda stream, law, factor, usable: _written_context(stream, limits(stream, law, factor), usable),
        lambda users, law, factor: _written_heads(users, limits(users[0], law, factor)),
    )


def _alone(value: ArrayLike, factor: Array) -> tuple[Array, Array]:
    """A limit that is known: one node."""
    return np.broadcast_to(value, factor.shape)[None], np.ones((1, *factor.shape))


def fifo_hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch = "reverse", since: ArrayLike = np.inf
) -> HitTokens:
    """Tokens found per session when contexts leave in the order in which they were written; hits do not renew them.

    Retention counts from the last use, `lifetime` from the writing. since: emptied so long ago [s]; never more than
    what was used since then. Zero at C = 0; the ceiling, less what retention and lifetime drop, at C = inf.
    """

    def limits(stream: SessionStream, law: _Law, factor: Array) -> _Limits:
        return _Limits(np.minimum(factor * law.age, stream.lifetime), law.weight, *_alone(stream.retention, factor))

    return _hit_tokens(streams, capacity, touch, since, _writing_rule(limits))


def lru_lifetime_hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch = "reverse", since: ArrayLike = np.inf
) -> HitTokens:
    """Tokens found per session under LRU when a context is also dropped `lifetime` after it was written, used or not.

    LRU for an infinite lifetime; a lifetime alone for C = inf. Else as `fifo_hit_tokens`.
    """

    def limits(stream: SessionStream, law: _Law, factor: Array) -> _Limits:
        idle = np.minimum(factor * law.age, stream.retention)
        return _Limits(*_alone(np.minimum(stream.lifetime, 30.0 * idle[-1]), factor), idle, law.weight)

    return _hit_tokens(streams, capacity, touch, since, _writing_rule(limits))


# --------------------------------------------------------------------------------------------------------------- random


class _Chance(NamedTuple):
    """r(x) at times since the last use, and its integral up to each [s]."""

    times: Array
    there: Array
    seconds: Array


def _chance(law: _Law, factor: Array) -> _Chance:
    mean = factor * law.age
    times = _column(_SINCE, factor.ndim) * mean[_AGES // 2]  # the same for contexts and heads
    gone = np.exp(-times[:, None] / mean)
    return _Chance(times, (law.weight * gone).sum(axis=1), (law.weight * mean * (1.0 - gone)).sum(axis=1))


def _masses(stream: SessionStream, times: Array) -> Array:
    """Probability of the pauses at the times, those over the retention at none."""
    survival = stream.outlasting(times)
    return pause_weights(survival, average_between(stream.outlasting_integral(times), times), survival[-1])


def _memoryless_context(stream: SessionStream, law: _Law, factor: Array, usable: ArrayLike) -> _Context:
    c, mean = _chance(law, factor), factor * law.age
    masses = _masses(stream, c.times)
    most = (law.weight * mean * -np.expm1(-np.minimum(stream.retention / mean, 700.0))).sum(axis=0)
    waiting = (masses * c.seconds).sum(axis=0) + (1.0 - masses.sum(axis=0)) * most
    found = (masses * c.there * usable).sum(axis=0)
    moments = stream.paused_moments[1], stream.finished_moments[1]
    return _Context(moments[0] * found, moments[0] * waiting + moments[1] * most)


def _memoryless_heads(users: Sequence[SessionStream], law: _Law, factor: Array) -> Callable[[Array], _Heads]:
    c = _chance(law, factor)
    seen = sum(user.sessions_seen(c.times) for user in users)
    masses = [_masses(user, c.times) for user in users]

    def of_variant(share: Array) -> _Heads:
        quiet = np.exp(-share * seen)
        between = _steady(quiet)
        last = (quiet[:-1] - between) * c.there[:-1] + (between - quiet[1:]) * c.there[1:]
        others = np.concatenate([0.0 * quiet[:1], np.cumsum(last, axis=0)])  # who came since, the last of them
        after = others + quiet * c.there
        return _Heads(others[-1], [(m * (after - others[-1])).sum(axis=0) + others[-1] for m in masses], after)

    return of_variant


def _steady(survival: Array) -> Array:
    """Mean between two times of what falls exponentially between them."""
    step = -np.diff(np.log(np.maximum(survival, 1e-300)), axis=0)
    return survival[:-1] * np.where(step > 1e-9, -np.expm1(-step) / np.maximum(step, 1e-9), 1.0)


def random_hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch = "reverse", since: ArrayLike = np.inf
) -> HitTokens:
    """Tokens found per session when any entry may leave, each as likely as the others.

    With many contexts a pause G is bridged with probability E exp(-G / T). Retention counts from the last use; there
    is no lifetime. since and limits as `fifo_hit_tokens`. In reverse order a victim loses only as much of its tail as
    is needed, so large contexts among small ones last longer than told here.
    """
    return _hit_tokens(streams, capacity, touch, since, _Rule(_memoryless_context, _memoryless_heads))
