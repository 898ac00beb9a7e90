"""What is evicted first. A new rule is one closed form and one line in `EVICTIONS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvmodel.formulas import eviction, reuse

EVICTIONS: dict[str, Callable[..., reuse.HitTokens]] = {
    "lru": reuse.hit_tokens,
    "ideal": eviction.ideal_hit_tokens,
}


def eviction_rule(name: str) -> Callable[[Any, Any, reuse.Touch, Any], reuse.HitTokens]:
    """Closed form of a rule: (streams, capacity, touch, since emptied) -> hit tokens."""
    return EVICTIONS[name]
