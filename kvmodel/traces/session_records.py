"""Sessions recovered from a trace: which request continues which, and what happened between the two.

A request continues the last request of its session where the trace names sessions, and else the last
request that used the deepest block it shares with anything before, heads common to many requests aside. It
continues it only if it keeps at least half of that request's blocks; otherwise the context was rewritten
(compacted, or branched near its root), which to a cache is a new session.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvmodel.traces.columns import MICROSECONDS, PAUSE_KINDS, Trace
from kvmodel.traces.prefix_tree import NEVER, RunStream, previous_rows
from kvmodel.traces.sampling import COMMON_HEAD_SHARE

CONTINUES_SHARE = 0.5
MANY_REQUESTS = 10
BRANCHING_SHARE = 0.1
"""A shared head is followed by more different runs than this share of its uses; a session's own runs are
not.
"""


@dataclass(frozen=True)
class SessionRecords:
    """One row per request.

    `parent`: the request it continues, NEVER for the first of a session. `session`: its session, numbered
    from 0. `head_tokens`: leading tokens in a head common to many requests. `new_tokens`: input tokens
    that neither its parent's input nor its parent's output explains (0 for first requests). `kept_tokens`: leading
    input tokens its parent also had; `seen_tokens`: those any earlier request had. `pause_s`: the
    client's pause where recorded, else arrival to arrival (NaN for first requests, and where there is no
    clock). `pause_kind`: index into PAUSE_KINDS.
    """

    parent: np.ndarray
    session: np.ndarray
    head_tokens: np.ndarray
    new_tokens: np.ndarray
    kept_tokens: np.ndarray
    seen_tokens: np.ndarray
    pause_s: np.ndarray
    pause_kind: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        return self.parent == NEVER

    @property
    def turns(self) -> np.ndarray:
        """Requests of each session."""
        return np.bincount(self.session)


def session_records(trace: Trace, stream: RunStream) -> SessionRecords:
    """Sessions of a trace with block ids, requests in order."""
    common = _common_rows(stream, trace.requests)
    _, previous_request = previous_rows(stream.run, stream.request)
    seen = _leading(previous_request >= 0, stream)
    head = np.bincount(stream.request, weights=stream.blocks * (common & seen), minlength=trace.requests)
    parent = (
        _named_parents(trace) if np.any(trace.session >= 0) else _tree_parents(stream, seen & ~common, previous_request)
    )
    kept = _kept_blocks(stream, seen, parent)
    blocks = trace.blocks
    parent = np.where((parent >= 0) & (kept >= CONTINUES_SHARE * blocks[parent]) & (kept > head), parent, NEVER)

    size = trace.block_tokens or 1
    later = parent >= 0
    output = np.maximum(trace.output_tokens[parent], 0)
    kept_tokens = np.where(later, np.minimum(kept * size, trace.input_tokens), 0)
    explained = kept_tokens + output
    leading = np.bincount(stream.request, weights=stream.blocks * seen, minlength=trace.requests).astype(np.int64)
    pause = np.full(trace.requests, np.nan)
    if trace.time_us is not None:
        pause[later] = (trace.time_us[later] - trace.time_us[parent[later]]) / MICROSECONDS
    recorded = later & (trace.pause_us >= 0)
    pause[recorded] = trace.pause_us[recorded] / MICROSECONDS
    return SessionRecords(
        parent=parent,
        session=_numbered(parent),
        head_tokens=np.minimum(head * size, trace.input_tokens),
        kept_tokens=kept_tokens,
        seen_tokens=np.minimum(leading * size, trace.input_tokens),
        new_tokens=np.where(later, np.maximum(trace.input_tokens - explained, 0), 0),
        pause_s=pause,
        pause_kind=np.where(later, trace.pause_kind, PAUSE_KINDS.index("unknown")),
    )


def _common_rows(stream: RunStream, requests: int) -> np.ndarray:
    """Rows in a head that belongs to no session: a run that many requests use and that many different runs
    follow, and all rows before it.
    """
    runs = len(stream.run_blocks)
    uses = np.bincount(stream.run, minlength=runs)
    follows = np.flatnonzero(stream.request[1:] == stream.request[:-1])
    pairs = np.unique(stream.run[follows] * runs + stream.run[follows + 1])
    branches = np.bincount(pairs // max(runs, 1), minlength=runs)
    many = max(COMMON_HEAD_SHARE * requests, MANY_REQUESTS)
    head = (uses > many) & (branches > BRANCHING_SHARE * uses)
    last = np.full(requests, NEVER)
    rows = np.flatnonzero(head[stream.run])
    last[stream.request[rows]] = rows
    return np.arange(len(stream.run)) <= last[stream.request]


def _leading(holds: np.ndarray, stream: RunStream) -> np.ndarray:
    """Whether a row and all before it in its request hold."""
    failed = np.concatenate([[0], np.cumsum(~holds)])
    return failed[1:] == failed[stream.request_start[stream.request]]


def _named_parents(trace: Trace) -> np.ndarray:
    """The request before in the same named session."""
    named = np.where(trace.session >= 0, trace.session, -1 - np.arange(trace.requests))
    return previous_rows(named, np.arange(trace.requests))[0]


def _tree_parents(stream: RunStream, own: np.ndarray, previous_request: np.ndarray) -> np.ndarray:
    """The last request that used the deepest row shared with anything before."""
    parent = np.full(len(stream.request_start) - 1, NEVER)
    rows = np.flatnonzero(own)
    parent[stream.request[rows]] = stream.request[previous_request[rows]]
    return parent


def _kept_blocks(stream: RunStream, seen: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """Leading blocks of each request that its parent also has, in the same places."""
    runs = int(stream.run.max(initial=0)) + 1
    name = stream.request * runs + stream.run
    of_parent = parent[stream.request]
    wanted = np.where(of_parent >= 0, of_parent * runs + stream.run, -1)
    at = np.minimum(np.searchsorted(np.sort(name), wanted), max(len(name) - 1, 0))
    shared = _leading(seen & (np.sort(name)[at] == wanted), stream) if len(name) else seen
    return np.bincount(stream.request, weights=stream.blocks * shared, minlength=len(parent)).astype(np.int64)


def _numbered(parent: np.ndarray) -> np.ndarray:
    """Session of each request: that of its parent, or a new one."""
    session: list[int] = []
    count = 0
    for before in parent.tolist():
        if before == NEVER:
            session.append(count)
            count += 1
        else:
            session.append(session[before])
    return np.array(session, dtype=np.int64)
