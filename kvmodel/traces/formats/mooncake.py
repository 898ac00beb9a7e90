"""Mooncake JSONL, the same rows as Dynamo writes them, and this project's own superset of both.

One object a line: `timestamp` [ms], `input_length`, `output_length` [tokens], and the block list as
`hash_ids` or, run encoded, as `hash_ranges` [[start, count], ...]. Optional: `session` (or `session_id`),
`block_tokens`. Dynamo's aliases (`created_time`, `input_tokens`, `output_tokens`) are read too. A row that
gives a `delay` instead of a timestamp depends on how fast some server answered, so it has no place in an
access stream and is refused. Rules: github.com/kvcache-ai/Mooncake (FAST25-release),
docs.rs/dynamo-data-gen (module mooncake).
"""

from __future__ import annotations

from kvmodel.traces.columns import Request, TraceBuilder
from kvmodel.traces.errors import BadRecord
from kvmodel.traces.formats.format import Format, ReadOptions, RecordReader, is_json_object
from kvmodel.traces.formats.values import json_object, microseconds, tokens

MILLISECOND_US = 1000


def _recognises(line: str) -> bool:
    words = ('"hash_ids"', '"hash_ranges"', '"input_length"', '"input_tokens"')
    return is_json_object(line) and '"chat_id"' not in line and any(word in line for word in words)


def _reader(first_line: str, options: ReadOptions) -> RecordReader:
    return read_record


def read_record(line: str, builder: TraceBuilder) -> None:
    row = json_object(line)
    time_us = microseconds(row, "timestamp", "created_time", unit_us=MILLISECOND_US)
    if time_us is None and ("delay" in row or "delay_ms" in row):
        raise BadRecord("a delay after the previous answer is given instead of a timestamp; times are needed")
    if "block_tokens" in row:
        builder.set_block_tokens(tokens(row, "block_tokens"))
    session = row.get("session", row.get("session_id"))
    if isinstance(session, list | dict):
        raise BadRecord("session must be a number or a text")
    builder.add(
        Request(
            input_tokens=tokens(row, "input_length", "input_tokens"),
            output_tokens=tokens(row, "output_length", "output_tokens", required=False),
            time_us=time_us,
            session=session,
            block_ids=row.get("hash_ids"),
            block_ranges=row.get("hash_ranges") if "hash_ids" not in row else None,
        )
    )


FORMAT = Format(
    name="mooncake",
    description="Mooncake, Dynamo, own JSONL: one request a line, hash_ids or hash_ranges, timestamp in ms",
    recognises=_recognises,
    reader=_reader,
    usual_block_tokens=512,
)
