"""Keep a share of the sessions of a trace that does not fit in memory, and say how far off the answer is.

Sessions are kept whole, by a hash of their name, so a request is kept when its predecessors are. Where
sessions are not named, the branch of the prefix tree stands for the session: the first block that is not
part of a head common to many requests. A cache of C blocks on the whole trace is then a cache of C times
the share on the sample (the spatial sampling argument of SHARDS, Waldspurger et al., FAST 2015, section 3,
with sessions in place of blocks).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from zlib import crc32

from kvmodel.traces.columns import Request, Trace, TraceBuilder

COMMON_HEAD_SHARE = 0.05
"""A leading block in more than this share of the first requests belongs to a shared head, not to a
session.
"""
_FIRST_REQUESTS = 1000
_HASH_SPACE = 2**32


class SampledBuilder(TraceBuilder):
    """A TraceBuilder that keeps a share of the sessions."""

    def __init__(self, share: float, *, in_order: bool = True):
        super().__init__(in_order=in_order)
        self._threshold = share * _HASH_SPACE
        self._waiting: list[Request] | None = []
        self._common: frozenset[Hashable] = frozenset()

    def add(self, request: Request) -> None:
        if self._waiting is None:
            self._add_if_kept(request)
            return
        self._waiting.append(request)
        if len(self._waiting) == _FIRST_REQUESTS:
            self._release()

    def trace(self, *, name: str, format: str, skipped_lines: int) -> Trace:
        self._release()
        return super().trace(name=name, format=format, skipped_lines=skipped_lines)

    def _release(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        if not waiting:
            return
        heads = Counter(block for request in waiting for block in set(_leading_blocks(request)))
        self._common = frozenset(b for b, times in heads.items() if times > COMMON_HEAD_SHARE * len(waiting))
        for request in waiting:
            self._add_if_kept(request)

    def _add_if_kept(self, request: Request) -> None:
        if crc32(repr(self._session_key(request)).encode()) < self._threshold:
            super().add(request)

    def _session_key(self, request: Request) -> Hashable:
        if request.session is not None:
            return request.session
        leading = _leading_blocks(request)
        own = next((block for block in leading if block not in self._common), None)
        return own if own is not None else (leading[-1] if leading else request.time_us)


def _leading_blocks(request: Request) -> list[Hashable]:
    """Names of the request's blocks from the front, as far as a shared head may reach."""
    if request.block_ids is not None:
        return list(request.block_ids[:64])
    return [start for start, _ in list(request.block_ranges or ())[:64]]
