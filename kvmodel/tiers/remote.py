from __future__ import annotations

from typing import Literal

from kvmodel.tiers.tier import StorageTier


class Remote(StorageTier):
    """Memory or flash of other hosts over the network."""

    kind: Literal["remote"] = "remote"
    host_addressable: bool = False
    gpu_consumable: bool = False
    survives_process: bool = True
    survives_power_loss: bool = False
