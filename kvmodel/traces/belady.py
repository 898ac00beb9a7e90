"""The best any replacement rule can do that admits every block: Belady's MIN over the access stream, in runs.

Always admit; evict the block used farthest in the future (L. A. Belady, IBM Systems Journal 5, 1966;
optimal by Mattson et al. 1970). All blocks of a run have their next use together and in order, so the
victim is always the last held block of the run that is used farthest away, and whole stretches are evicted
at once.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from kvmodel.traces.prefix_tree import RunStream
from kvmodel.traces.reuse_time import next_rows

Stretches = list[tuple[int, int]]
"""Held blocks of a run as ascending, disjoint [from, to) places in it."""


def belady_hits(stream: RunStream, previous: np.ndarray, capacity_blocks: int) -> int:
    """Block hits of MIN with this capacity [blocks]; exact."""
    if capacity_blocks <= 0:
        return 0
    if capacity_blocks >= stream.unique_blocks:
        return stream.block_accesses - stream.unique_blocks
    rows = len(stream.run)
    following = next_rows(previous)
    cache = _BeladyCache(capacity_blocks, never=rows)
    next_use = np.where(following >= 0, following, rows)
    return sum(map(cache.touch, stream.run.tolist(), stream.blocks.tolist(), next_use.tolist()))


class _BeladyCache:
    """Held stretches of every run, and a heap of runs by next use, farthest first.

    Blocks that are not used again leave at once: they would be the first victims anyway.
    """

    def __init__(self, capacity: int, *, never: int):
        self.free = capacity
        self.never = never
        self.held: dict[int, Stretches] = {}
        self.next_use: dict[int, int] = {}
        self.heap: list[tuple[int, int]] = []

    def touch(self, run: int, blocks: int, next_use: int) -> int:
        """Touch all blocks of a run in order; return how many were held."""
        coming = self.held.pop(run, None)
        whole = [(0, blocks)]
        if coming == whole:
            hits, done = blocks, whole
        elif not coming and blocks <= self.free:
            hits, done = 0, whole
            self.free -= blocks
        else:
            hits, done = self._touch_piecewise(coming or [], blocks, next_use)
        if next_use == self.never:
            self.free += sum(end - start for start, end in done)
        else:
            self.held[run] = done
            self.next_use[run] = next_use
            heappush(self.heap, (-next_use, run))
        return hits

    def _touch_piecewise(self, coming: Stretches, blocks: int, next_use: int) -> tuple[int, Stretches]:
        hits = place = 0
        done: Stretches = []
        while place < blocks:
            if coming and coming[0][0] == place:
                stretch = coming.pop(0)
                hits += stretch[1] - stretch[0]
                done.append(stretch)
                place = stretch[1]
            else:
                until = coming[0][0] if coming else blocks
                place = self._insert(done, place, until, coming, next_use)
        return hits, _merged(done)

    def _insert(self, done: Stretches, start: int, until: int, coming: Stretches, next_use: int) -> int:
        """Admit places start..until of the run being touched; return where to go on."""
        wanted = until - start
        if self.free < wanted:
            self._evict_later_than(next_use, wanted - self.free)
        fitting = min(self.free, wanted)
        self.free -= fitting
        if fitting:
            done.append((start, start + fitting))
        if fitting == wanted:
            return until
        start += fitting
        if start == 0 and not done:
            # Nothing of this run was touched yet: the farthest of the others makes room for its first block.
            self._evict_one(coming)
            done.append((0, 1))
            return 1
        # Every further block evicts the one touched just before it, whose next use is now the farthest.
        _drop_last(done)
        done.append((until - 1, until))
        return until

    def _evict_later_than(self, next_use: int, wanted: int) -> None:
        while wanted > 0 and self.heap and -self.heap[0][0] > next_use:
            wanted -= self._evict_from_top(wanted)

    def _evict_one(self, coming: Stretches) -> None:
        while self.heap:
            if self._evict_from_top(1):
                self.free -= 1
                return
        _drop_last(coming)

    def _evict_from_top(self, wanted: int) -> int:
        """Evict up to `wanted` blocks of the run on top of the heap, its last ones first; 0 if it holds
        none.
        """
        negative_use, run = self.heap[0]
        stretches = self.held.get(run)
        if not stretches or self.next_use[run] != -negative_use:
            heappop(self.heap)
            return 0
        start, end = stretches.pop()
        evicted = min(wanted, end - start)
        if evicted < end - start:
            stretches.append((start, end - evicted))
        self.free += evicted
        return evicted


def _drop_last(stretches: Stretches) -> None:
    start, end = stretches.pop()
    if start < end - 1:
        stretches.append((start, end - 1))


def _merged(stretches: Stretches) -> Stretches:
    merged: Stretches = []
    for start, end in stretches:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged
