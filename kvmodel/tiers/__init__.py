"""Kinds of tier that can hold KV, fast to slow.

A new kind is one file with one class, and one line in `TIERS`.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated

from pydantic import Field

from kvmodel.tiers.cxl import Cxl
from kvmodel.tiers.dram import Dram
from kvmodel.tiers.hbm import Hbm
from kvmodel.tiers.nvme import Nvme
from kvmodel.tiers.object_store import ObjectStore
from kvmodel.tiers.remote import Remote

TIERS = (Hbm, Dram, Cxl, Nvme, Remote, ObjectStore)  # fast to slow: a study lists its tiers in this order
Tier = Annotated[reduce(or_, TIERS), Field(discriminator="kind")]
SPEED_ORDER = {tier.model_fields["kind"].default: rank for rank, tier in enumerate(TIERS)}
