"""A trace in memory: one row of numbers per request, and its block list as ranges that are never expanded."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvmodel.traces.errors import BadRecord

MICROSECONDS = 1_000_000
UNKNOWN = -1
LARGEST_COUNT = 10**12
"""Largest token count of a request, or block count of a range, that is believed."""
_LARGEST_ID = 2**62
_ID_CHUNK = 1_000_000

PAUSE_KINDS = ("unknown", "tool", "human")


@dataclass(frozen=True)
class Trace:
    """Requests in the order they reached the cache.

    `range_start[k], range_count[k]` for k in `range_offset[i]:range_offset[i+1]` are the blocks of request i.
    Times are whole microseconds, so that differences are exact. Unknown values are -1; `time_us` is None when
    the trace has no clock, and all range arrays are empty when it names no blocks.
    """

    name: str
    format: str
    block_tokens: int | None
    time_us: np.ndarray | None
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    session: np.ndarray
    pause_us: np.ndarray
    pause_kind: np.ndarray
    range_start: np.ndarray
    range_count: np.ndarray
    range_offset: np.ndarray
    has_blocks: bool
    common_clock: bool
    skipped_lines: int = 0
    notes: tuple[str, ...] = ()

    @property
    def requests(self) -> int:
        return len(self.input_tokens)

    @property
    def blocks(self) -> np.ndarray:
        """Blocks of each request."""
        total = np.concatenate([[0], np.cumsum(self.range_count)])
        return total[self.range_offset[1:]] - total[self.range_offset[:-1]]

    @property
    def duration_us(self) -> int | None:
        if self.time_us is None or not self.common_clock or self.requests == 0:
            return None
        return int(self.time_us.max() - self.time_us.min())

    def take(self, rows: np.ndarray) -> Trace:
        """The trace made of these rows (indices), in this order."""
        counts = np.diff(self.range_offset)[rows]
        offset = np.concatenate([[0], np.cumsum(counts)])
        source = np.repeat(self.range_offset[:-1][rows] - offset[:-1], counts) + np.arange(offset[-1])
        return replace(
            self,
            time_us=None if self.time_us is None else self.time_us[rows],
            input_tokens=self.input_tokens[rows],
            output_tokens=self.output_tokens[rows],
            session=self.session[rows],
            pause_us=self.pause_us[rows],
            pause_kind=self.pause_kind[rows],
            range_start=self.range_start[source],
            range_count=self.range_count[source],
            range_offset=offset,
        )

    def by_time(self) -> Trace:
        """The same requests in order of time; requests at the same instant keep their order."""
        if self.time_us is None or np.all(self.time_us[1:] >= self.time_us[:-1]):
            return self
        return self.take(np.argsort(self.time_us, kind="stable"))


@dataclass(frozen=True)
class Request:
    """One record as a format hands it over. Blocks come as ids, as [start, count] ranges, or not at all."""

    input_tokens: int
    output_tokens: int = UNKNOWN
    time_us: int | None = None
    session: Hashable = None
    block_ids: Sequence[int | str] | None = None
    block_ranges: Iterable[Sequence[int]] | None = None
    pause_us: int = UNKNOWN
    pause_kind: str = "unknown"


class TraceBuilder:
    """Collects requests into flat arrays; what is pending as plain ids is packed into ranges every
    million.
    """

    def __init__(self, *, in_order: bool = True):
        self.in_order = in_order
        self.block_tokens: int | None = None
        self.common_clock = True
        self._numbers = {key: array("q") for key in ("time", "input", "output", "session", "pause", "kind", "ranges")}
        self._starts, self._counts = array("q"), array("q")
        self._ids, self._id_lengths = array("q"), array("q")
        self._names: dict[Hashable, int] = {}
        self._sessions: dict[Hashable, int] = {}
        self._with_blocks: bool | None = None
        self._with_time: bool | None = None
        self._last_time: int | None = None

    def __len__(self) -> int:
        return len(self._numbers["input"])

    def set_block_tokens(self, value: int) -> None:
        """Block size as the file states it; a file with two sizes is refused."""
        if self.block_tokens not in (None, value):
            raise BadRecord(f"block_tokens is {value} here but {self.block_tokens} before; one trace has one size")
        self.block_tokens = value

    def add(self, request: Request) -> None:
        """Append one request, or raise BadRecord and leave everything as it was."""
        has_blocks = request.block_ids is not None or request.block_ranges is not None
        self._check_columns(has_blocks, request.time_us)
        ids = None if request.block_ids is None else self._whole_ids(request.block_ids)
        ranges = None if request.block_ranges is None else _whole_ranges(request.block_ranges)
        self._with_blocks, self._with_time = has_blocks, request.time_us is not None
        self._last_time = request.time_us
        numbers = self._numbers
        numbers["time"].append(request.time_us if request.time_us is not None else UNKNOWN)
        numbers["input"].append(request.input_tokens)
        numbers["output"].append(request.output_tokens)
        numbers["session"].append(self._session_number(request.session))
        numbers["pause"].append(request.pause_us)
        numbers["kind"].append(PAUSE_KINDS.index(request.pause_kind))
        if ids is not None:
            self._ids.extend(ids)
            self._id_lengths.append(len(ids))
            if len(self._ids) > _ID_CHUNK:
                self._pack_ids()
        else:
            self._pack_ids()
            starts, counts = ranges or ((), ())
            self._starts.extend(starts)
            self._counts.extend(counts)
            numbers["ranges"].append(len(starts))

    def trace(self, *, name: str, format: str, skipped_lines: int) -> Trace:
        """Everything collected so far."""
        self._pack_ids()
        column = {key: np.array(values, dtype=np.int64) for key, values in self._numbers.items()}
        return Trace(
            name=name,
            format=format,
            block_tokens=self.block_tokens,
            time_us=column["time"] if self._with_time else None,
            input_tokens=column["input"],
            output_tokens=column["output"],
            session=column["session"],
            pause_us=column["pause"],
            pause_kind=column["kind"],
            range_start=np.array(self._starts, dtype=np.int64),
            range_count=np.array(self._counts, dtype=np.int64),
            range_offset=np.concatenate([[0], np.cumsum(column["ranges"])]).astype(np.int64),
            has_blocks=bool(self._with_blocks),
            common_clock=self.common_clock,
            skipped_lines=skipped_lines,
        )

    def _check_columns(self, has_blocks: bool, time_us: int | None) -> None:
        if self._with_blocks not in (None, has_blocks):
            raise BadRecord("some requests list their blocks and some do not")
        if self._with_time not in (None, time_us is not None):
            raise BadRecord("some requests have a time and some do not")
        if not self.in_order or not has_blocks or time_us is None or self._last_time is None:
            return
        if time_us < self._last_time:
            raise BadRecord(
                f"time goes backwards: {time_us / MICROSECONDS} s after {self._last_time / MICROSECONDS} s "
                "(use --sort to put the requests in order of time)"
            )

    def _whole_ids(self, ids: Sequence[int | str]) -> array[int]:
        if not isinstance(ids, list):
            raise BadRecord("the list of block ids is not a list")
        try:
            whole = array("q", ids)
            if not whole or (max(whole) < _LARGEST_ID and min(whole) > -_LARGEST_ID):
                return whole
        except (TypeError, OverflowError):
            pass
        return array("q", [self._named(value) for value in ids])

    def _named(self, value: object) -> int:
        """A number for an id that is a text or needs more than 62 bits, from a space no plain id can be
        in.
        """
        if isinstance(value, int) and abs(value) < _LARGEST_ID:
            return value
        if isinstance(value, int | str):
            return self._names.setdefault(value, len(self._names) - 2 * _LARGEST_ID)
        raise BadRecord(f"block id {value!r} is neither a whole number nor a text")

    def _session_number(self, session: Hashable) -> int:
        return UNKNOWN if session is None else self._sessions.setdefault(session, len(self._sessions))

    def _pack_ids(self) -> None:
        """Turn the pending ids into maximal ranges of consecutive numbers within each request."""
        if not self._id_lengths:
            return
        ids, lengths = np.array(self._ids, dtype=np.int64), np.array(self._id_lengths, dtype=np.int64)
        ends = np.cumsum(lengths)
        first = np.ones(len(ids), dtype=bool)
        first[1:] = ids[1:] != ids[:-1] + 1
        first[ends[:-1][ends[:-1] < len(ids)]] = True
        at = np.flatnonzero(first)
        seen = np.concatenate([[0], np.cumsum(first)])
        self._starts.frombytes(ids[at].tobytes())
        self._counts.frombytes(np.diff(at, append=len(ids)).astype(np.int64).tobytes())
        self._numbers["ranges"].frombytes((seen[ends] - seen[ends - lengths]).astype(np.int64).tobytes())
        self._ids, self._id_lengths = array("q"), array("q")


def _whole_ranges(ranges: Iterable[Sequence[int]]) -> tuple[array[int], array[int]]:
    starts, counts = array("q"), array("q")
    try:
        for start, count in ranges:
            if not 0 <= count <= LARGEST_COUNT:
                raise BadRecord(f"range [{start}, {count}] has a count outside 0..{LARGEST_COUNT}")
            if not -_LARGEST_ID < start < _LARGEST_ID - LARGEST_COUNT:
                raise BadRecord(f"range [{start}, {count}] starts outside what 62 bits hold")
            if count:
                starts.append(start)
                counts.append(count)
    except (TypeError, ValueError) as error:
        if isinstance(error, BadRecord):
            raise
        raise BadRecord("hash_ranges must be a list of [start, count] pairs of whole numbers") from error
    return starts, counts
