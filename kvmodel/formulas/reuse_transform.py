"""What everybody else touched during one pause, as transforms, and the tokens found beside it.

Equations and shapes: `reuse`, whose innermost part this is. Frequencies lead; what every time node needs is in single
precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.single_precision import exponential, exponential_and_deficit, logarithm, narrow
from kvmodel.formulas.working_set import SessionStream, shared_pools, variant_groups

__all__ = ["Found", "Pool", "Sharers", "Touch", "found_after", "sharers_at"]

Array = NDArray[Any]
Touch = Literal["reverse", "forward"]

_ONE = np.float32(1)
_NEVER_ZERO = np.float32(1e-18)  # its square is still above zero in single precision


class _Context(NamedTuple):
    """Deficits of one stream's contexts, shape (frequencies,) + A."""

    paused: Array  # A(0) - A(s)
    finished: Array  # 1 - B(s)


def _context(stream: SessionStream, s: Array) -> _Context:
    first, step = stream.first.laplace_deficit(s), stream.step.laplace_deficit(s)
    following = stream.turns.continuation(step)
    paused = (stream.paused_moments[0] - following) + first * following
    finished = first + (1.0 - first) * step * following
    return _Context(_series(paused, stream.paused_moments, s), _series(finished, stream.finished_moments, s))


def _series(deficit: Array, moments: tuple[Array, Array, Array], s: Array) -> Array:
    """Deficit by its first two moments where it is so small that the differences above cancel."""
    _, mean, square = moments
    small = np.abs(s) * square < 1e-5 * mean
    return np.where(small, s * (mean - 0.5 * s * np.where(small, square, 0.0)), deficit)


def _mean_context(stream: SessionStream, s: Array) -> Array:
    """-A'(s) = E sum_k 1(K > k) S_k exp(-s S_k), by a central difference of the analytic deficit."""
    above, below = (_context(stream, s * (1.0 + sign * 1e-4)).paused for sign in (1, -1))
    return (above - below) / (2e-4 * s)


class Pool(NamedTuple):
    """A set of shared heads and its users; groups of equally popular variants on axis 0."""

    users: list[SessionStream]
    share: Array  # popularity of one variant of the group
    count: Array  # variants in the group
    head: Array  # exp(-s P), (frequencies,) + A
    rest: Array  # 1 - exp(-s P)
    found: Array  # transform of the head tokens found beside nothing, over C^2


class Sharers(NamedTuple):
    """All streams at the frequencies; mappings by id of the stream and of the prefix.

    What a time node needs is in single precision, over C^2 where it has the unit of a transform in C."""

    streams: Sequence[SessionStream]
    touch: Touch
    contexts: dict[int, _Context]
    own: dict[int, Array]  # transform in C of the private tokens found beside nothing, over C^2
    pools: dict[int, Pool]


def sharers_at(streams: Sequence[SessionStream], s: Array, capacity: Array, touch: Touch) -> Sharers:
    contexts = {id(stream): _context(stream, s) for stream in streams}
    pools, unit = {}, s * capacity
    for prefix, users in shared_pools(streams):
        head, rest = np.exp(-s * prefix.tokens), -np.expm1(-s * prefix.tokens)
        whole = rest / unit**2 if touch == "reverse" else prefix.tokens / capacity * head / unit
        share, count = (narrow(variant_groups(part, s.ndim - 1)) for part in (prefix.share, prefix.count))
        pools[id(prefix)] = Pool(users, share, count, narrow(head), narrow(rest), narrow(whole))
    if touch == "reverse":
        own = {key: narrow(context.paused / unit**2) for key, context in contexts.items()}
    else:
        own = {id(stream): narrow(_mean_context(stream, s) / capacity / unit) for stream in streams}
    return Sharers(streams, touch, contexts, own, pools)


def _over_heads(sharers: Sharers, pool: Pool, t: Array) -> list[tuple[ArrayLike, ArrayLike]]:
    """Transform of the private context that lies over a head last touched t ago, if by others and if by the
    session itself, for each user of the pool. None lies over it in reverse order. The others' last touch was
    that of a session that waits longer than t or has finished; its own left a waiting context."""
    if sharers.touch == "reverse":
        return [(_ONE, _ONE)] * len(pool.users)
    rates = [(user.arrival_rate * user.outlasting(t), user.arrival_rate) for user in pool.users]
    contexts = [sharers.contexts[id(user)] for user in pool.users]
    deficit = sum(p * c.paused + f * c.finished for (p, f), c in zip(rates, contexts, strict=True))
    waiting = [user.paused_moments[0] for user in pool.users]
    touches = sum(p * n + f for (p, f), n in zip(rates, waiting, strict=True))
    others = 1.0 - deficit / np.maximum(touches, 1e-300)
    itself = [1.0 - c.paused / np.maximum(n, 1e-300) for c, n in zip(contexts, waiting, strict=True)]
    others = narrow(others)
    return [(others, narrow(own)) for own in itself]


def _loss(sharers: Sharers, streams: Sequence[SessionStream], t: Array) -> Array:
    """-log E exp(-s W(t)) of the private contexts of some streams."""
    total = 0.0j
    for stream in streams:
        paused, finished = stream.held_times(t)
        context, rate = sharers.contexts[id(stream)], stream.arrival_rate
        if stream.agents is None:
            total = total + (rate * paused * context.paused + rate * finished * context.finished)
        else:
            running = rate * paused * (context.paused + context.finished) / stream.agents
            older = rate * (finished - paused) * context.finished / stream.agents
            total = total + np.maximum(stream.agents - 1.0, 0.0) * (older - np.log(1.0 - running + 1e-200))
    return total


class _Variants(NamedTuple):
    """Transforms at one pause t, one variant of each group on axis 0."""

    whole: list[Array]  # of what the variant and its sessions touch
    whole_deficit: list[Array]  # one minus that
    sessions: list[Array]  # of the sessions alone


def _variants(sharers: Sharers, pool: Pool, t: Array) -> _Variants:
    """What one variant of each group adds to the working set.

    With L sessions on average, whose private contexts have the transform exp(-l): exp(-sP) exp(-l) plus
    (1 - exp(-sP)) exp(-L), since the head counts unless no session came. Kept from zero where it underflows,
    because it is divided out again to condition on the variant (the product is zero there as well).
    """
    seen = narrow(sum(user.sessions_seen(t) for user in pool.users))
    loss = narrow(_loss(sharers, pool.users, t))
    found = _Variants([], [], [])
    for share in pool.share:
        load = -share * seen
        sessions, deficit = exponential_and_deficit(-share * loss)
        found.sessions.append(sessions)
        found.whole.append(pool.head * sessions + pool.rest * np.exp(load) + _NEVER_ZERO)
        found.whole_deficit.append(pool.head * deficit - pool.rest * np.expm1(load))
    return found


class Found(NamedTuple):
    """Tokens found after t, mappings by id of the stream."""

    private: dict[int, Array]  # of one session, if all its pauses were t
    head: dict[int, tuple[Array, Array]]  # if others, if the session itself last used it t ago; groups on axis 0


def found_after(sharers: Sharers, t: Array, value: Callable[[Array], Array]) -> Found:
    """Everybody else's transform at one pause, read off at the capacity. The session's own head counts
    once."""
    others = narrow(-_loss(sharers, [stream for stream in sharers.streams if stream.prefix is None], t) + 0j)
    beside: dict[int, Array] = {id(None): np.complex64(1)}
    without = {}
    for key, pool in sharers.pools.items():
        variants = _variants(sharers, pool, t)
        for count, whole, deficit in zip(pool.count, variants.whole, variants.whole_deficit, strict=True):
            others = others + count * logarithm(whole, deficit)
        without[key] = [1 / whole for whole in variants.whole]
        groups = zip(pool.share * pool.count, variants.sessions, without[key], strict=True)
        beside[key] = pool.head * sum(weight * own * rest for weight, own, rest in groups)
    others = exponential(others)
    private = {
        id(stream): value(sharers.own[id(stream)] * (beside[id(stream.prefix)] * others)) for stream in sharers.streams
    }
    head = {}
    for key, pool in sharers.pools.items():
        read: dict[int, Array] = {}
        conditioned = [others * rest for rest in without[key]]
        for user, over in zip(pool.users, _over_heads(sharers, pool, t), strict=True):
            for law in over:
                if id(law) not in read:
                    found = pool.found * law
                    read[id(law)] = np.stack([value(found * rest) for rest in conditioned])
            head[id(user)] = (read[id(over[0])], read[id(over[1])])
    return Found(private, head)
