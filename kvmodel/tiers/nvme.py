from __future__ import annotations

from typing import Annotated, Any, Literal

from kvmodel.quantity import Bytes, Quantity, Seconds
from kvmodel.tiers.tier import StorageTier


class Nvme(StorageTier):
    """Flash drives: they wear with what is written."""

    kind: Literal["nvme"] = "nvme"
    host_addressable: bool = False
    gpu_consumable: bool = False
    survives_process: bool = True
    survives_power_loss: bool = True

    rated_writes: Bytes | None = None
    """Bytes one drive is rated to take over its life (TBW), for the vendor's random pattern."""
    rated_writes_sequential: Bytes | None = None
    """The same for sequential writes; the ratio of the two is the drive's own rated amplification."""
    rated_dwpd: Annotated[Any, Quantity("", ge=0, le=1e3)] | None = None
    """Rated full drive writes per day over the warranty; used when rated_writes is absent."""
    warranty: Seconds | None = None
    """Years the rating holds for."""
    spare: Annotated[Any, Quantity("", ge=0, le=10)] | None = None
    """Physical over addressable flash, less one."""
    amplification: Annotated[Any, Quantity("", ge=1, le=100)] | None = None
    """Flash bytes written per host byte, when measured; derived otherwise."""
    fdp: bool = False
    """KV lifetimes are written to separate reclaim-unit handles (flexible data placement)."""

    write_latency: Seconds | None = None
    """Latency of a write."""
    mdts: Bytes | None = None
    """Largest transfer of one NVMe command."""
    indirection_unit: Bytes | None = None
    """Bytes the drive maps as one; smaller writes are amplified."""
    form_factor: str | None = None
    """Form factor."""
    interface: str | None = None
    """Host interface."""
    media: str | None = None
    """Flash type."""
    vendor: str | None = None
    """Maker."""
