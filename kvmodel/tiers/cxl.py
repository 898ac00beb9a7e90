from __future__ import annotations

from typing import Literal

from kvmodel.tiers.tier import StorageTier


class Cxl(StorageTier):
    """Memory on CXL, direct or pooled behind a switch."""

    kind: Literal["cxl"] = "cxl"
    host_addressable: bool = True
    gpu_consumable: bool = False
    survives_process: bool = False
    survives_power_loss: bool = False
