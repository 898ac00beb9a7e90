"""A closed form of reuse against the event simulation of the same streams, with the simulation's standard error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.reuse import SessionStream, Touch
from kvmodel.simulation.policy_cache import found_ratio, simulate_policy
from kvmodel.simulation.session_cache import Rates, hit_ratio, simulate_sessions

__all__ = ["Verification", "verification"]

Array = NDArray[Any]
SPANS = 30.0
"""Sessions that follow each other within the simulated time, at least."""


_FIELDS = ("private", "private_error", "prefix", "prefix_error")


class Verification(NamedTuple):
    """Share of the reusable tokens found, shape (streams, capacities); nan where a stream reuses nothing.

    private, prefix: closed form; simulated_*: simulation; *_error: its standard error. turns: simulated.
    """

    private: Array
    simulated_private: Array
    private_error: Array
    prefix: Array
    simulated_prefix: Array
    prefix_error: Array
    turns: int

    @property
    def largest_difference(self) -> float:
        """Of all shares; what the closed form is off here, the simulation's own error included."""
        gaps = np.abs([self.private - self.simulated_private, self.prefix - self.simulated_prefix])
        return float(np.nanmax(gaps, initial=0.0))


def verification(
    streams: Sequence[SessionStream],
    capacity: ArrayLike,
    private: ArrayLike,
    prefix: ArrayLike,
    touch: Touch = "reverse",
    turns: int = 200_000,
    seed: int = 1,
    rates: Sequence[Rates | None] | None = None,
) -> Verification:
    """Simulate the streams (scalar parameters) once and set hits at all capacities, shape (n,), beside a closed form.

    private, prefix: shares found by the closed form, (streams, n). About `turns` turns are simulated, more where
    sessions last so long that fewer than thirty would follow each other, or where rates change, but never more than ten
    times as many.
    10 microseconds a turn.
    """
    rate = sum(float(s.arrival_rate) * float(s.turns.mean) for s in streams)
    longest = max(float(s.turns.mean) * float(s.gap.quantile(0.9)) for s in streams)
    changes = max((one.span for one in rates or () if one is not None), default=0.0)
    horizon = min(max(turns / rate, SPANS * longest, changes), 10.0 * turns / rate)
    if any(float(s.deleted) > 0.0 for s in streams):
        found = simulate_policy(streams, capacity, horizon, seed, touch=touch, rates=rates)
        seen, counted = [found_ratio(found, stream=i) for i in range(len(streams))], len(found.stream)
    else:
        log = simulate_sessions(streams, horizon, seed, touch, rates=rates)
        seen, counted = [hit_ratio(log, capacity, stream=i) for i in range(len(streams))], len(log.stream)
    returns = np.array([[float(s.paused_moments[1]) > 0.0] for s in streams])
    headed = np.array([[s.prefix is not None and float(s.prefix.tokens) > 0.0] for s in streams])
    parts = [np.stack([getattr(one, name) for one in seen]) for name in _FIELDS]
    own, heads = (
        [np.where(some, part, np.nan) for part in (np.asarray(closed, float), *measured)]
        for some, closed, measured in ((returns, private, parts[:2]), (headed, prefix, parts[2:]))
    )
    return Verification(*own, *heads, turns=counted)
