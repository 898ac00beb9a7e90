"""Traces of requests: readers, prefix-tree runs, exact hit curves, working sets, the best possible."""

from __future__ import annotations

from kvmodel.traces.columns import Trace
from kvmodel.traces.errors import TraceError
from kvmodel.traces.formats import FORMATS
from kvmodel.traces.read import read_trace
from kvmodel.traces.summary import SummaryOptions, trace_summary

__all__ = ["FORMATS", "SummaryOptions", "Trace", "TraceError", "read_trace", "trace_summary"]
