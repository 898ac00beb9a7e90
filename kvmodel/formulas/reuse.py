"""What an LRU cache still holds of a session when its next turn comes.

Turn k of a session leaves a context of S_k tokens and the next turn comes after a pause, or never. While one
session pauses for t, the others touch W(t) tokens: their working set. Under LRU the return finds what fits
beside W(t).

W(t) is compound Poisson (arrivals do not depend on the returning session, Slivnyak), so its transform is
closed:

    -log E exp(-s W(t)) = sum_i lambda_i [ E min(Gap_i, t) (A_i(0) - A_i(s)) + t (1 - B_i(s)) ]
    A(s) = sum_k P(K > k) E exp(-s S_k)    contexts that wait for a turn
    B(s) = E exp(-s S_K)                   contexts that are finished

over all streams i that share the cache. Of a fixed population of N agents, each other one has touched its
present context with probability p = E min(Gap, t) / E Gap: that part becomes -(N - 1) log(1 - p (1 -
psi(s))), psi the transform of a context, and only what finished sessions left stays Poisson. Hit tokens are
linear in such transforms and are read off at the wanted capacity. One algorithm for one context or a
million; nothing is replaced by its mean. Derived here; it is the exact form of the second-order
characteristic time.

Shapes: parameters and capacities of study shape A broadcast together; frequencies lead.
Units: sizes and capacities alike, [tokens] below ([B] works as well).
Streams with a `window` each are the rule of `eviction.value_aware_hit_tokens`: the same stack with ages counted
in windows, and times here are such ages.

Holds for: stationary Poisson arrivals of sessions, pauses independent of sizes, LRU over tokens.
Rates that vary: `SessionStream.rates` (`varying_rates`), or where they vary slowly against the characteristic
time, put on an axis and averaged with `over_rates`; the mean rate alone is up to 0.3 off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.deleted_sessions import found_and_not_lost
from kvmodel.formulas.laplace_inversion import continuous_series, jump_series
from kvmodel.formulas.pause_integral import average_between, halved, pause_weights, refined
from kvmodel.formulas.reuse_transform import Pool, Touch, sharers_at
from kvmodel.formulas.working_set import (
    SessionStream,
    SharedPrefix,
    characteristic_time,
    contexts_held,
    working_set_mean,
    working_set_variance,
)

__all__ = [
    "HitTokens",
    "SessionStream",
    "SharedPrefix",
    "characteristic_time",
    "contexts_held",
    "exclusive_capacities",
    "hit_tokens",
    "inclusive_capacities",
    "over_rates",
    "paused_survival",
    "stay_times",
    "working_set_mean",
    "working_set_variance",
]

Array = NDArray[Any]

STATED_ERROR = 0.015  # largest difference from simulation promised where the conditions above hold
INSTANTS = 17
_FOREVER = 1e150  # [s]
_SERIES = {"reverse": continuous_series(), "forward": jump_series()}


# ------------------------------------------------------------------------------------------- integral over the pause


def stay_times(streams: Sequence[SessionStream], capacity: Array, count: int) -> Array:
    """So many times around the characteristic time, (count,) + A, dense where the hits fall off: W(t) passes C
    within about its own relative standard deviation, in log t divided by the slope of its mean."""
    touched = sum(s.arrival_rate * (s.paused_moments[1] + s.finished_moments[1]) for s in streams)
    heads = sum(s.arrival_rate * s.turns.mean * s.head_tokens for s in streams)
    touches = sum(s.arrival_rate * s.turns.mean for s in streams)
    # below one context it is not the mean of W that matters, but whether anybody came at all
    centre = characteristic_time(streams, np.maximum(capacity, (touched + heads) / np.maximum(touches, 1e-100)))
    mean = working_set_mean(streams, centre)
    later = working_set_mean(streams, centre * 1.1)
    slope = np.log(np.maximum(later, 1e-200) / np.maximum(mean, 1e-200)) / np.log(1.1)
    spread = np.sqrt(working_set_variance(streams, centre)) / np.maximum(mean, 1e-200)
    width = np.clip(spread / np.maximum(slope, 0.1), 0.03, 1.0)
    u = np.linspace(-1.0, 1.0, count).reshape((-1,) + (1,) * width.ndim)
    return centre * np.exp(width * np.sinh(u * np.arcsinh(8.0 / width)))


def _time_nodes(streams: Sequence[SessionStream], capacity: Array, since: ArrayLike) -> Array:
    """Zero, `INSTANTS` times around the characteristic time, and the landmarks of the pauses."""
    steady = stay_times(streams, capacity, INSTANTS)
    centre = steady[INSTANTS // 2]
    units = [(stream, unit) for stream in streams for unit in stream.windows]
    bends = [level / unit for stream, unit in units for level in (*stream.gap.landmarks, stream.retention, since)]
    bends = [level for level in bends if np.any(np.isfinite(level))]
    bends = [np.where(np.isfinite(level) & (np.asarray(level) > 0.0), level, centre)[None] for level in bends]
    times = np.sort(np.concatenate([np.zeros((1,) + centre.shape), steady, *bends]), axis=0)
    # nodes that coincide are set a little apart, so that slopes between neighbours exist
    return times * (1.0 + 1e-7 * np.arange(len(times)).reshape((-1,) + (1,) * centre.ndim))


class _OwnPause(NamedTuple):
    """P(the session's own last touch is older) at the nodes, its mean between them, and for ever."""

    older: Array
    average: Array
    never: Array


def _own_pause(stream: SessionStream, times: Array) -> _OwnPause:
    average = average_between(stream.outlasting_integral(times) + 0.0 * times, times)
    return _OwnPause(stream.outlasting(times) + 0.0 * times, average, stream.outlasting(_FOREVER))


def _variant_weights(own: _OwnPause, later_turns: Array, load: Array, ever: Array) -> tuple[Array, Array]:
    """Weights, over all turns of a session, of the time since its variant was last touched: by others, whose
    touches are Poisson (`load` of them so far, `ever` in all), and by itself, one pause ago at the later turns."""
    quiet, end = np.exp(-load), np.exp(-ever)
    step = np.diff(load, axis=0)
    average = quiet[:-1] * np.where(step > 1e-9, -np.expm1(-step) / np.maximum(step, 1e-9), 1.0)
    first = pause_weights(quiet, average, end)
    later = pause_weights(quiet * own.older, average * own.average, end * own.never)
    by_itself = quiet * pause_weights(own.older, own.average, own.older[-1])
    return first + later_turns * (later - by_itself), later_turns * by_itself


# ------------------------------------------------------------------------------------------------------- hit tokens


class HitTokens(NamedTuple):
    """Tokens per session, streams on axis 0, shape (streams,) + A.

    private, heads                    found in the cache, of the session's own context and of its shared heads
    reusable_private, reusable_heads  the ceiling: what an infinite cache finds in its steady state,
                                      E sum_k S_k 1(K > k) and P E K (every head is there)
    heads have their level in front, (levels, streams) + A: axis 0 goes from the beginning of the prompt on, zero where
    a stream has no such head.
    """

    private: Array
    heads: Array
    reusable_private: Array
    reusable_heads: Array

    @property
    def prefix(self) -> Array:
        """Found of all its shared heads."""
        return self.heads.sum(axis=0)

    @property
    def reusable_prefix(self) -> Array:
        """Ceiling of all its shared heads."""
        return self.reusable_heads.sum(axis=0)


def hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch = "reverse", since: ArrayLike = np.inf
) -> HitTokens:
    """Tokens found per session in an LRU cache of `capacity` tokens shared by the streams.

    since: the cache was emptied so long ago [s]; only what was touched after that can be found, which gives
    the recovery after a restart, a crash or a new version of the weights.

    touch = "reverse": the tail of a context is evicted first, as engines do; min(S, (C - W)+) tokens are
    found. touch = "forward": the head is the oldest; S tokens are found if S + W <= C and none otherwise.
        reverse   L^-1 [ (A(0) - A(s)) / s^2  E exp(-s W(t)) ](C)
        forward   L^-1 [ -A'(s) / s           E exp(-s W(t)) ](C)
    averaged over the pause t. Shared heads count once beside their session; one is found if nobody needed the
    space since anyone last used that variant, and those before it are found with it. Zero at C = 0; the
    ceiling, less what retention drops, at C = inf. Where rates change, the mean over the time: their paths lead
    all study axes and are gone from the result.

    Quadrature error about 0.002 of the ceiling. In forward order a size without spread makes the curve jump,
    and the jump is blurred over 2 % of C.
    """
    shape, depth, s = _frequencies(streams, capacity, touch, np.shape(since))
    times = _aligned(_time_nodes(streams, depth, since), len(shape))
    sharers = sharers_at(streams, s, depth, touch)
    young = {id(stream): replace(stream, retention=np.minimum(stream.retention, since)) for stream in streams}
    nodes = found_and_not_lost(sharers, times, lambda f: _read(touch, f, depth))
    fine, private = halved(times), []
    heads = np.zeros((max(len(stream.heads) for stream in streams), len(streams), *shape))
    whole = np.zeros_like(heads)
    for i, stream in enumerate(streams):
        seen = stream.rates
        returns, uses = (1.0, 1.0) if seen is None else (seen.returning(times), seen.using(times))
        own = _falling(streams, np.stack([node.private[id(stream)] for node in nodes]))
        left = refined(times, returns * own)
        private.append((pause_weights(*_own_pause(young[id(stream)], fine)) * left).sum(axis=0))
        for level, head in enumerate(stream.heads):
            pool = sharers.pools[head]
            at_nodes = zip(*(node.head[head, id(stream)] for node in nodes), strict=True)
            others, itself = (uses * _falling(streams, np.stack(left, axis=1), axis=1) for left in at_nodes)
            users = [young[id(user)] for user in pool.users]
            heads[level, i] = _prefix_hits(young[id(stream)], pool, users, times, others, itself)
            whole[level, i] = head.tokens * stream.turns.mean
    contexts = _stack([stream.paused_moments[1] for stream in streams], shape)
    private, contexts = (_over_paths(streams, part, 1) for part in (_stack(private, shape), contexts))
    heads, whole = (_over_paths(streams, part, 2) for part in (heads, whole))
    return HitTokens(np.clip(private, 0.0, contexts), np.clip(heads, 0.0, whole), contexts, whole)


def _falling(streams: Sequence[SessionStream], tokens: Array, axis: int = 0) -> Array:
    """What is found after each time: never below nothing and, of a fixed population on shared heads, never more after a
    longer time where rates are steady and nothing is deleted. Thinned variant by variant such a population may leave
    no transform of a law at all, whose inverse is then anything."""
    tokens = np.maximum(tokens, 0.0)
    thinned = any(stream.agents is not None and stream.prefix is not None for stream in streams)
    steady = all(stream.rates is None and not np.any(stream.deleted) for stream in streams)
    return np.minimum.accumulate(tokens, axis=axis) if thinned and steady else tokens


def _over_paths(streams: Sequence[SessionStream], values: Array, axis: int) -> Array:
    """Mean over the time, where rates change; their paths lie on an axis behind levels and streams."""
    time = next((stream.rates.time for stream in streams if stream.rates is not None), None)
    return values if time is None else (time * values).sum(axis=axis)


def _prefix_hits(
    stream: SessionStream, pool: Pool, users: list[SessionStream], times: Array, others: Array, itself: Array
) -> Array:
    """Head tokens found per session from those found after each time since the last touch by others (the
    users) and by itself, shape (paths, times) + A."""
    fine = halved(times)
    seen, ever = (sum(user.sessions_seen(t) for user in users) for t in (fine, _FOREVER))
    seen = np.maximum.accumulate(seen + 0.0 * fine, axis=0)  # a quantile of a rate that changes may fall
    own, later_turns, total = _own_pause(stream.by_head_window, fine), stream.turns.mean - 1.0, 0.0
    for share, weight, *left in zip(pool.share, pool.weight, others, itself, strict=True):
        since = _variant_weights(own, later_turns, share * seen, share[0] * ever)
        found = sum((w * refined(times, tokens)).sum(axis=0) for w, tokens in zip(since, left, strict=True))
        total = total + weight[0] * found
    return total


def paused_survival(
    streams: Sequence[SessionStream], capacity: ArrayLike, pause: ArrayLike, touch: Touch = "reverse"
) -> Array:
    """Share of the private tokens of a waiting context still held after a pause, shape (streams, pauses) + A.

    pause [s] lies along axis 0, shape (pauses,) or (pauses,) + A. At pause zero it is one if the context
    fits at all; it falls to zero, and is zero beyond the retention time. Where streams have windows, the pause
    is counted in them. At the mean rate where rates change. Where sessions are deleted, the pauses ascend and are
    a few per octave: what was lost is summed between them.
    """
    streams = [replace(stream, rates=None) for stream in streams]
    shape, depth, s = _frequencies(streams, capacity, touch)
    sharers, share = sharers_at(streams, s, depth, touch), []
    times = _aligned(np.asarray(pause, float), len(shape))
    from_zero = np.concatenate([np.zeros_like(times[:1]), times])
    nodes = found_and_not_lost(sharers, from_zero, lambda f: _read(touch, f, depth))
    for t, node in zip(times, nodes[1:], strict=True):
        found = node.private
        held = [found[id(stream)] * (stream.window * t <= stream.retention) for stream in streams]
        kept = [left / np.maximum(s.paused_moments[1], 1e-300) for left, s in zip(held, streams, strict=True)]
        share.append(np.clip(_stack(kept, shape), 0.0, 1.0))
    return np.stack(share, axis=1)


def _frequencies(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch, *shapes: tuple[int, ...]
) -> tuple[tuple[int, ...], Array, Array]:
    """Study shape, capacity between 1 and 1e17 parts in 1e9 of the mean context, and the frequencies."""
    shape = np.broadcast_shapes(np.shape(capacity), *(stream.shape for stream in streams), *shapes)
    context = 1e-9 + sum(stream.context_scale + stream.head_tokens for stream in streams)
    depth = np.clip(np.asarray(capacity, float), 1e-9 * context, 1e8 * context)
    depth = depth.reshape((1,) * (len(shape) - depth.ndim) + depth.shape)
    depth = np.broadcast_to(depth, np.broadcast_shapes(depth.shape, *shapes))
    return shape, depth, _SERIES[touch].frequencies(depth)


def _read(touch: Touch, transform: Array, capacity: Array) -> Array:
    """Tokens at the capacity, from their transform over its square."""
    return _SERIES[touch].value(transform, 1.0) * capacity


def _aligned(times: Array, ndim: int) -> Array:
    """Axis 0 in front of as many axes as the study has."""
    return times.reshape(times.shape[:1] + (1,) * (ndim + 1 - times.ndim) + times.shape[1:])


def _stack(values: Sequence[ArrayLike], shape: tuple[int, ...]) -> Array:
    return np.stack([np.broadcast_to(value, shape) for value in values])


def over_rates(values: ArrayLike, rate: ArrayLike, share: ArrayLike) -> Array:
    """Mean per session over a slowly varying load: sum(share rate value) / sum(share rate), over axis 0.

    values per session at each rate, shape (rates,) + A; rate [1/s], share of the time at that rate [-],
    shape (rates,) or (rates,) + A. Busy hours count more: they have more sessions. A day curve, bursts or
    weekdays are all such mixtures.
    """
    values = np.asarray(values, float)
    weight = np.asarray(rate, float) * np.asarray(share, float)
    weight = weight.reshape(weight.shape + (1,) * (values.ndim - weight.ndim))
    return (weight * values).sum(axis=0) / weight.sum(axis=0)


def exclusive_capacities(capacities: ArrayLike) -> Array:
    """Depth of the LRU stack down to each tier (axis 0, fast to slow) when a tier holds what the one above
    evicted: the sum so far. A tier's own hits are the difference of the hits at successive depths (exact for
    LRU)."""
    return np.cumsum(np.asarray(capacities, float), axis=0)


def inclusive_capacities(capacities: ArrayLike) -> Array:
    """Depth of the LRU stack down to each tier (axis 0, fast to slow) when a tier also holds all of the
    tiers above: the largest so far, so a slow tier smaller than the fast one adds nothing."""
    return np.maximum.accumulate(np.asarray(capacities, float), axis=0)
