from __future__ import annotations

from typing import Literal

from kvmodel.tiers.tier import StorageTier


class ObjectStore(StorageTier):
    """An object store over the network, priced by byte and month."""

    kind: Literal["object_store"] = "object_store"
    host_addressable: bool = False
    gpu_consumable: bool = False
    survives_process: bool = True
    survives_power_loss: bool = True
