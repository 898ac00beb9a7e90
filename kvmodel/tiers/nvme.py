from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from kvmodel.quantity import Bytes, Quantity, Seconds
from kvmodel.tiers.tier import StorageTier


class Nvme(StorageTier):
    """Flash drives: they wear with what is written."""

    kind: Literal["nvme"] = "nvme"
    abilities: ClassVar[Mapping[str, bool]] = {
        "host_addressable": False,
        "gpu_consumable": False,
        "survives_process": True,
        "survives_power_loss": True,
    }

    capacity: Annotated[Any, Quantity("B", gt=0, le=1e21)] | None = None
    """Bytes one drive offers to KV."""
    rated_writes: Bytes | None = None
    """Bytes one drive is rated to take over its life (TBW), for the vendor's random pattern."""
    rated_writes_sequential: Bytes | None = None
    """The same for sequential writes; the ratio of the two is the drive's own rated amplification."""
    rated_dwpd: Annotated[Any, Quantity("", ge=0, le=1e3)] | None = None
    """Rated full drive writes per day over the warranty; used when rated_writes is absent."""
    warranty: Seconds | None = None
    """Years the rating holds for."""
    spare: Annotated[Any, Quantity("", ge=0, le=10)] | None = None
    """Physical over addressable flash, less one; found from the two ratings when absent."""
    amplification: Annotated[Any, Quantity("", ge=1, le=100)] | None = None
    """Flash bytes written per host byte, when measured; derived otherwise."""
    layout: Literal["append", "rewrite"] = "append"
    """append: a growing session writes its new blocks only; rewrite: every turn stores the whole context anew."""
    frees: Literal["at_random", "least_recently_used", "in_log_order"] = "at_random"
    """Order in which the store gives space back: at_random within a lifetime class (the vendor's random pattern);
    least_recently_used contexts first, each in place; in_log_order, whole regions in the order written."""
    fdp: bool = False
    """Lifetime classes are written to separate reclaim-unit handles (flexible data placement)."""
    spare_split: Literal["best", "by_size"] = "best"
    """How separate handles share the spare: the best split, or in proportion to their size."""
    live_share: Annotated[Any, Quantity("", gt=0, le=1)] = 1.0
    """Mean share of the addressable capacity that holds live data; the rest is trimmed or never written."""
    object_bytes: Annotated[Any, Quantity("B", gt=0)] | None = None
    """Bytes written in one piece and freed as one (a file, a slab)."""
    erase_unit: Annotated[Any, Quantity("B", gt=0)] | None = None
    """Bytes the drive erases as one: its superblock or reclaim unit."""
    write_size: Annotated[Any, Quantity("B", gt=0)] | None = None
    """Bytes of one host write; large when absent."""
    compaction_threshold: Annotated[Any, Quantity("", ge=0, lt=1)] | None = None
    """Live share at which a store of buckets compacts one; it copies nothing itself when absent."""

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
