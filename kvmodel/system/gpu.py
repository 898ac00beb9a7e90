"""The GPU under study."""

from __future__ import annotations

from typing import Annotated, Any

from kvmodel.quantity import Bandwidth, Bytes, Power, Quantity, Record

Flops = Annotated[Any, Quantity("FLOP/s", gt=0, le=1e20)]


class Gpu(Record):
    """Facts of one GPU, and how many the deployment has."""

    preset: str | None = None
    """Preset it comes from, with what was changed."""
    count: Annotated[Any, Quantity("", ge=1, le=1e6)] = 1.0
    """GPUs of the deployment."""
    memory: Bytes
    """Memory of one GPU."""
    memory_bandwidth: Bandwidth
    """Peak bandwidth of that memory."""
    flops: dict[str, Flops]
    """Dense peak rate by number format (bf16, fp8, ...)."""
    host_link: Bandwidth | None = None
    """Effective bandwidth from host memory to one GPU, per direction."""
    host_link_line: Bandwidth | None = None
    """Line rate of that link, for the record."""
    peer_link: Bandwidth | None = None
    """Bandwidth between GPUs, per direction."""
    power: Power | None = None
    """Power of one GPU under load."""
    gpus_per_node: str | None = None
    """How many a node usually holds."""
