"""One cache of a given capacity under any eviction rule, one turn at a time.

What is kept: one entry per session (its private context) and one per variant of a shared head. A turn finds what is
left of both, of its context only behind a whole head, recomputes the rest, and puts both back at their full size;
then entries leave until the cache fits. In reverse touch the last entry to leave loses only as much of its tail as
is needed; in forward touch it is lost whole.

`session_cache` gives all capacities at once, but only for LRU: the two agree to rounding. The simulator shares only
the sampling of the laws with the closed forms it checks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.reuse import SessionStream, SharedPrefix, Touch
from kvmodel.simulation.eviction_orders import Lru, Order, Use
from kvmodel.simulation.session_cache import HitRatio, RandomBursts, RateCurve, ratio_of_sums, sampled_events

__all__ = ["Admitted", "Cache", "FoundLog", "found_ratio", "replayed", "simulate_policy"]

Array = NDArray[Any]


class Cache:
    """Entries with their tokens, at most `capacity` of them in all once `evict` has run."""

    def __init__(self, capacity: float, order: Order, touch: Touch = "reverse"):
        self.capacity, self.order, self.whole = capacity, order, touch == "forward"
        self.held: dict[float, float] = {}
        self.used = 0.0

    def put(self, owner: float, tokens: float, use: Use) -> None:
        """The entry, used now, holds so many tokens."""
        self.used += tokens - self.held.get(owner, 0.0)
        self.held[owner] = tokens
        self.order.touched(owner, use)

    def drop(self, owner: float) -> float:
        """Tokens of the entry, which leaves."""
        if owner not in self.held:
            return 0.0
        self.order.forgotten(owner)
        tokens = self.held.pop(owner)
        self.used -= tokens
        return tokens

    def evict(self, now: float, serving: Collection[float]) -> None:
        """Make the rest fit."""
        while self.used > self.capacity and self.held:
            owner, excess = self.order.victim(now, serving), self.used - self.capacity
            if self.whole or self.held[owner] <= excess:
                self.drop(owner)
            else:
                self.held[owner] -= excess
                self.used = self.capacity


@dataclass(frozen=True)
class Admitted:
    """Which contexts may enter; heads always do.

    uses: from the k-th turn of the session on. minimum: once context and head are so long [tokens]. probability: by
    one coin per session.
    """

    uses: float = 1.0
    minimum: float = 0.0
    probability: float = 1.0


@dataclass(frozen=True)
class FoundLog:
    """What every turn after the warm-up found, in time order, [tokens].

    stream          index of the session's stream, shape (turns,)
    private         of the session's own context before the turn; zero at the first turn, (turns,)
    prefix          of its shared head, zero without one, (turns,)
    found_private   usable, (capacities, turns)
    found_prefix    likewise
    stranded        held of the context, but of no use because its head was lost
    """

    stream: Array
    private: Array
    prefix: Array
    found_private: Array
    found_prefix: Array
    stranded: Array


def simulate_policy(
    streams: Sequence[SessionStream],
    capacity: ArrayLike,
    horizon: float,
    seed: int,
    order: Callable[[], Order] = Lru,
    touch: Touch = "reverse",
    warm_up: float = 0.2,
    rates: RateCurve | RandomBursts | None = None,
    **options: Any,
) -> FoundLog:
    """Run the streams for `horizon` seconds through a cache of each capacity and log what every turn after the first
    `warm_up` share finds. The same seed gives the same turns under every rule and capacity.

    order: makes a rule, once per capacity: `Fifo`, `partial(ValueAware, windows)`. options: those of `replayed`. The
    run goes on for `warm_up` of the horizon after the log ends, so that foresight does not end with it.
    """
    events = sampled_events(streams, horizon * (1.0 + warm_up), np.random.default_rng(seed), rates)
    log = (warm_up * horizon, horizon)
    return replayed(streams, events, capacity, order, touch, log, seed=seed, **options)


def replayed(
    streams: Sequence[SessionStream],
    events: Array,
    capacity: ArrayLike,
    order: Callable[[], Order] = Lru,
    touch: Touch = "reverse",
    log: tuple[float, float] = (0.0, np.inf),
    *,
    renewed: bool = True,
    admitted: Admitted | None = None,
    deleted: Sequence[float] | None = None,
    pinned: Sequence[SharedPrefix] = (),
    seed: int = 1,
) -> FoundLog:
    """Push the turns (`session_cache.sampled_events`) through a cache of each capacity.

    log      the span that is logged [s].
    renewed  the streams' retention runs from the last use, or else from the time the entry came in: it then stays
             with what later turns append, and starts anew when a turn finds nothing of use.
    deleted  share of the sessions, per stream, whose context is dropped at the end of their last turn.
    pinned   heads of which every variant is always there, as far as they fit; the others share what they leave.
    seed     of the coins of admission and deletion.
    """
    turns = _turns(streams, events, admitted or Admitted(), deleted, {id(head) for head in pinned}, seed)
    fixed = sum(float(head.tokens) * float(np.sum(head.count)) for head in pinned)
    found = []
    for room in np.atleast_1d(np.asarray(capacity, float)):
        cache = Cache(max(room - fixed, 0.0), order(), touch)
        rows = _found(streams, turns, cache, touch, renewed)
        rows[1, turns.pinned] = turns.prefix[turns.pinned] * min(room / fixed if fixed else 1.0, 1.0)
        found.append(rows)
    shown = (events[0] >= log[0]) & (events[0] < log[1])
    parts = np.moveaxis(np.array(found), 1, 0)[:, :, shown]
    return FoundLog(turns.stream[shown], turns.private[shown], turns.prefix[shown], *parts)


@dataclass(frozen=True)
class _Turns:
    """The turns with all that does not depend on the cache, one array per fact.

    key, head: owners of the two entries, the head's negative, zero without one. leaves: deleted after this turn.
    """

    time: Array
    stream: Array
    key: Array
    head: Array
    size: Array
    private: Array
    prefix: Array
    pinned: Array
    admitted: Array
    leaves: Array
    next_turn: Array
    next_head: Array


def _turns(
    streams: Sequence[SessionStream],
    events: Array,
    rule: Admitted,
    deleted: Sequence[float] | None,
    pinned: set[int],
    seed: int,
) -> _Turns:
    time, stream, key, size, head = events
    stream, key = stream.astype(int), 1.0 + key
    length = np.array([0.0 if s.prefix is None else float(s.prefix.tokens) for s in streams])[stream]
    fixed = np.array([id(s.prefix) in pinned for s in streams])[stream]
    owner = np.where((length > 0.0) & ~fixed, -1.0 - head, 0.0)
    by_key, same = _neighbours(key)
    private, next_turn, nth = np.zeros_like(size), np.full_like(time, np.inf), np.ones_like(time)
    earlier, later = by_key[:-1][same], by_key[1:][same]
    private[later], next_turn[earlier] = size[earlier], time[later]
    starts = np.flatnonzero(np.concatenate([[True], ~same]))
    nth[by_key] = 1.0 + np.arange(len(key)) - np.repeat(starts, np.diff(np.append(starts, len(key))))
    sessions = np.unique(key, return_inverse=True)[1]
    admission, deletion = np.random.default_rng([seed, 1]).random((2, len(key)))[:, sessions]
    gone = np.zeros(len(streams)) if deleted is None else np.asarray(deleted, float)
    return _Turns(
        time, stream, key, owner, size, private, length, fixed,
        (size > 0.0) & (nth >= rule.uses) & (size + length >= rule.minimum) & (admission < rule.probability),
        np.isinf(next_turn) & (deletion < gone[stream]),
        next_turn,
        _next_use(owner, time),
    )  # fmt: skip


def _neighbours(owner: Array) -> tuple[Array, Array]:
    """Turns sorted by owner, in time order within each, and which of them have the same owner as the one before."""
    order = np.argsort(owner, kind="stable")
    return order, owner[order][1:] == owner[order][:-1]


def _next_use(owner: Array, time: Array) -> Array:
    order, same = _neighbours(owner)
    following = np.full_like(time, np.inf)
    following[order[:-1][same]] = time[order[1:][same]]
    return following


def _found(streams: Sequence[SessionStream], turns: _Turns, cache: Cache, touch: Touch, renewed: bool) -> Array:
    """Tokens found of the context and of the head, and stranded, turn by turn, shape (3, turns)."""
    retention = [float(s.retention) for s in streams]
    deadline: dict[float, float] = {}
    expiry: list[tuple[float, float]] = []
    held, rows = cache.held, []
    columns = (
        turns.time, turns.stream, turns.key, turns.head, turns.size, turns.prefix, turns.admitted, turns.leaves,
        turns.next_turn, turns.next_head,
    )  # fmt: skip
    for now, of, key, head, size, length, admitted, leaves, next_turn, next_head in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        while expiry and expiry[0][0] < now:
            end, owner = heapq.heappop(expiry)
            if deadline.get(owner) == end:
                cache.drop(owner)
        context, shared = held.get(key, 0.0), held.get(head, 0.0)
        usable = not head or shared >= length
        rows.append((context, shared, 0.0) if usable else (0.0, shared, context))
        if not usable or leaves:
            cache.drop(key)
        touched = [(key, size, Use(of, now, next_turn))] if admitted and not leaves else []
        if head:
            touched.append((head, length, Use(of + len(streams), now, next_head)))
        if touch == "forward":
            touched.reverse()
        for owner, amount, use in touched:
            if retention[of] < np.inf and (renewed or owner not in held):
                deadline[owner] = now + retention[of]
                heapq.heappush(expiry, (deadline[owner], owner))
            cache.put(owner, amount, use)
        cache.evict(now, [owner for owner, *_ in touched])
    return np.array(rows).T


def found_ratio(log: FoundLog, stream: int | None = None, batches: int = 20) -> HitRatio:
    """Share of the reusable tokens found at each capacity, of one stream or of all, with its standard error."""
    mine = slice(None) if stream is None else log.stream == stream
    return HitRatio(
        *ratio_of_sums(log.found_private[:, mine], log.private[mine], batches),
        *ratio_of_sums(log.found_prefix[:, mine], log.prefix[mine], batches),
    )
