"""What one trace format provides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvmodel.traces.columns import TraceBuilder

RecordReader = Callable[[str, TraceBuilder], None]


@dataclass(frozen=True)
class ReadOptions:
    """Choices a format may need from its reader."""

    session_interval_us: int | None = None


@dataclass(frozen=True)
class Format:
    """A name, how to know it by its first line, and a new reader of one record (one line) for each file.

    A CSV format consumes its first line as header: `has_header`.
    """

    name: str
    description: str
    recognises: Callable[[str], bool]
    reader: Callable[[str, ReadOptions], RecordReader]
    has_header: bool = False
    usual_block_tokens: int | None = None


def is_json_object(line: str) -> bool:
    return line.lstrip().startswith("{")


def columns(header: str) -> list[str]:
    """Column names of a CSV header in lower case, spaces and dashes as underscores."""
    return [cell.strip().strip('"').lower().replace(" ", "_").replace("-", "_") for cell in header.split(",")]
