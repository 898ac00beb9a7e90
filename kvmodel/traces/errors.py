"""What can be wrong with a trace."""

from __future__ import annotations

from kvmodel.errors import KvmodelError


class TraceError(KvmodelError):
    """A trace that cannot be read or answered from; its text names the file, the line and the cure."""


class BadRecord(ValueError):
    """One record that is not what its format promises; the reader adds file and line, or skips and counts
    it.
    """
