"""What an LRU cache still holds of a session when its next turn comes.

Sessions arrive as a Poisson process; turn k leaves a context of S_k tokens, S_1 = first, S_{k+1} = S_k +
step; the next turn comes after a pause (gap), or never. While one session pauses for t, the others touch
W(t) tokens: their working set, every context counted once, at its last size. Under LRU the return finds what
fits beside W(t).

W(t) is compound Poisson (arrivals independent of the returning session, Slivnyak), so its Laplace transform
is closed:

    log E exp(-s W(t)) = -sum_i lambda_i [ E min(Gap_i, t) (A_i(0) - A_i(s)) + t (1 - B_i(s)) ]
    A(s) = sum_k P(K > k) E exp(-s S_k)   contexts that wait       B(s) = E exp(-s S_K)   contexts that are
    finished

summed over all streams that share the cache. Hit tokens are linear in such transforms and are read off at
the wanted capacity by a Fourier series with a positive smoothing window (`LINES` frequencies, exact for
straight lines, standard deviation of the window about 0.02 C). The same algorithm serves one context or a
million; nothing is replaced by its mean. Method of the project note, section 3, in exact form; derived here.

Shapes: parameters and capacities of study shape A broadcast together; inner axes (time nodes, frequencies)
lead. Sizes and capacities are in the same unit, [tokens] below ([B] works as well). Holds for: stationary
Poisson arrivals of sessions, pauses independent of sizes, whole-session LRU (token granularity). Not for:
rates that vary (mix over them), a fixed population of few agents (binomial, 0.004-0.013 off).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.working_set import (
    SessionStream,
    SharedPrefix,
    characteristic_time,
    shared_pools,
    variant_groups,
    working_set_mean,
    working_set_variance,
)

__all__ = [
    "HitTokens",
    "SessionStream",
    "SharedPrefix",
    "characteristic_time",
    "exclusive_capacities",
    "hit_tokens",
    "inclusive_capacities",
    "paused_survival",
    "working_set_mean",
    "working_set_variance",
]

Array = NDArray[Any]
Touch = Literal["reverse", "forward"]

LINES = 48
INSTANTS = 25
_FOREVER = 1e300  # [s]
_DAMPING = 4.6  # aliases beyond 3 C weigh exp(-2 * 4.6) = 1e-4


def _window() -> tuple[Array, Array]:
    """Frequencies (times C) and weights (times 1/C) of the smoothed Fourier series.

    Jackson's kernel is positive, so a hit curve stays monotone and bounded; its mass and mean are corrected
    so that constants and straight lines in C come out exactly.
    """
    k = np.arange(LINES + 1)
    angle = np.pi / (LINES + 2)
    jackson = ((LINES + 2 - k) * np.cos(k * angle) + np.sin(k * angle) / np.tan(angle)) / (LINES + 2)
    sigma = _DAMPING + 1j * np.pi * k
    weight = np.exp(_DAMPING) * (-1.0) ** k * jackson * np.where(k == 0, 0.5, 1.0)
    mass, mean = np.sum(weight * (1.0 / sigma).real), np.sum(weight * (1.0 / sigma**2).real)
    return sigma * (mean / mass), weight * (mean / mass) / mass


_SIGMA, _WEIGHT = _window()


def _inverse(transform: Array, capacity: ArrayLike) -> Array:
    """f(C) from its Laplace transform, shape (times, frequencies) + A, at the frequencies `_SIGMA`/C."""
    return np.einsum("tk...,k->t...", transform.real, _WEIGHT) / capacity


# ------------------------------------------------------------------------------ transforms of the others' working set


class _Context(NamedTuple):
    """Deficits of one stream's contexts, shape (frequencies,) + A."""

    paused: Array  # A(0) - A(s)
    finished: Array  # 1 - B(s)


def _context(stream: SessionStream, s: Array) -> _Context:
    first, step = stream.first.laplace_deficit(s), stream.step.laplace_deficit(s)
    following = stream.turns.continuation(step)
    paused = (stream.paused_moments[0] - following) + first * following
    return _Context(paused, first + (1.0 - first) * step * following)


def _loss(stream: SessionStream, context: _Context, times: Array) -> Array:
    """-log E exp(-s W(t)) of the private contexts of one stream, shape (times, frequencies) + A."""
    paused, finished = stream.held_times(times)
    rate = np.asarray(stream.arrival_rate)
    return (rate * paused)[:, None] * context.paused + (rate * finished)[:, None] * context.finished


class _Pool(NamedTuple):
    """A set of shared heads seen through the time nodes. With L the sessions seen on a variant and L - l the
    exponent of their private contexts, exp(-l) (exp(-sP) + (1 - exp(-sP)) exp(l - L)) is the transform of
    the variant and its sessions; `factor` is the bracket, for one variant of each group."""

    prefix: SharedPrefix
    seen: Array  # sessions seen on all variants, (times,) + A
    loss: Array  # -log transform of their private contexts, (times, frequencies) + A
    head: Array  # exp(-s P), (frequencies,) + A
    share: Array  # popularity of one variant, (groups, times) + A
    count: Array  # variants in the group
    factor: list[Array]


def _pool(
    prefix: SharedPrefix,
    users: list[int],
    streams: Sequence[SessionStream],
    losses: list[Array],
    times: Array,
    s: Array,
) -> _Pool:
    seen = sum(streams[i].sessions_seen(times) for i in users)
    loss = sum(losses[i] for i in users)
    head = np.exp(-s * prefix.tokens)
    share, count = variant_groups(prefix.share, times.ndim), variant_groups(prefix.count, times.ndim)
    factor = [head + (1.0 - head) * np.exp(q[:, None] * (loss - seen[:, None])) for q in share]
    return _Pool(prefix, seen, loss, head, share, count, [_away_from_zero(f) for f in factor])


def _away_from_zero(z: Array) -> Array:
    """A factor that may be divided out again."""
    return np.where(np.abs(z) < 1e-12, 1e-12, z)


# ------------------------------------------------------------------------------------------- integral over the pause


def _time_nodes(streams: Sequence[SessionStream], capacity: Array) -> Array:
    """Zero and `INSTANTS` times around the characteristic time, dense where the hits fall off: W(t) passes C
    within about its own relative standard deviation, in log t divided by the slope of its mean."""
    centre = characteristic_time(streams, capacity)
    mean = working_set_mean(streams, centre)
    later = working_set_mean(streams, centre * 1.1)
    slope = np.log(np.maximum(later, 1e-200) / np.maximum(mean, 1e-200)) / np.log(1.1)
    spread = np.sqrt(working_set_variance(streams, centre)) / np.maximum(mean, 1e-200)
    width = np.clip(spread / np.maximum(slope, 0.1), 0.03, 1.0)
    u = np.linspace(-1.0, 1.0, INSTANTS).reshape((-1,) + (1,) * width.ndim)
    offsets = width * np.sinh(u * np.arcsinh(5.0 / width))
    return np.concatenate([np.zeros((1,) + centre.shape), centre * np.exp(offsets)])


def _pause_weights(survival: Array, average: Array, end: ArrayLike) -> Array:
    """Weights of a function of the pause at the time nodes: exact for any pause law (steps included) when
    the function is straight between nodes. `average` is the mean survival between neighbours, `end` the
    survival never reached."""
    weights = np.zeros_like(survival)
    weights[:-1] += survival[:-1] - average
    weights[1:] += average - survival[1:]
    weights[-1] += survival[-1] - end
    return weights


def _average(integral: Array, times: Array) -> Array:
    return np.diff(integral, axis=0) / np.maximum(np.diff(times, axis=0), 1e-300)


def _own_weights(stream: SessionStream, times: Array) -> Array:
    """Weights of the session's own pause."""
    average = _average(stream.outlasting_integral(times) + 0.0 * times, times)
    return _pause_weights(stream.outlasting(times) + 0.0 * times, average, stream.outlasting(_FOREVER))


def _variant_weights(
    stream: SessionStream, share: Array, seen: Array, ever: Array, times: Array
) -> tuple[Array, Array]:
    """Weights of the time since anyone touched the session's variant, at its first turn and at later ones:
    the others' touches are Poisson, its own last touch is one pause ago."""
    load = share * seen + 0.0 * times
    quiet, end = np.exp(-load), np.exp(-share[0] * ever)
    step = np.diff(load, axis=0)
    average = quiet[:-1] * np.where(step > 1e-9, -np.expm1(-step) / np.maximum(step, 1e-9), 1.0)
    own = stream.outlasting(times)
    own_average = _average(stream.outlasting_integral(times) + 0.0 * times, times)
    first = _pause_weights(quiet, average, end)
    return first, _pause_weights(quiet * own, average * own_average, end * stream.outlasting(_FOREVER))


# ------------------------------------------------------------------------------------------------------- hit tokens


class HitTokens(NamedTuple):
    """Tokens per session, streams on axis 0, shape (streams,) + A.

    private, prefix                    found in the cache, of the session's own context and of its shared head
    reusable_private, reusable_prefix  the ceiling: what an infinite cache finds in its steady state,
                                       E sum_k S_k 1(K > k) and P E K (every head is there)
    """

    private: Array
    prefix: Array
    reusable_private: Array
    reusable_prefix: Array


def _stack(values: Sequence[ArrayLike], shape: tuple[int, ...]) -> Array:
    return np.stack([np.broadcast_to(value, shape) for value in values])


def hit_tokens(streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch = "reverse") -> HitTokens:
    """Tokens found per session in an LRU cache of `capacity` tokens shared by the streams.

    touch = "reverse": the tail of a context is evicted first, as engines do, min(S, (C - W)+) tokens are
    found. touch = "forward": the head is oldest, S tokens are found if S + W <= C and none otherwise.
        reverse   L^-1 [ (A(0) - A(s)) / s^2 E exp(-s W(t)) ](C)      forward   L^-1 [ -A'(s) / s E exp(-s
        W(t)) ](C)
    averaged over the pause t. A shared head counts once beside its session; it is found if nobody needed the
    space since anyone last used that variant. Zero at C = 0, the ceiling (less what retention drops) at C =
    inf. Exact but for quadrature: about 0.002 of the ceiling, up to 0.01 where sizes and pauses are all
    constant (the window blurs the capacity by 2 %). Forward touch of shared heads takes the context lying
    over the head from the mean touch of its users.
    """
    shape, depth, s = _frequencies(streams, capacity)
    times = _aligned(_time_nodes(streams, depth), shape)
    view = _view(streams, times, s)
    private, prefix = [], []
    for stream in view.streams:
        left = _inverse(_private_transform(view, stream, touch), depth)
        private.append((_own_weights(stream, times) * left).sum(axis=0))
        prefix.append(_prefix_hits(view, stream, depth, times, touch))
    contexts = _stack([stream.paused_moments[1] for stream in streams], shape)
    heads = _stack([_head_tokens(stream) * stream.turns.mean for stream in streams], shape)
    found, found_heads = (
        np.clip(_stack(private, shape), 0.0, contexts),
        np.clip(_stack(prefix, shape), 0.0, heads),
    )
    return HitTokens(found, found_heads, contexts, heads)


def paused_survival(
    streams: Sequence[SessionStream], capacity: ArrayLike, pause: ArrayLike, touch: Touch = "reverse"
) -> Array:
    """Share of a waiting context that is still held after a pause, shape (streams, pauses) + A; private
    tokens.

    pause [s] lies along axis 0, shape (pauses,) or (pauses,) + A. One at pause zero if the context fits at
    all, falling to zero; zero beyond the retention time.
    """
    shape, depth, s = _frequencies(streams, capacity)
    times = _aligned(np.asarray(pause, float), shape)
    view = _view(streams, times, s)
    share = []
    for stream in streams:
        left = _inverse(_private_transform(view, stream, touch), depth) * (times <= stream.retention)
        share.append(left / np.maximum(stream.paused_moments[1], 1e-300))
    return np.clip(_stack(share, (len(times), *shape)), 0.0, 1.0)


def _frequencies(
    streams: Sequence[SessionStream], capacity: ArrayLike
) -> tuple[tuple[int, ...], Array, Array]:
    """Study shape, the capacity within what double precision resolves (1e8 contexts hold everything),
    frequencies."""
    shape = np.broadcast_shapes(np.shape(capacity), *(stream.shape for stream in streams))
    largest = 1e8 * sum(stream.finished_moments[1] + _head_tokens(stream) for stream in streams)
    depth = np.clip(np.asarray(capacity, float), 1e-9 * largest / 1e8, largest)
    return shape, depth, _SIGMA.reshape((-1,) + (1,) * len(shape)) / depth


def _aligned(times: Array, shape: tuple[int, ...]) -> Array:
    """Axis 0 in front of as many study axes as there are."""
    return times.reshape(times.shape[:1] + (1,) * (len(shape) + 1 - times.ndim) + times.shape[1:])


def _head_tokens(stream: SessionStream) -> ArrayLike:
    return 0.0 if stream.prefix is None else stream.prefix.tokens


class _View(NamedTuple):
    """Everybody else as seen through the time nodes and frequencies."""

    streams: Sequence[SessionStream]
    s: Array
    contexts: dict[int, _Context]  # by id of the stream
    pools: dict[int, _Pool]  # by id of the shared prefix
    loss: Array  # -log E exp(-s W(t)) of all private contexts, (times, frequencies) + A
    heads: Array  # what the shared heads add to the transform, same shape


def _view(streams: Sequence[SessionStream], times: Array, s: Array) -> _View:
    contexts = [_context(stream, s) for stream in streams]
    losses = [_loss(stream, context, times) for stream, context in zip(streams, contexts, strict=True)]
    pools = {
        id(prefix): _pool(prefix, users, streams, losses, times, s) for prefix, users in shared_pools(streams)
    }
    heads = np.ones((1,) * times.ndim + (1,), complex)
    for pool in pools.values():
        for factor, count in zip(pool.factor, pool.count, strict=True):
            heads = heads * factor ** count[:, None]
    by_stream = {id(stream): context for stream, context in zip(streams, contexts, strict=True)}
    return _View(streams, s, by_stream, pools, sum(losses), heads)


def _private_transform(view: _View, stream: SessionStream, touch: Touch) -> Array:
    """Transform in C of the private tokens found after a pause, the session's own head counted once."""
    own = (
        view.contexts[id(stream)].paused / view.s**2
        if touch == "reverse"
        else _mean_context(stream, view.s) / view.s
    )
    pool, others = view.pools.get(id(stream.prefix)), view.heads * np.exp(-view.loss)
    if pool is None:
        return own * others
    weight = (pool.share * pool.count)[:, :, None]
    return own * pool.head * others * sum(w / factor for w, factor in zip(weight, pool.factor, strict=True))


def _prefix_hits(
    view: _View, stream: SessionStream, capacity: Array, times: Array, touch: Touch
) -> ArrayLike:
    """Head tokens found per session: nobody touched the variant since its last touch, everybody else did as
    always."""
    pool = view.pools.get(id(stream.prefix))
    if pool is None:
        return 0.0
    users = [user for user in view.streams if user.prefix is pool.prefix]
    head = (1.0 - pool.head) / view.s**2
    if touch == "forward":
        head = pool.prefix.tokens * pool.head / view.s * _context_at_touch(view, users)
    ever = sum(user.sessions_seen(_FOREVER) for user in users)
    total = 0.0
    for share, count, factor in zip(pool.share, pool.count, pool.factor, strict=True):
        left = _inverse(head * view.heads / factor * np.exp(share[:, None] * pool.loss - view.loss), capacity)
        first, later = _variant_weights(stream, share, pool.seen, ever, times)
        total = total + (share * count * (first + (stream.turns.mean - 1.0) * later) * left).sum(axis=0)
    return total


def _mean_context(stream: SessionStream, s: Array) -> Array:
    """-A'(s) = E sum_k 1(K > k) S_k exp(-s S_k), by a central difference of the analytic deficit."""
    step = 1e-4
    return (_context(stream, s * (1.0 + step)).paused - _context(stream, s * (1.0 - step)).paused) / (
        2.0 * step * s
    )


def _context_at_touch(view: _View, users: Sequence[SessionStream]) -> Array:
    """Transform of the private context over a head at one touch of it."""
    contexts = [view.contexts[id(user)] for user in users]
    deficit = sum(
        user.arrival_rate * (c.paused + c.finished) for user, c in zip(users, contexts, strict=True)
    )
    return 1.0 - deficit / sum(user.arrival_rate * user.turns.mean for user in users)


def exclusive_capacities(capacities: ArrayLike) -> Array:
    """Depth of the LRU stack down to each tier (axis 0, fast to slow) when a tier holds what the one above
    evicted: the sum so far. A tier's own hits are the difference of the hits at successive depths (exact for
    LRU)."""
    return np.cumsum(np.asarray(capacities, float), axis=0)


def inclusive_capacities(capacities: ArrayLike) -> Array:
    """Depth of the LRU stack down to each tier (axis 0, fast to slow) when a tier also holds all of the
    tiers above: the largest so far, so a slow tier smaller than the fast one adds nothing."""
    return np.maximum.accumulate(np.asarray(capacities, float), axis=0)
