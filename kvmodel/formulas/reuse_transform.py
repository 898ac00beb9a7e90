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
from kvmodel.formulas.working_set import SessionStream, SharedPrefix, one_in, shared_pools, variant_groups

__all__ = ["Found", "Pool", "Sharers", "Touch", "deletions", "found_after", "sharers_at"]

Array = NDArray[Any]
Touch = Literal["reverse", "forward"]

_ONE = np.float32(1)
_NEVER_ZERO = np.float32(1e-18)  # its square is still above zero in single precision


class _Context(NamedTuple):
    """Deficits of one stream's contexts, shape (frequencies,) + A."""

    paused: Array  # A(0) - A(s)
    finished: Array  # 1 - B(s), of what is not deleted
    freed: ArrayLike  # 1 - transform of what is left before the last turn, of what is deleted after it


def _context(stream: SessionStream, s: Array) -> _Context:
    first, step = stream.first.laplace_deficit(s), stream.step.laplace_deficit(s)
    following = stream.turns.continuation(step)
    paused = (stream.paused_moments[0] - following) + first * following
    finished = first + (1.0 - first) * step * following
    deleted, freed = np.asarray(stream.deleted, float), 0.0
    if np.any(deleted):
        freed = first + (1.0 - first) * step * stream.turns.after_first.continuation(step)
        freed = deleted * stream.turns.survival(1) * freed
    left = _series((1.0 - deleted) * finished, stream.finished_moments, s)
    return _Context(_series(paused, stream.paused_moments, s), left, freed)


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
    """A set of shared heads and its users; axis 0 are the paths, groups of equally popular variants of it and of every
    head before it."""

    users: list[SessionStream]  # whose prompts hold it, whatever follows
    share: Array  # probability of one variant of a path, (paths, 1) + A
    weight: Array  # probability of the path
    count: Array  # variants beside one variant of the head before it, (groups, 1) + A
    head: Array  # exp(-s P), (frequencies,) + A
    rest: Array  # 1 - exp(-s P)
    found: Array  # transform of the head tokens found beside nothing, over C^2
    behind: list[Array]  # exp(-s tokens) of the heads that follow it in the prompts of each user


class Sharers(NamedTuple):
    """All streams at the frequencies; mappings by id of the stream, and by shared head, those before it first.

    What a time node needs is in single precision, over C^2 where it has the unit of a transform in C."""

    streams: Sequence[SessionStream]
    touch: Touch
    contexts: dict[int, _Context]
    own: dict[int, Array]  # transform in C of the private tokens found beside nothing, over C^2
    pools: dict[SharedPrefix, Pool]


def sharers_at(streams: Sequence[SessionStream], s: Array, capacity: Array, touch: Touch) -> Sharers:
    contexts = {id(stream): _context(stream, s) for stream in streams}
    pools, unit = {}, s * capacity
    for prefix, users in shared_pools(streams):
        head, rest = np.exp(-s * prefix.tokens), -np.expm1(-s * prefix.tokens)
        whole = rest / unit**2 if touch == "reverse" else prefix.tokens / capacity * head / unit
        share, number = prefix.paths(s.ndim)
        parts = (share, share * number, variant_groups(prefix.count, s.ndim), head, rest, whole)
        upto = sum(one.tokens for one in prefix.chain)
        pools[prefix] = Pool(users, *map(narrow, parts), [np.exp(-s * (user.head_tokens - upto)) for user in users])
    if touch == "reverse":
        own = {key: narrow(context.paused / unit**2) for key, context in contexts.items()}
    else:
        own = {id(stream): narrow(_mean_context(stream, s) / capacity / unit) for stream in streams}
    return Sharers(streams, touch, contexts, own, pools)


def _over_heads(sharers: Sharers, pool: Pool, t: Array) -> list[tuple[ArrayLike, ArrayLike]]:
    """Transform of what of one session lies over a head last touched t ago, if by others and if by the session
    itself, for each user of the pool: its private context and the heads that follow. None lies over it in reverse
    order. The others' last touch was that of a session that waits longer than t or has finished; its own left a
    waiting context."""
    if sharers.touch == "reverse":
        return [(_ONE, _ONE)] * len(pool.users)
    left, touches, itself = 0.0, 0.0, []
    for user, behind in zip(pool.users, pool.behind, strict=True):
        context, waiting = sharers.contexts[id(user)], user.paused_moments[0]
        paused, finished = user.arrival_rate * user.outlasting(t), user.arrival_rate
        left = left + behind * (paused * (waiting - context.paused) + finished * (1.0 - context.finished))
        touches = touches + (paused * waiting + finished)
        itself.append(narrow(behind * (1.0 - context.paused / np.maximum(waiting, 1e-300))))
    others = narrow(left / np.maximum(touches, 1e-300))
    return [(others, own) for own in itself]


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
    """Transforms at one pause t, one variant of each path on axis 0, (paths, frequencies) + A."""

    without: Array  # one over that of what a variant, with all that follows it, touches: divides it out
    certain: Array  # the head counted for certain, over the head counted if it was touched
    together: Array  # logarithm for all variants beside one of the head before, (paths of that head, frequencies) + A


def _variants(sharers: Sharers, t: Array) -> dict[SharedPrefix, _Variants]:
    """What the variants of each shared head add to the working set.

    With L sessions on average that touch a variant, and exp(-l) the transform of their private contexts and of the
    heads that follow, it is exp(-sP) exp(-l) + (1 - exp(-sP)) exp(-L), since the head counts unless no session came.
    The heads that follow are variants of the same form. Kept from zero where it underflows, because it is divided out
    again to condition on the variant (the product is zero there as well).
    """
    found: dict[SharedPrefix, _Variants] = {}
    for prefix, pool in reversed(sharers.pools.items()):
        seen = narrow(sum(user.sessions_seen(t) for user in pool.users))
        loss = narrow(_loss(sharers, [user for user in pool.users if user.prefix is prefix], t) + 0j)
        following = sum(variants.together for other, variants in found.items() if other.under is prefix)
        inside, deficit = exponential_and_deficit(following - pool.share * loss)
        load = -pool.share * seen
        whole = pool.head * inside + pool.rest * np.exp(load) + _NEVER_ZERO
        powers = logarithm(whole, pool.head * deficit - pool.rest * np.expm1(load))
        each = powers.reshape(-1, len(pool.count), *powers.shape[1:])
        without = 1 / whole
        found[prefix] = _Variants(without, pool.head * inside * without, (pool.count * each).sum(axis=1))
    return found


def _on_paths(before: Array, factor: Array) -> Array:
    """Product of what stands on the paths of a head and a factor on the longer paths of a head under it."""
    product = before[:, None] * factor.reshape(len(before), -1, *factor.shape[1:])
    return product.reshape(-1, *product.shape[2:])


class Found(NamedTuple):
    """Tokens found after t."""

    private: dict[int, Array]  # by id of the stream: of one session, if all its pauses were t
    # by head and id of the stream: if others, if the session itself last used it t ago; paths on axis 0
    head: dict[tuple[SharedPrefix, int], tuple[Array, Array]]


def deletions(sharers: Sharers, t: Array) -> Array:
    """Rate at which others seen within t are deleted, times one minus the transform of what each frees."""
    rates = [s.window * s.rate_seen(t) * (1.0 - one_in(s)) * (1.0 - s.outlasting(t)) for s in sharers.streams]
    return narrow(sum(n * sharers.contexts[id(s)].freed for n, s in zip(rates, sharers.streams, strict=True)))


def found_after(sharers: Sharers, t: Array, value: Callable[[Array], Array], beside_it: ArrayLike = _ONE) -> Found:
    """Everybody else's transform at one pause, times `beside_it`, read off at the capacity. The session's own heads
    count once; so do those before a head, which were touched with it."""
    others = -_loss(sharers, [stream for stream in sharers.streams if stream.prefix is None], t) + 0j
    variants = _variants(sharers, t)
    roots = sum(one.together[0] for prefix, one in variants.items() if prefix.under is None)
    others = exponential(narrow(others) + roots) * beside_it
    beside: dict[SharedPrefix | None, Array] = {None: others[None]}
    head = {}
    for prefix, pool in sharers.pools.items():
        here = variants[prefix]
        before = beside[prefix.under]
        beside[prefix], conditioned = (_on_paths(before, factor) for factor in (here.certain, here.without))
        read: dict[int, Array] = {}
        for user, over in zip(pool.users, _over_heads(sharers, pool, t), strict=True):
            for law in over:
                if id(law) not in read:
                    read[id(law)] = value(np.moveaxis(pool.found * law * conditioned, 1, 0))
            head[prefix, id(user)] = (read[id(over[0])], read[id(over[1])])
    private = {}
    for stream in sharers.streams:
        shares = 1.0 if stream.prefix is None else sharers.pools[stream.prefix].weight
        private[id(stream)] = value(sharers.own[id(stream)] * (shares * beside[stream.prefix]).sum(axis=0))
    return Found(private, head)
