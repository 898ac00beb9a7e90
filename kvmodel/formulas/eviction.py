"""Keeping what is worth its room: the best that any rule can find, and the best that needs no foresight.

Both are fractional knapsacks of C tokens held on average. Each sort of token (the private context of a population, the
heads of a pool) offers what is found against what is held when it is kept for up to theta,

    foresight    found F(theta),  held E[G; G <= theta]            only pauses that end in time take room
    none         found F(theta),  held E min(G, theta), for ever finished contexts theta

and at one price per token held, each sort takes the theta at which worth found less price held is largest: the
vertices of its concave hull. The price is where the tokens held reach C; the sort whose vertices it joins then is kept
in part.

`ideal_hit_tokens` is the first, by tokens. It relaxes the capacity, which it keeps on average only, so it bounds the
clairvoyant rule that keeps it at every instant. It relaxes nothing else: it is prefix-closed by itself, as the gap of a
head since anyone used it never exceeds the pause of the session behind it. So every rule <= clairvoyant <= this <=
ceiling.

`value_aware_hit_tokens` is a rule that can be run: the second gives each sort its window, and what leaves first is what
is oldest in units of its window. That is LRU with a clock for each sort, so its hits are those of `reuse`, fluctuations
and all. Derived here.

Shapes and units: as in `reuse`. Zero at C = 0; the ceiling less what retention drops at C = inf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.reuse import HitTokens, Touch, hit_tokens
from kvmodel.formulas.working_set import SessionStream, reused_within, shared_pools

__all__ = ["Windows", "ideal_hit_tokens", "value_aware_hit_tokens", "value_windows", "windowed"]

Array = NDArray[Any]
_PAUSES = np.concatenate([[0.0], np.geomspace(1e-4, 1e10, 281)])  # [s]
_HALVINGS = 60


class _Kept(NamedTuple):
    """Which nodes each sort of token is kept up to: between two vertices of its hull."""

    low: list[Array]  # index of the node, one entry per sort, shape (1,) + A
    high: list[Array]
    part: Array  # of the way, shape A

    def of(self, sort: int, values: Array) -> Array:
        """Values at the nodes, (nodes,) + A, read where the sort is kept."""
        low, high = (np.take_along_axis(values, end[sort], axis=0)[0] for end in (self.low, self.high))
        return low + self.part * (high - low)


def _knapsack(worth: Sequence[Array], held: Sequence[Array], capacity: ArrayLike) -> _Kept:
    """Bisection in the price; worth and held rise along the nodes, (nodes,) + A."""

    def taken(price: Array) -> tuple[list[Array], Array]:
        at = [np.argmax(w - price * h, axis=0)[None] for w, h in zip(worth, held, strict=True)]
        return at, sum(np.take_along_axis(h, i, axis=0)[0] for h, i in zip(held, at, strict=True))

    shape = worth[0].shape[1:]
    dear, cheap = np.full(shape, 100.0), np.full(shape, -100.0)  # logarithms of prices
    for _ in range(_HALVINGS):
        middle = 0.5 * (dear + cheap)
        fits = taken(np.exp(middle))[1] <= capacity
        dear, cheap = np.where(fits, middle, dear), np.where(fits, cheap, middle)
    (low, least), (high, most) = taken(np.exp(dear)), taken(np.exp(cheap))
    part = np.clip((capacity - least) / np.where(most > least, most - least, 1.0), 0.0, 1.0)
    return _Kept(low, high, np.where(most > least, part, 1.0))


def _pauses(streams: Sequence[SessionStream], shape: tuple[int, ...]) -> Array:
    """Nodes [s]: even in the logarithm, and just before and at each landmark of a pause."""
    bends = [np.broadcast_to(mark, shape)[None] for stream in streams for mark in stream.gap.landmarks]
    steady = np.broadcast_to(_PAUSES.reshape((-1,) + (1,) * len(shape)), (len(_PAUSES), *shape))
    return np.sort(np.concatenate([steady, *bends, *(mark * (1.0 - 1e-9) for mark in bends)]), axis=0)


def ideal_hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch = "reverse", since: ArrayLike = np.inf
) -> HitTokens:
    """Tokens found per session by a rule that knows all pauses, at most. The touch order does not matter to it.

    since: the cache was emptied so long ago [s]. Pauses are resolved to 12 %, constant ones exactly.
    """
    shape = np.broadcast_shapes(np.shape(capacity), np.shape(since), *(stream.shape for stream in streams))
    times = _pauses(streams, shape)
    private, heads = reused_within(streams, np.minimum(times, since))
    flow = sum(s.arrival_rate * sum(parts) for s, *parts in zip(streams, private, *heads, strict=True))
    middle = np.concatenate([times[:1], 0.5 * (times[:-1] + times[1:])])  # what ends between two nodes
    held = np.cumsum(np.diff(flow, axis=0, prepend=0.0) * middle, axis=0)
    kept = _knapsack([flow], [held], capacity)
    found, contexts = (
        np.stack([np.broadcast_to(values, shape) for values in part])
        for part in ([kept.of(0, own) for own in private], [stream.paused_moments[1] for stream in streams])
    )
    left, whole = np.zeros((2, len(heads), len(streams), *shape))
    for level, part in enumerate(heads):
        for i, stream in enumerate(streams):
            if level < len(stream.heads):
                left[level, i] = kept.of(0, part[i])
                whole[level, i] = stream.heads[level].tokens * stream.turns.mean
    return HitTokens(found, left, contexts, whole)


class Windows(NamedTuple):
    """How long each population is worth keeping [s], streams on axis 0; only their ratios matter to the rule."""

    context: Array  # since its last use
    head: Array  # since anyone last used it; never shorter than the contexts behind it, which need it


def value_windows(streams: Sequence[SessionStream], capacity: ArrayLike) -> Windows:
    """Windows of the knapsack without foresight, worth counted by `value` and `head_value` of the streams.

    Where the best is to keep some contexts to the end of a pause and others not at all (pauses of one length), between.
    Zero: not worth keeping while anything else is. Capped at 1e10 s, where all fits.
    """
    shape = np.broadcast_shapes(np.shape(capacity), *(stream.shape for stream in streams))
    times = _pauses(streams, shape)
    private, heads = reused_within(streams, times)
    worth = [s.arrival_rate * s.value * tokens for s, tokens in zip(streams, private, strict=True)]
    held = []
    for stream in streams:
        paused, finished = stream.held_times(times)
        seconds = stream.paused_moments[1] * paused + stream.finished_moments[1] * finished
        held.append(stream.arrival_rate * seconds)
    pools = shared_pools(streams)
    for pool, users in pools:
        seen = sum(user.sessions_seen(times) for user in users)
        share, count = pool.paths(np.ndim(seen))
        held.append(pool.tokens * (count * -np.expm1(-share * seen)).sum(axis=0))
        mine = [(s, tokens) for s, tokens in zip(streams, heads[0], strict=True) if s.prefix is pool]
        worth.append(sum(s.arrival_rate * s.head_value * tokens for s, tokens in mine))
    kept = _knapsack([w + 0.0 * times for w in worth], [h + 0.0 * times for h in held], capacity)
    found = [kept.of(sort, times) for sort in range(len(worth))]
    context, pool_windows = found[: len(streams)], found[len(streams) :]
    longest = {pool: window for (pool, _), window in zip(pools, pool_windows, strict=True)}
    for stream, window in zip(streams, context, strict=True):
        if stream.prefix is not None:
            longest[stream.prefix] = np.maximum(longest[stream.prefix], window)
    head = [longest.get(s.prefix, window) for s, window in zip(streams, context, strict=True)]
    return Windows(np.stack(context), np.stack(head))


def windowed(streams: Sequence[SessionStream], windows: Windows) -> list[SessionStream]:
    """The streams with the ages of their entries counted in these windows, none below 1e-6 of the longest [s]."""
    longest = np.maximum(np.max([windows.context, windows.head], axis=(0, 1)), 1e-3)
    units = [np.maximum(part, 1e-6 * longest) for part in windows]
    return [replace(s, window=own, head_window=head) for s, own, head in zip(streams, *units, strict=True)]


def value_aware_hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch = "reverse", since: ArrayLike = np.inf
) -> HitTokens:
    """Tokens found per session when what leaves first is what is oldest in units of its window, see `value_windows`.

    One population without heads: LRU.
    """
    return hit_tokens(windowed(streams, value_windows(streams, capacity)), capacity, touch, since)
