from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from kvmodel.tiers.tier import StorageTier


class Remote(StorageTier):
    """Memory or flash of other hosts over the network."""

    kind: Literal["remote"] = "remote"
    abilities: ClassVar[Mapping[str, bool]] = {
        "host_addressable": False,
        "gpu_consumable": False,
        "survives_process": True,
        "survives_power_loss": False,
    }
