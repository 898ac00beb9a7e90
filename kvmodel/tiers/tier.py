"""What every tier states: four separate abilities, its own size, its path, its price."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import model_validator

from kvmodel.quantity import Bandwidth, Bytes, Fraction, Power, Quantity, Record, Seconds
from kvmodel.tiers.path import Hop

Count = Annotated[Any, Quantity("", ge=1, le=1e6)]


class StorageTier(Record):
    """A place below the GPU's own memory that holds KV and gives it back over a path."""

    abilities: ClassVar[Mapping[str, bool]] = {}
    """What a tier of this kind can do unless a study or preset says otherwise."""

    @model_validator(mode="before")
    @classmethod
    def _usual_abilities(cls, given: Any) -> Any:
        return {**cls.abilities, **given} if isinstance(given, Mapping) else given

    preset: str | None = None
    """Preset it comes from, with what was changed."""
    capacity: Bytes | None = None
    """Bytes one device offers to KV."""
    count: Count = 1.0
    """Devices of this tier in the deployment."""
    headroom: Annotated[Any, Quantity("", ge=0, lt=1)] = 0.0
    """Share of the capacity kept free for refill, migration and rebuild."""
    scope: Literal["instance", "node", "rack", "shared"] = "node"
    """Who reads the same copy: one engine instance, or all of the deployment."""

    read_bandwidth: Bandwidth | None = None
    """Effective bytes per second one device gives on its whole path to the GPUs, not the line rate."""
    write_bandwidth: Bandwidth | None = None
    """Effective bytes per second one device takes."""
    line_bandwidth: Bandwidth | None = None
    """Line rate per direction, for the record; no result uses it."""
    efficiency: Annotated[Any, Quantity("", gt=0, le=1)] = 1.0
    """Derating of the stated bandwidths by software, kept apart from the fact."""
    path: tuple[Hop, ...] = ()
    """Hops from the devices to the GPUs' memory, in order; in place of the GPU's own host link."""
    pipelined: bool = True
    """Hops pass on pieces of the largest transfer; otherwise each holds all bytes before the next starts."""
    latency: Seconds = 0.0
    """First byte of the device."""
    lookup: Seconds = 0.0
    """Directory look-up and request in software, once per restore."""
    largest_transfer: Annotated[Any, Quantity("B", gt=0)] | None = None
    """Bytes one copy moves at most; a restore is cut into copies of this size."""
    seconds_per_copy: Seconds = 0.0
    """Time each copy adds beside its bytes (launch, CPU, protocol)."""
    conversion: Annotated[Any, Quantity("s/B", ge=0)] = 0.0
    """Time to decompress or convert one byte into what the engine consumes."""
    hidden: Fraction = 0.0
    """Share of the transfer that layer-wise loading hides behind computation."""
    storage_amplification: Annotated[Any, Quantity("", gt=0, le=1e3)] = 1.0
    """Bytes this tier stores per logical byte (its layout, padding, copies; below 1 when compressed)."""
    decode_rate: Bandwidth | None = None
    """Uncompressed bytes per second at which compressed KV is unpacked, while it arrives; empty: not compressed."""
    quality_cost: str | None = None
    """What a lossy encoding costs in answers, as its source states it; for the record, no result uses it."""

    host_addressable: bool
    """The host can load and store in it."""
    gpu_consumable: bool
    """The GPU can attend to KV where it lies, without a copy."""
    survives_process: bool
    """KV outlives the engine process."""
    survives_power_loss: bool
    """KV outlives a power cut."""

    price: Annotated[Any, Quantity("USD/B", ge=0)] | None = None
    """Price of a byte bought; the price list's figure for the kind when absent."""
    power: Power | None = None
    """Power of one device."""
    power_per_byte: Annotated[Any, Quantity("W/B", ge=0)] | None = None
    """Power per byte, where the power of a device is not stated."""
