"""Where KV is placed, what is admitted, what is evicted."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from kvmodel.policies.admission import Admission
from kvmodel.policies.eviction import EVICTIONS
from kvmodel.quantity import Record, Seconds


class Policy(Record):
    """Placement, admission and eviction, the same for all tiers of a deployment."""

    eviction: Literal[tuple(EVICTIONS)] = "lru"
    """What goes first. lru: the least recently used. fifo: the first written, hits do not renew it. random: any one.
    value_aware: what is least likely to be worth its room, by prefill saved and law of return. ideal: no rule but a
    bound, what knowing all pauses would find."""
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
    retention_renewed: bool = True
    """Whether a hit starts the retention anew; when false it runs from the time the context was written."""

    @model_validator(mode="after")
    def _modelled(self) -> Policy:
        """Refuse by name what has no closed form."""
        aged = not self.retention_renewed
        if aged and self.retention is None:
            raise ValueError("retention_renewed: false needs a retention that it can speak of")
        if aged and EVICTIONS[self.eviction].lifetime is None:
            names = ", ".join(name for name, rule in EVICTIONS.items() if rule.lifetime)
            raise ValueError(f"retention_renewed: false is modelled under eviction {names}, not under {self.eviction}")
        if self.chain == "exclusive" and (aged or not EVICTIONS[self.eviction].stack):
            names = ", ".join(name for name, rule in EVICTIONS.items() if rule.stack)
            raise ValueError(
                f"chain: exclusive is modelled under eviction {names} with a renewed retention, where its tiers are "
                f"cuts of one stack; use chain: inclusive with {'retention_renewed: false' if aged else self.eviction}"
            )
        return self
