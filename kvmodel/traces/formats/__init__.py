"""Trace formats. To add one: write its file, and put its FORMAT in this list. The first that recognises a
file reads it.
"""

from __future__ import annotations

from kvmodel.traces.formats import bailian, mooncake, sessions, table
from kvmodel.traces.formats.format import Format, ReadOptions

FORMATS: tuple[Format, ...] = (
    sessions.FORMAT,
    bailian.FORMAT,
    mooncake.FORMAT,
    table.AZURE,
    table.BURSTGPT,
    table.PLAIN,
)

__all__ = ["FORMATS", "Format", "ReadOptions"]
