"""What is evicted first. A new rule is one closed form and one line in `EVICTIONS`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

# rule -> where its closed form is: reading a study must not load the mathematics, which takes longer than the reading
EVICTIONS = {
    "lru": ("kvmodel.formulas.reuse", "hit_tokens"),
    "ideal": ("kvmodel.formulas.eviction", "ideal_hit_tokens"),
}


def eviction_rule(name: str) -> Callable[..., Any]:
    """Closed form of a rule: (streams, capacity, touch, since emptied) -> formulas.reuse.HitTokens."""
    module, function = EVICTIONS[name]
    return getattr(import_module(module), function)
