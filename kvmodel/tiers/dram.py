from __future__ import annotations

from typing import Literal

from kvmodel.tiers.tier import StorageTier


class Dram(StorageTier):
    """Host memory behind PCIe or a coherent link."""

    kind: Literal["dram"] = "dram"
    host_addressable: bool = True
    gpu_consumable: bool = False
    survives_process: bool = False
    survives_power_loss: bool = False
