"""Qwen-Bailian JSONL: `chat_id`, `parent_chat_id` (-1 at the root), `timestamp` [s], lengths, `hash_ids` of
16 tokens.

A session is a chain of chats; it is named by its root. Rules:
github.com/alibaba-edu/qwen-bailian-usagetraces-anon.
"""

from __future__ import annotations

from collections.abc import Hashable

from kvmodel.traces.columns import Request, TraceBuilder
from kvmodel.traces.errors import BadRecord
from kvmodel.traces.formats.format import Format, ReadOptions, RecordReader, is_json_object
from kvmodel.traces.formats.values import json_object, microseconds, tokens


def _recognises(line: str) -> bool:
    return is_json_object(line) and '"chat_id"' in line


def _reader(first_line: str, options: ReadOptions) -> RecordReader:
    root_of: dict[Hashable, Hashable] = {}

    def read_record(line: str, builder: TraceBuilder) -> None:
        row = json_object(line)
        chat, parent = row.get("chat_id"), row.get("parent_chat_id", -1)
        if not isinstance(chat, int | str) or not isinstance(parent, int | str):
            raise BadRecord("chat_id and parent_chat_id must be numbers or texts")
        root = chat if parent in (-1, "-1") else root_of.get(parent, parent)
        builder.add(
            Request(
                input_tokens=tokens(row, "input_length"),
                output_tokens=tokens(row, "output_length", required=False),
                time_us=microseconds(row, "timestamp"),
                session=root,
                block_ids=row.get("hash_ids"),
            )
        )
        root_of[chat] = root

    return read_record


FORMAT = Format(
    name="bailian",
    description="Qwen-Bailian JSONL: one request a line, chat_id chains, timestamp in s, blocks of 16 tokens",
    recognises=_recognises,
    reader=_reader,
    usual_block_tokens=16,
)
