from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from kvmodel.tiers.tier import StorageTier


class Cxl(StorageTier):
    """Memory on CXL, direct or pooled behind a switch."""

    kind: Literal["cxl"] = "cxl"
    abilities: ClassVar[Mapping[str, bool]] = {
        "host_addressable": True,
        "gpu_consumable": False,
        "survives_process": False,
        "survives_power_loss": False,
    }
