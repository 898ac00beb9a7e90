from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from kvmodel.tiers.tier import StorageTier


class Dram(StorageTier):
    """Host memory behind PCIe or a coherent link."""

    kind: Literal["dram"] = "dram"
    abilities: ClassVar[Mapping[str, bool]] = {
        "host_addressable": True,
        "gpu_consumable": False,
        "survives_process": False,
        "survives_power_loss": False,
    }
