"""CSV traces: Azure and BurstGPT (arrivals and lengths only), and any plain CSV with a header.

Plain CSV columns, by any of the names below: a time, input tokens, output tokens, a session, and
`hash_ids` (numbers or texts separated by spaces) when blocks are known. A column `timestamp_ms` is in
milliseconds; the others are seconds or a date and time.
"""

from __future__ import annotations

import csv
from typing import Any

from kvmodel.traces.columns import Request, TraceBuilder
from kvmodel.traces.errors import BadRecord
from kvmodel.traces.formats.format import Format, ReadOptions, RecordReader, columns, is_json_object
from kvmodel.traces.formats.values import clock_microseconds, microseconds, tokens

SECONDS = ("timestamp", "time", "time_s", "timestamp_s", "arrival", "arrival_time", "arrived_at")
INPUT = (
    "contexttokens",
    "request_tokens",
    "input_tokens",
    "input_length",
    "prompt_tokens",
    "num_prefill_tokens",
)
OUTPUT = (
    "generatedtokens",
    "response_tokens",
    "output_tokens",
    "output_length",
    "completion_tokens",
    "num_decode_tokens",
)
SESSION = ("session_id", "session", "chat_id", "conversation_id")
AZURE_HEADER = ["timestamp", "contexttokens", "generatedtokens"]


def _is_azure(line: str) -> bool:
    return columns(line)[:3] == AZURE_HEADER


def _is_burstgpt(line: str) -> bool:
    return {"timestamp", "request_tokens", "response_tokens"} <= set(columns(line))


def _is_plain(line: str) -> bool:
    names = columns(line)
    return not is_json_object(line) and any(name in names for name in INPUT)


def _reader(header: str, options: ReadOptions) -> RecordReader:
    names = columns(header)
    if not any(name in names for name in INPUT):
        raise BadRecord(f"no column of input tokens; one of these is needed: {', '.join(INPUT)}")

    def read_record(line: str, builder: TraceBuilder) -> None:
        cells = next(csv.reader([line]))
        if len(cells) != len(names):
            raise BadRecord(f"{len(cells)} cells, but the header has {len(names)}")
        row = dict(zip(names, cells, strict=True))
        builder.add(
            Request(
                input_tokens=tokens(row, *_present(names, INPUT)),
                output_tokens=tokens(row, *_present(names, OUTPUT), required=False),
                time_us=_time_us(row),
                session=next((row[name] for name in SESSION if row.get(name)), None),
                block_ids=_block_ids(row["hash_ids"]) if "hash_ids" in row else None,
            )
        )

    return read_record


def _present(names: list[str], known: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in known if name in names) or known[:1]


def _time_us(row: dict[str, Any]) -> int | None:
    if row.get("timestamp_ms"):
        return microseconds(row, "timestamp_ms", unit_us=1000)
    name = next((name for name in SECONDS if row.get(name)), None)
    if name is None:
        return None
    text = row[name]
    return clock_microseconds(text) if "-" in text.strip()[1:] and ":" in text else microseconds(row, name)


def _block_ids(cell: str) -> list[int | str]:
    return [int(word) if word.lstrip("-").isdigit() else word for word in cell.split()]


AZURE = Format(
    name="azure",
    description="Azure LLM inference CSV: arrivals and lengths only",
    recognises=_is_azure,
    reader=_reader,
    has_header=True,
)
BURSTGPT = Format(
    name="burstgpt",
    description="BurstGPT CSV: arrivals and lengths only",
    recognises=_is_burstgpt,
    reader=_reader,
    has_header=True,
)
PLAIN = Format(
    name="csv",
    description="any CSV with a header: time, input tokens, and if known output tokens, session, hash_ids",
    recognises=_is_plain,
    reader=_reader,
    has_header=True,
)
