"""The most any eviction rule can find: every token kept over just the pauses that are cheapest to bridge.

Keeping a token over a pause of length g occupies it for g and finds it once, so with a mean occupancy of C tokens the
best is to keep exactly the pauses up to some length theta (a fractional knapsack):

    sum_i lambda_i E[S 1(K > k)] E[G_i; G_i <= theta] + heads likewise = C,   found: the pauses up to theta

It needs to know every pause beforehand, and it holds C only on average, so it bounds the clairvoyant rule and with it
every real one: lru <= best possible <= this <= ceiling. Derived here.

Shapes and units: as in `reuse`. Zero at C = 0; the ceiling less what retention drops at C = inf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.reuse import HitTokens, Touch
from kvmodel.formulas.working_set import SessionStream, shared_pools

__all__ = ["ideal_hit_tokens"]

Array = NDArray[Any]
_PAUSES = np.concatenate([[0.0], np.geomspace(1e-4, 1e10, 281)])  # [s]


def ideal_hit_tokens(
    streams: Sequence[SessionStream], capacity: ArrayLike, touch: Touch = "reverse", since: ArrayLike = np.inf
) -> HitTokens:
    """Tokens found per session by a rule that knows all pauses, at most. The touch order does not matter to it.

    since: the cache was emptied so long ago [s]. Pauses are resolved to 12 %, constant ones exactly.
    """
    shape = np.broadcast_shapes(np.shape(capacity), np.shape(since), *(stream.shape for stream in streams))
    bends = [np.broadcast_to(mark, shape)[None] for stream in streams for mark in stream.gap.landmarks]
    steady = np.broadcast_to(_PAUSES.reshape((-1,) + (1,) * len(shape)), (len(_PAUSES), *shape))
    times = np.sort(np.concatenate([steady, *bends, *(mark * (1.0 - 1e-9) for mark in bends)]), axis=0)
    kept = np.minimum(times, since)
    private = [stream.paused_moments[1] * (1.0 - stream.outlasting(kept)) for stream in streams]
    held = sum(
        stream.arrival_rate * stream.paused_moments[1] * _bridged(stream.outlasting(kept), times) for stream in streams
    )
    heads = [[np.zeros_like(times) for _ in streams] for _ in range(max(len(stream.heads) for stream in streams))]
    for pool, users in shared_pools(streams):
        seen = sum(user.sessions_seen(kept) for user in users)
        prefix = heads[len(pool.chain) - 1]
        for share, count in zip(*pool.paths(len(shape)), strict=True):
            quiet = np.exp(-share * seen)
            for i, stream in enumerate(streams):
                if pool in stream.heads:
                    for turns, left in ((1.0, quiet), (stream.turns.mean - 1.0, quiet * stream.outlasting(kept))):
                        tokens = pool.tokens * share * count * turns
                        prefix[i] = prefix[i] + tokens * (1.0 - left)
                        held = held + stream.arrival_rate * tokens * _bridged(left, times)
    found = np.stack([_at(values, held, capacity, shape) for values in private])
    contexts = np.stack([np.broadcast_to(stream.paused_moments[1], shape) for stream in streams])
    left, whole = np.zeros((2, len(heads), len(streams), *shape))
    for level, part in enumerate(heads):
        for i, stream in enumerate(streams):
            if level < len(stream.heads):
                left[level, i] = _at(part[i], held, capacity, shape)
                whole[level, i] = stream.heads[level].tokens * stream.turns.mean
    return HitTokens(found, left, contexts, whole)


def _bridged(survival: Array, times: Array) -> Array:
    """E[G; G <= t] at the nodes, from the survival there: what ends between two nodes ends in their middle."""
    ended = -np.diff(survival, axis=0)
    middle = 0.5 * (times[:-1] + times[1:])
    return np.concatenate([np.zeros_like(times[:1]), np.cumsum(ended * middle, axis=0)])


def _at(found: Array, held: Array, capacity: ArrayLike, shape: tuple[int, ...]) -> Array:
    """What is found where the tokens held reach the capacity, straight between nodes (a pause kept in part)."""
    last = len(held) - 1
    after = np.minimum(np.sum(held < capacity, axis=0), last)[None]
    before = np.maximum(after - 1, 0)
    h0, h1, f0, f1 = (
        np.take_along_axis(np.broadcast_to(a, held.shape), i, axis=0)[0]
        for a, i in ((held, before), (held, after), (found, before), (found, after))
    )
    part = np.clip((capacity - h0) / np.where(h1 > h0, h1 - h0, 1.0), 0.0, 1.0)
    return np.broadcast_to(np.where(h1 > h0, f0 + part * (f1 - f0), f1), shape)
