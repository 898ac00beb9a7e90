"""What is evicted first. A new rule is one closed form and one line in `EVICTIONS`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """Where the closed forms of a rule are (module, function), and what it is fit for."""

    hits: tuple[str, str]
    lifetime: tuple[str, str] | None = None
    """With a retention that hits do not renew; None where that is not modelled."""
    nests: bool = False
    """Shared prefixes may lie under others."""
    stack: bool = False
    """A larger cache holds what a smaller one does, so the tiers of an exclusive chain are cuts of one."""


# names only: reading a study must not load the mathematics, which takes longer than the reading
EVICTIONS = {
    "lru": Rule(
        ("kvmodel.formulas.reuse", "hit_tokens"),
        ("kvmodel.formulas.residence", "lru_lifetime_hit_tokens"),
        nests=True,
        stack=True,
    ),
    "fifo": Rule(*[("kvmodel.formulas.residence", "fifo_hit_tokens")] * 2),
    "random": Rule(("kvmodel.formulas.residence", "random_hit_tokens")),
    "value_aware": Rule(("kvmodel.formulas.eviction", "value_aware_hit_tokens"), stack=True),
    "ideal": Rule(("kvmodel.formulas.eviction", "ideal_hit_tokens"), nests=True, stack=True),
}


def eviction_rule(name: str, renewed: bool = True) -> Callable[..., Any]:
    """Closed form of a rule: (streams, capacity, touch, since emptied) -> formulas.reuse.HitTokens.

    renewed: hits renew the streams' `retention`; else their `lifetime` ends a context.
    """
    rule = EVICTIONS[name]
    module, function = rule.hits if renewed else rule.lifetime
    return getattr(import_module(module), function)
