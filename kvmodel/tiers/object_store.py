from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from kvmodel.tiers.tier import StorageTier


class ObjectStore(StorageTier):
    """An object store over the network, priced by byte and month."""

    kind: Literal["object_store"] = "object_store"
    abilities: ClassVar[Mapping[str, bool]] = {
        "host_addressable": False,
        "gpu_consumable": False,
        "survives_process": True,
        "survives_power_loss": True,
    }
