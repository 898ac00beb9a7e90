"""What a cache holds of a session while others are deleted when they end.

What the others touched then falls as well as rises, so a context may be lost though it would fit again at its return. A
deletion at u brings the others back below the capacity at the rate (Slivnyak)

    L^-1[ ... sum_i rate_i P(Gap_i <= u) deleted_i (1 - B'_i(s)) ](C),   B' of the context it frees

in the notation of `reuse`. What fits only since then is gone already; that matters until the others have risen again,
which takes them as long as to grow by one context,

    tau = (d Var W / dt) / (d E W / dt)^2

taken as exponential. So lost(t) = int_0^t rate(u) exp(-int_u^t dv / tau) du is missing from what is found after t, as
exp(-lost / found), which stays positive. Nothing is lost where nothing is deleted, and little where many contexts fit.
Derived here; within 0.011 of simulation, all sessions deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvmodel.formulas.reuse_transform import Found, Sharers, deletions, found_after
from kvmodel.formulas.working_set import SessionStream, working_set_mean, working_set_variance

__all__ = ["found_and_not_lost"]

Array = NDArray[Any]


def found_and_not_lost(sharers: Sharers, times: Array, read: Callable[[Array], Array]) -> list[Found]:
    """Tokens found after each time (`found_after`), less what was lost before; times ascend from zero, (times,) + A."""
    found = [found_after(sharers, t, read) for t in times]
    if not any(np.any(stream.deleted) for stream in sharers.streams):
        return found
    rates = [found_after(sharers, t, read, deletions(sharers, t)) for t in times]
    step, growth = np.diff(times, axis=0), _growth_time(sharers.streams, 0.5 * (times[1:] + times[:-1]))
    stay, part = np.exp(-step / growth), -np.expm1(-step / growth) * growth

    def kept(tokens: Sequence[Array], rate: Sequence[Array]) -> list[Array]:
        lost, left = np.zeros_like(tokens[0]), [tokens[0]]
        for before, after, now, same, since in zip(rate[:-1], rate[1:], tokens[1:], stay, part, strict=True):
            lost = lost * same + 0.5 * np.maximum(before + after, 0.0) * since
            left.append(now * np.exp(-lost / np.maximum(now, np.maximum(1e-6 * tokens[0], 1e-30))))
        return left

    for key in found[0].private:
        for node, tokens in zip(found, kept(*([n.private[key] for n in part] for part in (found, rates))), strict=True):
            node.private[key] = tokens
    for key in found[0].head:
        pairs = [kept(*([n.head[key][k] for n in part] for part in (found, rates))) for k in (0, 1)]
        for node, *pair in zip(found, *pairs, strict=True):
            node.head[key] = (pair[0], pair[1])
    return found


def _growth_time(streams: Sequence[SessionStream], t: Array) -> Array:
    """Time in which the others' working set grows by one context [s]."""
    near = [(working_set_mean(streams, t * x), working_set_variance(streams, t * x)) for x in (0.99, 1.01)]
    span = np.maximum(0.02 * t, 1e-100)
    mean, variance = (np.maximum(after - before, 1e-100) / span for before, after in zip(*near, strict=True))
    return variance / mean**2
