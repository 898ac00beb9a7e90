"""LRU stack distances of runs: the capacity from which on each access hits, for every access at once.

Mattson, Gecsei, Slutz and Traiger, "Evaluation techniques for storage hierarchies" (1970): under LRU an
access hits a cache of C blocks exactly when fewer than C distinct blocks came since its last access. With
runs the blocks of one run share that number under first-to-last touch order: the others' blocks since then
plus the whole run. The count of distinct blocks between two accesses is the sum, over the rows between, of
runs that were not touched earlier in between; that is a dominance sum, and all of them are found together
by one pass per bit of the row number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvmodel.traces.prefix_tree import NEVER, RunStream, previous_rows

UNSEEN = np.iinfo(np.int64).max
"""Stack distance of a first access: no capacity makes it a hit."""


@dataclass(frozen=True)
class StackDistances:
    """Per row of the stream, in the stream's row order.

    `distance` [blocks]: the smallest capacity at which the access hits, when blocks are looked up one by
    one as they are touched (equal for all blocks of the run under first-to-last touch). `depth` [blocks]:
    distinct blocks of other runs used more recently than this run at the moment its request arrives.
    `previous`: row of the last access to the same run, NEVER if none.
    """

    distance: np.ndarray
    depth: np.ndarray
    previous: np.ndarray


def stack_distances(stream: RunStream, *, last_to_first: bool = False) -> StackDistances:
    """Stack distances of every row, for either order in which a request touches its blocks."""
    rows = len(stream.run)
    order = stream.reversed_requests() if last_to_first else np.arange(rows)
    run, request, blocks = stream.run[order], stream.request[order], stream.blocks[order]
    previous, previous_request = previous_rows(run, request)

    # Every request first looks up all its runs (weight 0), then touches them: 2 x rows events in sequence.
    start, end = stream.request_start[request], stream.request_start[request + 1]
    lookup_at = start + np.arange(rows)
    touch_at = end + np.arange(rows)
    key, weight = np.empty(2 * rows, dtype=np.int64), np.zeros(2 * rows, dtype=np.int64)
    key[lookup_at], key[touch_at], weight[touch_at] = previous_request, previous, blocks
    earlier = earlier_sums(key, weight)
    touched_until = np.cumsum(blocks)

    distance, depth, previous_row = (np.empty(rows, dtype=np.int64) for _ in range(3))
    distance[order] = np.where(previous >= 0, earlier[touch_at] - touched_until[previous] + blocks, UNSEEN)
    depth[order] = np.where(previous_request >= 0, earlier[lookup_at] - touched_until[previous_request], UNSEEN)
    previous_row[order] = np.where(previous >= 0, order[previous], NEVER)
    return StackDistances(distance, depth, previous_row)


def earlier_sums(key: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """For each position i the sum of `weight[j]` over j < i with `key[j] <= key[i]`. O(n log n), no loop over
    positions.

    Positions are kept sorted by key inside groups of equal leading bits of the position; splitting every
    group by its next bit adds, to each position of the upper half, what the lower half holds up to its
    key.
    """
    size = len(key)
    total = np.zeros(size, dtype=np.int64)
    position = np.argsort(key, kind="stable")
    place = np.arange(size)
    for bit in reversed(range(max(size - 1, 0).bit_length())):
        group = (position >> (bit + 1)) << (bit + 1)
        upper = (position >> bit) & 1 == 1
        lower_weight = np.concatenate([[0], np.cumsum(np.where(upper, 0, weight[position]))])
        total[position[upper]] += (lower_weight[:-1] - lower_weight[group])[upper]
        uppers = np.concatenate([[0], np.cumsum(upper)])
        upper_rank = uppers[:-1] - uppers[group]
        lower_rank = place - group - upper_rank
        lower_size = np.minimum(1 << bit, size - group)
        split = np.empty_like(position)
        split[group + np.where(upper, lower_size + upper_rank, lower_rank)] = position
        position = split
    return total
