"""A closed form of reuse against the event simulation of the same streams, with the simulation's standard error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.reuse import SessionStream, Touch
from kvmodel.simulation.session_cache import RateCurve, hit_ratio, simulate_sessions

__all__ = ["Verification", "verification"]

Array = NDArray[Any]
SPANS = 30.0
"""Sessions that follow each other within the simulated time, at least."""


_FIELDS = ("private", "private_error", "prefix", "prefix_error")


class Verification(NamedTuple):
    """Share of the reusable tokens found, shape (streams, capacities), of shared heads (levels, streams, capacities);
    nan where a stream reuses nothing.

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
        own, heads = self.private - self.simulated_private, self.prefix - self.simulated_prefix
        return float(np.nanmax(np.abs([own, *heads]), initial=0.0))


def verification(
    streams: Sequence[SessionStream],
    capacity: ArrayLike,
    private: ArrayLike,
    prefix: ArrayLike,
    touch: Touch = "reverse",
    turns: int = 200_000,
    seed: int = 1,
    rates: RateCurve | None = None,
) -> Verification:
    """Simulate the streams (scalar parameters) once and set hits at all capacities, shape (n,), beside a closed form.

    private, prefix: shares found by the closed form, (streams, n) and (levels, streams, n). About `turns` turns are
    simulated, more where sessions last so long that fewer than thirty would follow each other, but never more than ten
    times as many. 10 microseconds a turn.
    """
    rate = sum(float(s.arrival_rate) * float(s.turns.mean) for s in streams)
    longest = max(float(s.turns.mean) * float(s.gap.quantile(0.9)) for s in streams)
    horizon = min(max(turns / rate, SPANS * longest), 10.0 * turns / rate)
    log = simulate_sessions(streams, horizon, seed, touch, rates=rates)
    numbers, levels = range(len(streams)), range(max(len(s.heads) for s in streams))
    own = [hit_ratio(log, capacity, stream=i) for i in numbers]
    heads = [[hit_ratio(log, capacity, stream=i, level=k) for i in numbers] for k in levels]
    shape = (len(levels), len(streams), np.size(capacity))
    some_own = [[float(s.paused_moments[1]) > 0.0] for s in streams]
    some_heads = [[[k < len(s.heads) and float(s.heads[k].tokens) > 0.0] for s in streams] for k in levels]
    parts = [private, *([getattr(one, name) for one in own] for name in _FIELDS[:2])]
    head_parts = [prefix, *([[getattr(one, name) for one in row] for row in heads] for name in _FIELDS[2:])]
    return Verification(
        *(np.where(some_own, part, np.nan) for part in parts),
        *(np.where(np.reshape(some_heads, (*shape[:2], 1)), np.reshape(part, shape), np.nan) for part in head_parts),
        turns=len(log.stream),
    )
