"""One cache of a given capacity under any eviction rule: a chain of one tier (`tier_chain`).

`session_cache` gives all capacities at once, but only for LRU: the two agree to rounding. The simulator shares only
the sampling of the laws with the closed forms it checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.reuse import SessionStream, SharedPrefix, Touch
from kvmodel.simulation.eviction_orders import Lru, Order
from kvmodel.simulation.session_cache import HitRatio, Rates, ratio_of_sums, sampled_events
from kvmodel.simulation.tier_chain import Admitted, ChainTier, found_in_chain, turns_of

__all__ = ["FoundLog", "found_ratio", "replayed", "simulate_policy"]

Array = NDArray[Any]


@dataclass(frozen=True)
class FoundLog:
    """What every turn after the warm-up found, in time order, [tokens].

    stream          index of the session's stream, shape (turns,)
    private         of the session's own context before the turn; zero at the first turn, (turns,)
    heads           of its shared heads, first to last, zero where it has none, (levels, turns)
    found_private   usable, (capacities, turns)
    found_heads     likewise, (capacities, levels, turns)
    stranded        held, but of no use because a head before it was lost, (capacities, turns)
    """

    stream: Array
    private: Array
    heads: Array
    found_private: Array
    found_heads: Array
    stranded: Array

    @property
    def prefix(self) -> Array:
        """All heads of each turn."""
        return self.heads.sum(axis=0)

    @property
    def found_prefix(self) -> Array:
        """What is found of them, (capacities, turns)."""
        return self.found_heads.sum(axis=1)


def simulate_policy(
    streams: Sequence[SessionStream],
    capacity: ArrayLike,
    horizon: float,
    seed: int,
    order: Callable[[], Order] = Lru,
    touch: Touch = "reverse",
    warm_up: float = 0.2,
    rates: Rates | Sequence[Rates | None] | None = None,
    **options: Any,
) -> FoundLog:
    """Run the streams for `horizon` seconds through a cache of each capacity and log what every turn after the first
    `warm_up` share finds. The same seed gives the same turns under every rule and capacity.

    order: makes a rule, once per capacity: `Fifo`, `partial(ValueAware, windows)`. options: those of `replayed`. The
    run goes on for `warm_up` of the horizon after the log ends, so that foresight does not end with it.
    """
    events = sampled_events(streams, horizon * (1.0 + warm_up), np.random.default_rng(seed), rates)
    log = (warm_up * horizon, horizon)
    return replayed(streams, events, capacity, order, touch, log, seed=seed, **options)


def replayed(
    streams: Sequence[SessionStream],
    events: Array,
    capacity: ArrayLike,
    order: Callable[[], Order] = Lru,
    touch: Touch = "reverse",
    log: tuple[float, float] = (0.0, np.inf),
    *,
    renewed: bool = True,
    admitted: Admitted | None = None,
    pinned: Sequence[SharedPrefix] = (),
    seed: int = 1,
) -> FoundLog:
    """Push the turns (`session_cache.sampled_events`) through a cache of each capacity.

    log      the span that is logged [s].
    renewed  the streams' retention runs from the last use, or else from the time the entry came in: it then stays
             with what later turns append, and starts anew when a turn finds nothing of use.
    pinned   heads of which every variant is always there, as far as they fit; the others share what they leave.
    seed     of the coins of admission and deletion.
    """
    turns = turns_of(streams, events, pinned, seed)
    shown = (turns.time >= log[0]) & (turns.time < log[1])
    found = [
        found_in_chain(
            streams, turns, [ChainTier(room, admitted=admitted or Admitted(), order=order)], touch, pinned=pinned,
            renewed=renewed,
        )
        for room in np.atleast_1d(np.asarray(capacity, float)).tolist()
    ]  # fmt: skip
    return FoundLog(
        turns.stream[shown],
        turns.private[shown],
        turns.heads[:, shown],
        np.stack([one.private[0, shown] for one in found]),
        np.stack([one.heads[:, 0, shown] for one in found]),
        np.stack([one.stranded[shown] for one in found]),
    )


def found_ratio(log: FoundLog, stream: int | None = None, batches: int = 20, level: int | None = None) -> HitRatio:
    """Share of the reusable tokens found at each capacity, of one stream or of all, with its standard error. Of all
    shared heads together, or of those of one level (0: at the beginning of the prompt)."""
    mine = slice(None) if stream is None else log.stream == stream
    levels = slice(None) if level is None else slice(level, level + 1)
    found, heads = log.found_heads[:, levels].sum(axis=1), log.heads[levels].sum(axis=0)
    return HitRatio(
        *ratio_of_sums(log.found_private[:, mine], log.private[mine], batches),
        *ratio_of_sums(found[:, mine], heads[mine], batches),
    )
