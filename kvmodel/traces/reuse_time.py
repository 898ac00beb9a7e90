"""How long blocks wait for their next use: reuse gaps, keep-alive curves, working sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvmodel.traces.columns import MICROSECONDS
from kvmodel.traces.prefix_tree import NEVER, RunStream


@dataclass(frozen=True)
class ReuseGaps:
    """Times [microseconds] since the previous access, one per row that has one, and the blocks each stands
    for.
    """

    gap_us: np.ndarray
    blocks: np.ndarray
    is_first_reuse: np.ndarray


def reuse_gaps(stream: RunStream, previous: np.ndarray, time_us: np.ndarray) -> ReuseGaps:
    """Gaps between uses of the same block."""
    again = np.flatnonzero(previous >= 0)
    before = previous[again]
    gap = time_us[stream.request[again]] - time_us[stream.request[before]]
    return ReuseGaps(gap, stream.blocks[again], previous[before] == NEVER)


def ttl_hits(gaps: ReuseGaps, ttl_s: Sequence[float]) -> np.ndarray:
    """Block hits of a cache without a size limit that forgets a block `ttl_s` [s] after its last use."""
    order = np.argsort(gaps.gap_us, kind="stable")
    hits = np.concatenate([[0], np.cumsum(gaps.blocks[order])])
    limit = np.round(np.asarray(ttl_s, dtype=float) * MICROSECONDS)
    return hits[np.searchsorted(gaps.gap_us[order], limit, side="right")]


def next_rows(previous: np.ndarray) -> np.ndarray:
    """For each row the row of the next access to the same run; NEVER if none."""
    following = np.full(len(previous), NEVER)
    again = np.flatnonzero(previous >= 0)
    following[previous[again]] = again
    return following


@dataclass(frozen=True)
class WorkingSet:
    """W(T): distinct blocks used in the last T seconds, seen in three ways [blocks].

    `mean`: average over time, from T after the first request to the last request; None when the trace is
    not longer than T. `largest`: largest value right after a request. `seen_by_accesses` (Palm): average
    over block accesses of W just before their request arrives.
    """

    window_s: float
    mean: float | None
    largest: int
    seen_by_accesses: float


def working_set(stream: RunStream, previous: np.ndarray, time_us: np.ndarray, window_s: float) -> WorkingSet:
    """W(T) over a trace in order of time. Each access keeps its blocks in W until T later or until their
    next use.
    """
    window = round(window_s * MICROSECONDS)
    clock = time_us - time_us[0]
    requests, end = len(clock), int(clock[-1])
    following = next_rows(previous)
    begins = clock[stream.request]
    used_again = following >= 0
    next_request = np.where(used_again, stream.request[following], requests)
    next_use = np.where(used_again, begins[following], np.iinfo(np.int64).max)
    leaves = np.minimum(begins + window, next_use)

    mean = None
    if window < end:
        held = np.clip(leaves, window, end) - np.clip(begins, window, end)
        mean = float(np.sum(held.astype(float) * stream.blocks) / (end - window))

    expires = np.searchsorted(clock, begins + window, side="left")
    after = _held_at_requests(stream.request, np.minimum(next_request, expires), stream.blocks, requests)
    before = _held_at_requests(
        stream.request + 1,
        np.minimum(np.minimum(next_request + 1, expires), requests),
        stream.blocks,
        requests,
    )
    accesses = np.bincount(stream.request, weights=stream.blocks, minlength=requests)
    seen = float(np.sum(before * accesses) / max(accesses.sum(), 1))
    return WorkingSet(window_s, mean, int(after.max(initial=0)), seen)


def _held_at_requests(enters: np.ndarray, leaves: np.ndarray, blocks: np.ndarray, requests: int) -> np.ndarray:
    """Blocks held at each request, when every row's blocks are held from request `enters` until before
    `leaves`.
    """
    change = np.zeros(requests + 1, dtype=np.int64)
    real = enters < leaves
    np.add.at(change, enters[real], blocks[real])
    np.add.at(change, leaves[real], -blocks[real])
    return np.cumsum(change)[:requests]
