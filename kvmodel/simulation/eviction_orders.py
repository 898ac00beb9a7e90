"""Which entry leaves a full cache first: one small class per rule, one line in `ORDERS`.

An entry is the private context of a session or a shared head. A rule is told of every use and names the victim;
how many tokens leave is the cache's business. Every step costs a few microseconds at any number of entries.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

__all__ = ["ORDERS", "Clairvoyant", "Fifo", "Lru", "Order", "RandomVictim", "Use", "ValueAware"]


class Use(NamedTuple):
    """What a rule may know of a use.

    group  which kind of entry: the stream's index for a context, `streams` + index for a head
    time   now                                                                                      [s]
    next   time of the next use, infinite if there is none; only clairvoyance may look              [s]
    """

    group: int
    time: float
    next: float


class Order(Protocol):
    """A rule: owners of the entries in the cache, and which of them goes first."""

    def touched(self, owner: float, use: Use) -> None:
        """The entry was used, or enters."""

    def forgotten(self, owner: float) -> None:
        """The entry has left."""

    def victim(self, now: float, serving: Collection[float]) -> float:
        """Which entry leaves next, while the turn at hand needs those of `serving`. There is at least one entry."""


class Lru:
    """The least recently used."""

    def __init__(self) -> None:
        self.queue: OrderedDict[float, None] = OrderedDict()

    def touched(self, owner: float, use: Use) -> None:
        self.queue[owner] = None
        self.queue.move_to_end(owner)

    def forgotten(self, owner: float) -> None:
        del self.queue[owner]

    def victim(self, now: float, serving: Collection[float]) -> float:
        return next(iter(self.queue))


class Fifo(Lru):
    """The first that came; hits do not renew. Those of the turn at hand last of all, as their blocks are in use."""

    def touched(self, owner: float, use: Use) -> None:
        self.queue.setdefault(owner)

    def victim(self, now: float, serving: Collection[float]) -> float:
        return next((owner for owner in self.queue if owner not in serving), next(iter(self.queue)))


class RandomVictim:
    """Any entry, each as likely as the others whatever its size; those of the turn at hand last of all."""

    def __init__(self, seed: int = 1) -> None:
        self.draw = random.Random(seed).randrange
        self.owners: list[float] = []
        self.place: dict[float, int] = {}

    def touched(self, owner: float, use: Use) -> None:
        if owner not in self.place:
            self.place[owner] = len(self.owners)
            self.owners.append(owner)

    def forgotten(self, owner: float) -> None:
        place, last = self.place.pop(owner), self.owners.pop()
        if last != owner:
            self.owners[place], self.place[last] = last, place

    def victim(self, now: float, serving: Collection[float]) -> float:
        if len(self.owners) <= len(serving):
            return next((owner for owner in self.owners if owner not in serving), self.owners[0])
        while True:
            owner = self.owners[self.draw(len(self.owners))]
            if owner not in serving:
                return owner


class ValueAware:
    """The furthest past its window: the largest time since the last use over the window of its group.

    windows [s]: one per stream for the contexts, then one per stream for their heads. A window of zero keeps
    nothing that anything else has room for; equal windows are LRU.
    """

    def __init__(self, windows: Sequence[float]) -> None:
        self.windows = list(windows)
        self.queues: list[OrderedDict[float, float]] = [OrderedDict() for _ in self.windows]
        self.group: dict[float, int] = {}

    def touched(self, owner: float, use: Use) -> None:
        if owner in self.group:
            self.forgotten(owner)
        self.group[owner] = use.group
        self.queues[use.group][owner] = use.time

    def forgotten(self, owner: float) -> None:
        del self.queues[self.group.pop(owner)][owner]

    def victim(self, now: float, serving: Collection[float]) -> float:
        oldest = [(*next(iter(q.items())), w) for q, w in zip(self.queues, self.windows, strict=True) if q]
        return max(oldest, key=lambda e: ((now - e[1]) / e[2] if e[2] > 0.0 else float("inf"), now - e[1]))[0]


class Clairvoyant:
    """The one whose next use is furthest away, finished ones first of all, also one that has just been used (bypass).

    Belady's rule for tokens: with tails leaving first nothing finds more, because the next use of a head is never
    later than that of a context behind it; contexts go first where they tie.
    """

    def __init__(self) -> None:
        self.heap: list[tuple[float, bool, float]] = []
        self.current: dict[float, tuple[float, bool, float]] = {}

    def touched(self, owner: float, use: Use) -> None:
        self.current[owner] = entry = (-use.next, owner < 0.0, owner)
        heapq.heappush(self.heap, entry)

    def forgotten(self, owner: float) -> None:
        del self.current[owner]

    def victim(self, now: float, serving: Collection[float]) -> float:
        while self.current.get(self.heap[0][2]) is not self.heap[0]:
            heapq.heappop(self.heap)
        return self.heap[0][2]


ORDERS = {
    "lru": Lru,
    "fifo": Fifo,
    "random": RandomVictim,
    "value_aware": ValueAware,
    "clairvoyant": Clairvoyant,
}
