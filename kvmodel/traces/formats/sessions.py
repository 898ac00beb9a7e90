"""Session files: one JSON object a line is a whole session with its `requests` in order of time.

A request has `t` [s since the session began], `in`, `out` [tokens], `hash_ranges`, and may have `a`
(agent), `stop` (why it ended: tool_use or end_turn), `think` [s the client waited before it]. Block
numbers are local to the session; they are shifted here so that no two sessions share one. When sessions
start is not recorded unless they carry `start` [s], so a curve over all sessions needs a choice: session k
starts at k times the session interval. Rules: data/traces README.
"""

from __future__ import annotations

from typing import Any

from kvmodel.traces.columns import LARGEST_COUNT, UNKNOWN, Request, TraceBuilder
from kvmodel.traces.errors import BadRecord
from kvmodel.traces.formats.format import Format, ReadOptions, RecordReader, is_json_object
from kvmodel.traces.formats.values import json_object, microseconds, tokens

_PAUSE_AFTER_STOP = {"tool_use": "tool", "end_turn": "human"}


def _recognises(line: str) -> bool:
    return is_json_object(line) and '"requests"' in line


def _reader(first_line: str, options: ReadOptions) -> RecordReader:
    sessions_read = 0
    next_free_block = 0

    def read_record(line: str, builder: TraceBuilder) -> None:
        nonlocal sessions_read, next_free_block
        row = json_object(line)
        if not isinstance(row.get("requests"), list):
            raise BadRecord("requests must be a list")
        start_us = microseconds(row, "start")
        if start_us is None and options.session_interval_us is not None:
            start_us = sessions_read * options.session_interval_us
        requests = _requests(row["requests"], sessions_read, start_us or 0, next_free_block)
        if "block_tokens" in row:
            builder.set_block_tokens(tokens(row, "block_tokens"))
        builder.in_order = False
        builder.common_clock = builder.common_clock and start_us is not None
        for request in requests:
            builder.add(request)
            for start, count in request.block_ranges or ():
                next_free_block = max(next_free_block, start + count)
        sessions_read += 1

    return read_record


def _requests(rows: list[Any], session: int, start_us: int, first_block: int) -> list[Request]:
    requests = []
    last_stop: dict[Any, Any] = {}
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise BadRecord(f"request {place} of the session is not an object")
        time_us, pause_us = microseconds(row, "t"), microseconds(row, "think")
        if time_us is None:
            raise BadRecord(f"request {place} of the session has no time t")
        agent = row.get("a", 0)
        pause_kind = _PAUSE_AFTER_STOP.get(last_stop.get(agent), "unknown")
        last_stop[agent] = row.get("stop")
        requests.append(
            Request(
                input_tokens=tokens(row, "in"),
                output_tokens=tokens(row, "out", required=False),
                time_us=start_us + time_us,
                session=(session, agent),
                block_ranges=_shifted(row.get("hash_ranges", []), first_block),
                pause_us=UNKNOWN if pause_us is None else pause_us,
                pause_kind=pause_kind,
            )
        )
    return requests


def _shifted(ranges: Any, first_block: int) -> list[tuple[int, int]]:
    try:
        shifted = [(start + first_block, count) for start, count in ranges]
    except (TypeError, ValueError) as error:
        raise BadRecord("hash_ranges must be a list of [start, count] pairs") from error
    if any(type(start) is not int or type(count) is not int for start, count in shifted):
        raise BadRecord("hash_ranges must hold whole numbers")
    if any(not (0 <= start <= 2**61 and 0 <= count <= LARGEST_COUNT) for start, count in shifted):
        raise BadRecord("hash_ranges must hold numbers from 0 up")
    return shifted


FORMAT = Format(
    name="sessions",
    description="session files: one session a line with all its requests, hash_ranges local to the session",
    recognises=_recognises,
    reader=_reader,
)
