"""What KV passes on its way from a tier to the GPUs' memory: links, switches, staging copies."""

from __future__ import annotations

from typing import Annotated, Any

from kvmodel.quantity import Bandwidth, Quantity, Record, Seconds

Sharers = Annotated[Any, Quantity("", ge=1, le=1e6)]


class Hop(Record):
    """One hop of a path. `bandwidth` is what software reaches on it, in one direction."""

    preset: str | None = None
    """Preset it comes from, with what was changed."""
    bandwidth: Bandwidth
    """Effective bytes per second of one such link, one direction."""
    line_bandwidth: Bandwidth | None = None
    """Line rate per direction, for the record; no result uses it."""
    latency: Seconds = 0.0
    """Time the first byte needs."""
    per_gpu: bool = False
    """Every GPU has one of its own: an instance has as many as it has GPUs."""
    sharers: Sharers = 1.0
    """Equal flows of others and its own that share it (GPUs behind a switch uplink, hosts on a pool controller)."""
