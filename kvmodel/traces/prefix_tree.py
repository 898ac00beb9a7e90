"""Requests as paths of runs instead of blocks.

A run is a stretch of blocks that every request touches as a whole and in the same order: a maximal
unbranched piece of the prefix tree. It is found without looking at single blocks: cut the number line of
block ids at both ends of every range any request lists; between two neighbouring cuts all blocks are
touched together. Runs that only ever follow each other are then joined. Neither step needs the ids to form
a tree: ids that do not simply give shorter runs, one block at worst. (Method: runs instead of blocks under
stack distances, derived here.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvmodel.traces.columns import Trace
from kvmodel.traces.errors import TraceError

NEVER = -1
_LARGEST_SUM = 2.0**62


@dataclass(frozen=True)
class RunStream:
    """The access stream of a trace, one row per run touched.

    `request`, `run`: which request touches which run; `blocks`: length of the run; `offset`: blocks of the
    request before it; `request_start`: row of each request's first run (one more entry than requests);
    `run_blocks`: length of each run.
    """

    request: np.ndarray
    run: np.ndarray
    blocks: np.ndarray
    offset: np.ndarray
    request_start: np.ndarray
    run_blocks: np.ndarray

    @property
    def block_accesses(self) -> int:
        return int(self.blocks.sum())

    @property
    def unique_blocks(self) -> int:
        return int(self.run_blocks.sum())

    def reversed_requests(self) -> np.ndarray:
        """Rows in the order of a cache that touches each request's blocks last to first."""
        start, end = self.request_start[self.request], self.request_start[self.request + 1]
        return start + end - 1 - np.arange(len(self.run))


def run_stream(trace: Trace) -> RunStream:
    """The trace in runs. Ranges are never expanded to blocks."""
    request = np.repeat(np.arange(trace.requests), np.diff(trace.range_offset))
    start, end = trace.range_start, trace.range_start + trace.range_count
    if trace.range_count.sum(dtype=float) > _LARGEST_SUM:
        raise TraceError(f"{trace.name}: more block accesses than 62 bits can count")
    cuts = np.unique(np.concatenate([start, end]))
    first, last = np.searchsorted(cuts, start), np.searchsorted(cuts, end)
    pieces = last - first
    begin = np.cumsum(pieces) - pieces
    piece = np.repeat(first - begin, pieces) + np.arange(pieces.sum())
    return _joined(np.repeat(request, pieces), piece, np.diff(cuts), trace.requests)


def _joined(request: np.ndarray, piece: np.ndarray, piece_blocks: np.ndarray, requests: int) -> RunStream:
    """Join pieces that always follow each other into one run."""
    rows = len(piece)
    same_request = request[1:] == request[:-1]
    successor, predecessor = np.full(rows, NEVER), np.full(rows, NEVER)
    successor[:-1][same_request] = piece[1:][same_request]
    predecessor[1:][same_request] = piece[:-1][same_request]
    only_successor = _only_value(piece, successor, len(piece_blocks))
    only_predecessor = _only_value(piece, predecessor, len(piece_blocks))
    before = only_predecessor[piece]
    continues = (before >= 0) & (only_successor[before] == piece)
    at = np.flatnonzero(~continues)
    run_names, run = np.unique(piece[at], return_inverse=True)
    blocks = np.add.reduceat(piece_blocks[piece], at) if rows else np.zeros(0, dtype=np.int64)
    run_blocks = np.zeros(len(run_names), dtype=np.int64)
    run_blocks[run] = blocks
    request_start = np.searchsorted(request[at], np.arange(requests + 1))
    before_run = np.cumsum(blocks) - blocks
    before_request = np.append(before_run, blocks.sum())[request_start]
    return RunStream(
        request=request[at],
        run=run,
        blocks=blocks,
        offset=before_run - before_request[request[at]],
        request_start=request_start,
        run_blocks=run_blocks,
    )


def _only_value(key: np.ndarray, value: np.ndarray, keys: int) -> np.ndarray:
    """For each key the value it always comes with, NEVER when there are several (or none)."""
    lowest, highest = np.full(keys, np.iinfo(np.int64).max), np.full(keys, np.iinfo(np.int64).min)
    np.minimum.at(lowest, key, value)
    np.maximum.at(highest, key, value)
    return np.where(lowest == highest, lowest, NEVER)


def previous_rows(run: np.ndarray, request: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row: the row that touched the same run before it, and the last one that did so in an earlier
    request.

    Rows are in the order of touching; NEVER where there is none.
    """
    rows = len(run)
    order = np.argsort(run, kind="stable")
    same_run = run[order][1:] == run[order][:-1]
    before = np.full(rows, NEVER)
    before[1:][same_run] = order[:-1][same_run]
    earlier = before.copy()
    same_request = np.zeros(rows, dtype=bool)
    same_request[1:] = same_run & (request[order][1:] == request[order][:-1])
    group_start = np.maximum.accumulate(np.where(same_request, 0, np.arange(rows)))
    earlier = before[group_start]
    previous, previous_request = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    previous[order], previous_request[order] = before, earlier
    return previous, previous_request
