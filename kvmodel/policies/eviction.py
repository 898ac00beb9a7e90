"""What is evicted first. A new rule is one closed form in formulas.reuse and one line in `EVICTIONS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# rule -> its closed form; a name, so that reading a study does not load the mathematics
EVICTIONS = {
    "lru": "hit_tokens",
}


def eviction_rule(name: str) -> Callable[..., Any]:
    """Closed form of a rule: (streams, capacity, touch, since emptied) -> formulas.reuse.HitTokens."""
    from kvmodel.formulas import reuse

    return getattr(reuse, EVICTIONS[name])
