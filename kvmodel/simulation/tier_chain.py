"""What each tier of a chain still holds of a turn's context and head, one turn at a time.

What is kept: one entry per session (its private context) and one per variant of a shared head. A turn finds what is
left of them, each only behind whole heads, recomputes the rest, and puts all back at their full size; then entries
leave until every tier fits. In reverse touch the last entry to leave loses only as much of its tail as
is needed; in forward touch it is lost whole.

    inclusive   every tier holds a copy of all that is used, each by its own rule and capacity
    exclusive   what the first tier has no room for moves down; what is used moves up, but for heads in a tier that
                serves all instances, which the others may need

A tier has one copy for all instances or one for each; a session stays on its instance.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kvmodel.formulas.reuse import SessionStream, SharedPrefix, Touch
from kvmodel.simulation.eviction_orders import Lru, Order, Use

__all__ = ["Admitted", "Cache", "ChainTier", "Found", "Turns", "found_in_chain", "turns_of"]

Array = NDArray[Any]
Chain = Literal["inclusive", "exclusive"]
WHOLE = 1.0 - 1e-9  # a head in several parts is whole but for rounding


class Cache:
    """Entries with their tokens, at most `capacity` of them in all once `evict` has run.

    renewed: an entry's deadline is that of its last use, else that of the use that brought it in.
    """

    def __init__(self, capacity: float, order: Order, touch: Touch = "reverse", renewed: bool = True):
        self.capacity, self.order, self.whole, self.renewed = capacity, order, touch == "forward", renewed
        self.held: dict[float, float] = {}
        self.used = 0.0
        self.deadline: dict[float, float] = {}
        self.expiry: list[tuple[float, float]] = []

    def put(self, owner: float, tokens: float, use: Use) -> None:
        """The entry, used now, holds so many tokens."""
        if use.deadline < np.inf and (self.renewed or owner not in self.held):
            self.deadline[owner] = use.deadline
            heapq.heappush(self.expiry, (use.deadline, owner))
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

    def expire(self, now: float) -> None:
        """Drop what is past its deadline."""
        while self.expiry and self.expiry[0][0] < now:
            end, owner = heapq.heappop(self.expiry)
            if self.deadline.get(owner) == end:
                self.drop(owner)

    def evict(self, now: float, serving: Collection[float] = ()) -> list[tuple[float, float]]:
        """Make the rest fit; what left, as (owner, tokens) in this order."""
        left = []
        while self.used > self.capacity and self.held:
            owner, excess = self.order.victim(now, serving), self.used - self.capacity
            if self.whole or self.held[owner] <= excess:
                left.append((owner, self.drop(owner)))
            else:
                self.held[owner] -= excess
                self.used = self.capacity
                left.append((owner, excess))
        return left


# ------------------------------------------------------------------------------------------------------------- turns


@dataclass(frozen=True)
class Admitted:
    """What of a context may enter a tier; heads always may.

    uses: from the k-th turn of the session on; of blocks, what has been used so often: all that was there k - 1 turns
    ago. minimum: once context and heads are so long [tokens]. probability: by one coin per session.
    """

    uses: int = 1
    minimum: float = 0.0
    probability: float = 1.0
    blocks: bool = False


@dataclass(frozen=True)
class Turns:
    """The turns in time order with all that does not depend on any cache, one array per fact.

    time [s]; stream: its index; key: owner of its context's entry
    owners   of its heads' entries, first to last: negative, zero where there is none, (levels, turns)
    heads    their lengths, (levels, turns)                        [tokens]
    size     context after the turn                                [tokens]
    private  context before it, zero at the first                  [tokens]
    pinned   whether a head is never evicted, (levels, turns)
    nth      turn of its session, from one
    leaves   whether the context is dropped after it
    next_turn, next_heads: time of the next use of each entry, or infinite [s]
    coin     in [0, 1), one per session
    place    in [0, 1), one per session: where it is served
    """

    time: Array
    stream: Array
    key: Array
    owners: Array
    heads: Array
    size: Array
    private: Array
    pinned: Array
    nth: Array
    leaves: Array
    next_turn: Array
    next_heads: Array
    coin: Array
    place: Array

    @property
    def prefix(self) -> Array:
        """All heads of each turn [tokens]."""
        return self.heads.sum(axis=0)

    def admitted(self, rule: Admitted) -> Array:
        """Tokens of the context that may be kept after each turn."""
        allowed = (self.nth >= rule.uses) & (self.size + self.prefix >= rule.minimum) & (self.coin < rule.probability)
        return np.where(allowed, self._used(rule.uses) if rule.blocks else self.size, 0.0)

    def instance(self, count: int) -> Array:
        """Where each turn is served, of so many instances: that of its session, each as likely."""
        return (self.place * count).astype(int)

    def _used(self, uses: int) -> Array:
        """Context after the turn so many less one before this one; zero before there was one."""
        order, same = _neighbours(self.key)
        size = self.size
        for _ in range(uses - 1):
            size = _carried(size, order, same, 0.0)
        return size


def turns_of(
    streams: Sequence[SessionStream],
    events: Array,
    pinned: Sequence[SharedPrefix] = (),
    seed: int = 1,
) -> Turns:
    """The events of `session_cache.sampled_events` with their neighbours, and the coins of admission, routing and
    deletion (of the streams' share of sessions that end)."""
    time, stream, key, size, *chain = events
    stream, key = stream.astype(int), 1.0 + key
    lengths, fixed = (np.zeros((len(chain), len(streams))) for _ in range(2))
    for i, one in enumerate(streams):
        lengths[: len(one.heads), i] = [float(head.tokens) for head in one.heads]
        fixed[: len(one.heads), i] = [head in pinned for head in one.heads]
    heads, held = lengths[:, stream], fixed[:, stream] > 0.0
    owners = np.where((heads > 0.0) & ~held, -1.0 - np.array(chain), 0.0)
    order, same = _neighbours(key)
    starts = np.flatnonzero(np.concatenate([[True], ~same])) if len(key) else np.zeros(0, int)
    nth = np.empty(len(key), int)
    nth[order] = 1 + np.arange(len(key)) - np.repeat(starts, np.diff(np.append(starts, len(key))))
    coin, deletion, place = np.random.default_rng([seed, 1]).random((3, len(key)))[
        :, np.unique(key, return_inverse=True)[1]
    ]
    next_turn = _following(key, time)
    gone = np.array([float(s.deleted) for s in streams])
    return Turns(
        time=time,
        stream=stream,
        key=key,
        owners=owners,
        heads=heads,
        size=size,
        private=_carried(size, order, same, 0.0),
        pinned=held,
        nth=nth,
        leaves=np.isinf(next_turn) & (deletion < gone[stream]),
        next_turn=next_turn,
        next_heads=np.array([_following(owner, time) for owner in owners]),
        coin=coin,
        place=place,
    )


def _neighbours(owner: Array) -> tuple[Array, Array]:
    """Turns sorted by owner, in time order within each, and which of them have the same owner as the one before."""
    order = np.argsort(owner, kind="stable")
    return order, owner[order][1:] == owner[order][:-1]


def _carried(values: Array, order: Array, same: Array, start: float) -> Array:
    """Of the owner's turn before."""
    before = np.full_like(values, start)
    before[order[1:][same]] = values[order[:-1][same]]
    return before


def _following(owner: Array, time: Array) -> Array:
    """Time of the owner's next turn."""
    order, same = _neighbours(owner)
    after = np.full_like(time, np.inf)
    after[order[:-1][same]] = time[order[1:][same]]
    return after


# ------------------------------------------------------------------------------------------------------------- chain


@dataclass(frozen=True)
class ChainTier:
    """A tier: tokens one copy can hold, whether one copy serves all instances, what it admits of a context, and what
    makes the rule of eviction of a copy."""

    capacity: float
    shared: bool = False
    admitted: Admitted = Admitted()
    order: Callable[[], Order] = Lru


@dataclass(frozen=True)
class Found:
    """Tokens found by every turn in each tier, parts that add up, fast to slow, shape (tiers, turns).

    private   of the context behind whole heads
    heads     of each head behind whole ones, first to last, shape (levels, tiers, turns)
    stranded  of context and heads, all tiers, of no use because a head before them was lost, shape (turns,)
    """

    private: Array
    heads: Array
    stranded: Array

    @property
    def prefix(self) -> Array:
        """Of all heads, (tiers, turns)."""
        return self.heads.sum(axis=0)


class _Inclusive:
    """Tiers of one instance, each with a copy of all that is used and it admits. for_all: which serve all instances."""

    def __init__(self, tiers: Sequence[Cache], for_all: Sequence[bool]):
        self.tiers, self.for_all = tiers, for_all

    def parts(self, owner: float, whole: float = np.inf) -> list[float]:
        """What each tier adds to those above it, of an entry of so many tokens."""
        best, parts = 0.0, []
        for tier in self.tiers:
            held = tier.held.get(owner, 0.0)
            parts.append(max(held - best, 0.0))
            best = max(held, best)
        return parts

    def put(self, touched: Sequence[tuple[float, Sequence[float], Use]], now: float) -> None:
        serving = [owner for owner, *_ in touched]
        for k, tier in enumerate(self.tiers):
            for owner, amounts, use in touched:
                if amounts[k] > 0.0:
                    tier.put(owner, amounts[k], use)
            tier.evict(now, serving)


class _Exclusive(_Inclusive):
    """Tiers of one instance that hold what the one above had no room for."""

    def __init__(self, tiers: Sequence[Cache], for_all: Sequence[bool]):
        super().__init__(tiers, for_all)
        self.last: dict[float, tuple[Sequence[float], Use]] = {}

    def parts(self, owner: float, whole: float = np.inf) -> list[float]:
        parts = []
        for tier in self.tiers:  # a tier for all may hold what another instance dropped and this one still has
            parts.append(min(tier.held.get(owner, 0.0), whole))
            whole -= parts[-1]
        return parts

    def put(self, touched: Sequence[tuple[float, Sequence[float], Use]], now: float) -> None:
        first, *below = self.tiers
        for owner, amounts, use in touched:
            for tier, for_all in zip(below, self.for_all[1:], strict=True):
                left = tier.drop(owner)
                if left and owner < 0.0 and for_all:  # the other instances may need this head
                    tier.put(owner, left, use)
            self.last[owner] = amounts, use
            if amounts[0] > 0.0:
                first.put(owner, amounts[0], use)
        falling = first.evict(now, [owner for owner, *_ in touched])
        for k, tier in enumerate(below, 1):
            for owner, tokens in falling:
                amounts, use = self.last[owner]
                # two instances may drop the same head: it is kept once
                room = amounts[k] - sum(upper.held.get(owner, 0.0) for upper in self.tiers[:k])
                held = min(tier.held.get(owner, 0.0) + tokens, room)
                if held > 0.0:
                    tier.put(owner, held, use)
            falling = tier.evict(now)


def found_in_chain(
    streams: Sequence[SessionStream],
    turns: Turns,
    tiers: Sequence[ChainTier],
    touch: Touch = "reverse",
    chain: Chain = "inclusive",
    instances: int = 1,
    pinned: Sequence[SharedPrefix] = (),
    renewed: bool = True,
) -> Found:
    """What every turn finds in each tier, fast to slow. The streams' retention drops entries in every tier.

    pinned: heads of which every variant is always there, as far as they fit: in every tier of an inclusive chain, in an
    exclusive one in the first with room. renewed: see `Cache`.
    """
    fixed = sum(float(head.tokens) * float(head.paths(0)[1].sum()) for head in pinned)
    taken = _pinned_tokens([tier.capacity for tier in tiers], fixed, chain)
    tiers = [replace(tier, capacity=tier.capacity - used) for tier, used in zip(tiers, taken, strict=True)]
    for_all = [tier.shared and instances > 1 for tier in tiers]
    one = {k: Cache(t.capacity, t.order(), touch, renewed) for k, t in enumerate(tiers) if for_all[k]}
    kind = _Exclusive if chain == "exclusive" else _Inclusive
    served = [
        kind([one.get(k) or Cache(t.capacity, t.order(), touch, renewed) for k, t in enumerate(tiers)], for_all)
        for _ in range(instances)
    ]
    for other in served[1:]:
        if isinstance(other, _Exclusive):
            other.last = served[0].last
    found = _run(streams, turns, tiers, served, touch)
    if fixed:
        parts = taken if chain == "exclusive" else np.diff(np.maximum.accumulate(taken), prepend=0.0)
        shares = np.asarray(parts) / fixed
        found.heads[:] += np.where(turns.pinned[:, None], shares[:, None] * turns.heads[:, None], 0.0)
    return found


def _pinned_tokens(capacities: Sequence[float], fixed: float, chain: Chain) -> Array:
    """Tokens of each tier that pinned heads take."""
    above = np.cumsum(capacities) - capacities if chain == "exclusive" else np.zeros(len(capacities))
    return np.minimum(capacities, np.maximum(fixed - above, 0.0))


def _run(
    streams: Sequence[SessionStream],
    turns: Turns,
    tiers: Sequence[ChainTier],
    served: Sequence[_Inclusive],
    touch: Touch,
) -> Found:
    retention = [float(s.retention) for s in streams]
    amounts = np.array([turns.admitted(tier.admitted) for tier in tiers]).reshape(len(tiers), len(turns.time)).T
    columns = (turns.time, turns.stream, turns.key, turns.leaves, turns.next_turn, turns.instance(len(served)),
               turns.owners.T, turns.heads.T, turns.next_heads.T, amounts)  # fmt: skip
    nothing, rows = [0.0] * len(tiers), []
    for now, of, key, leaves, next_turn, place, owners, lengths, next_heads, kept in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        chain, end = served[place], now + retention[of]
        for tier in chain.tiers:
            tier.expire(now)
        whole, stranded, gone, row, touched = True, 0.0, [key] if leaves else [], [], []
        for level, (owner, length, following) in enumerate(zip(owners, lengths, next_heads, strict=True), 1):
            shared = chain.parts(owner, length) if owner else nothing
            if owner:
                touched.append((owner, [length] * len(tiers), Use(of + level * len(streams), now, following, end)))
                if not whole:
                    gone.append(owner)
                    stranded, shared = stranded + sum(shared), nothing
                whole = whole and sum(shared) >= length * WHOLE
            row += shared
        own = chain.parts(key)
        if not whole:
            gone.append(key)
            stranded, own = stranded + sum(own), nothing
        rows.append((*own, *row, stranded))
        for owner in gone:
            for tier in chain.tiers:
                tier.drop(owner)
        if not leaves:
            touched.append((key, kept, Use(of, now, next_turn, end)))
        touched = [(owner, most, use._replace(rank=rank)) for rank, (owner, most, use) in enumerate(touched[::-1])]
        chain.put(touched if touch == "reverse" else touched[::-1], now)
    found = np.array(rows).reshape(len(rows), (1 + len(turns.heads)) * len(tiers) + 1).T
    heads = found[len(tiers) : -1].reshape(len(turns.heads), len(tiers), len(rows))
    return Found(found[: len(tiers)], heads, found[-1])
