"""Hits of an LRU cache at every capacity, from the stack distances of a trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvmodel.traces.columns import Trace
from kvmodel.traces.prefix_tree import RunStream
from kvmodel.traces.stack_distance import UNSEEN, StackDistances


@dataclass(frozen=True)
class HitCurve:
    """A step function of capacity: `hits[k]` from capacity `capacity_blocks[k]` on, 0 below the first;
    `total` accesses.
    """

    capacity_blocks: np.ndarray
    hits: np.ndarray
    total: int

    def hits_at(self, capacity_blocks: np.ndarray) -> np.ndarray:
        """Hits at these capacities [blocks]."""
        step = np.searchsorted(self.capacity_blocks, capacity_blocks, side="right")
        return np.concatenate([[0], self.hits])[step]

    def ratio_at(self, capacity_blocks: np.ndarray) -> np.ndarray:
        """Hits / total; 0 for a trace without accesses."""
        return self.hits_at(capacity_blocks) / max(self.total, 1)

    @property
    def ceiling(self) -> float:
        """Hit ratio of an infinite cache."""
        return float(self.ratio_at(np.array(UNSEEN - 1)))


def hit_curve(needed_blocks: np.ndarray, weight: np.ndarray, total: int) -> HitCurve:
    """The curve of accesses that hit from capacity `needed_blocks` on (UNSEEN: never) and count `weight`
    each.
    """
    reached = needed_blocks < UNSEEN
    capacity, step = np.unique(needed_blocks[reached], return_inverse=True)
    gained = np.zeros(len(capacity), dtype=np.int64)
    np.add.at(gained, step, weight[reached])
    return HitCurve(capacity, np.cumsum(gained), total)


def lru_curve(stream: RunStream, distances: StackDistances) -> HitCurve:
    """Block hits of a flat LRU over the access stream, every miss inserted; exact at every capacity."""
    return hit_curve(distances.distance, stream.blocks, stream.block_accesses)


def input_tokens_of_rows(stream: RunStream, trace: Trace, *, full_blocks: bool = False) -> np.ndarray:
    """Input tokens in each row's blocks: all of a block but, in the last one, only what the request's length
    leaves.

    With `full_blocks` a partial last block counts nothing.
    """
    size = trace.block_tokens or 1
    length = trace.input_tokens[stream.request]
    if full_blocks:
        length = length // size * size
    return np.minimum((stream.offset + stream.blocks) * size, length) - np.minimum(stream.offset * size, length)


def prefix_needed_blocks(stream: RunStream, depth: np.ndarray) -> np.ndarray:
    """Capacity from which on a row and all rows of its request before it are resident (first-to-last
    touch).
    """
    return _running_maximum(np.where(depth < UNSEEN, depth + stream.blocks, UNSEEN), stream)


def prefix_hits_last_to_first(
    stream: RunStream, trace: Trace, depth: np.ndarray, capacity_blocks: int
) -> tuple[int, int]:
    """(blocks, tokens) of leading resident blocks, summed over requests, when tails are evicted before heads.

    Within a run the first `capacity - depth` blocks are resident; the prefix goes on only through whole runs.
    """
    held = np.clip(capacity_blocks - depth, 0, stream.blocks)
    held = np.where(depth < UNSEEN, held, 0)
    broken = (held < stream.blocks).astype(np.int64)
    reached = np.concatenate([[0], np.cumsum(broken)[:-1]]) if len(broken) else broken
    before_request = reached[np.minimum(stream.request_start[stream.request], max(len(broken) - 1, 0))]
    leading = np.where(reached == before_request, held, 0)
    size = trace.block_tokens or 1
    length = trace.input_tokens[stream.request]
    tokens = np.minimum((stream.offset + leading) * size, length) - np.minimum(stream.offset * size, length)
    return int(leading.sum()), int(tokens.sum())


def resident_blocks(stream: RunStream, depth: np.ndarray, capacity_blocks: int) -> int:
    """Blocks that are resident anywhere in their request when it arrives, summed over requests."""
    held = np.where(depth < UNSEEN, np.clip(capacity_blocks - depth, 0, stream.blocks), 0)
    return int(held.sum())


def _running_maximum(value: np.ndarray, stream: RunStream) -> np.ndarray:
    """Largest value so far within each request. Ranks stand for values, so that no sum can overflow."""
    if len(value) == 0:
        return value
    values, rank = np.unique(value, return_inverse=True)
    lifted = rank + stream.request * len(values)
    return values[np.maximum.accumulate(lifted) - stream.request * len(values)]
