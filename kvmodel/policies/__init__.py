"""Where KV is placed, what is admitted, what is evicted."""

from __future__ import annotations

from typing import Literal

from kvmodel.policies.admission import Admission
from kvmodel.policies.eviction import EVICTIONS
from kvmodel.quantity import Record, Seconds


class Policy(Record):
    """Placement, admission and eviction, the same for all tiers of a deployment."""

    eviction: Literal[tuple(EVICTIONS)] = "lru"
    """What goes first. lru: the least recently used. ideal: no rule but a bound, what knowing all pauses would find."""
    touch: Literal["tail_first", "head_first"] = "tail_first"
    """Which end of a context is evicted first: engines free the tail first, so that a partial prefix survives."""
    chain: Literal["inclusive", "exclusive"] = "inclusive"
    """inclusive: what is created is written through, so that a lower tier holds a copy of what is above it; exclusive:
    what is evicted above moves down."""
    admission: Admission = Admission()
    """What may be written into tiers that wear."""
    pinned: tuple[str, ...] = ()
    """Names of shared prefixes that are never evicted: they always hit and take their bytes from the rest."""
    retention: Seconds | None = None
    """Forget a context this long after its last use; never when absent."""
