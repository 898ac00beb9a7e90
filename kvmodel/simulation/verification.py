"""Sessions, tiers and GPUs simulated together, as the means that the closed forms state, with their standard errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvmodel.formulas.laws import Law
from kvmodel.formulas.reuse import SessionStream, SharedPrefix, Touch
from kvmodel.simulation.serving import Path, Prefill, reusable_parts, sampled_prompts, served_turns
from kvmodel.simulation.session_cache import Rates, ratio_of_sums
from kvmodel.simulation.tier_chain import Chain, ChainTier, found_in_chain, turns_of

__all__ = ["Plant", "Seen", "simulated"]

Array = NDArray[Any]
Pair = tuple[float, float]

SPANS = 10.0  # sessions that follow each other within the simulated time, at least
WARM_UP, COOL_DOWN = 0.2, 0.05  # shares of the time that are not counted: a cold cache, foresight that ends


@dataclass(frozen=True)
class Plant:
    """What is simulated: numbers, not arrays.

    streams      sessions, `first` and `step` in prompt tokens; heads of pinned ones too
    outputs      law of the tokens each turn of a stream generates
    extra        tokens of room that each session takes beside its text
    granularity  tokens between two points at which a cached prefix can end
    rates        how each stream's arrivals change; None: steady
    tiers, paths fast to slow; none: no reuse at all
    limit        longest time to first token that is in time, fetching included [s]
    """

    streams: Sequence[SessionStream]
    outputs: Sequence[Law]
    extra: float
    granularity: float
    rates: Sequence[Rates | None]
    tiers: Sequence[ChainTier]
    paths: Sequence[Path]
    prefill: Prefill
    touch: Touch = "reverse"
    chain: Chain = "inclusive"
    renewed: bool = True
    instances: int = 1
    pinned: tuple[SharedPrefix, ...] = ()
    limit: float = np.inf


@dataclass(frozen=True)
class Seen:
    """Means and their standard errors, as pairs.

    private           by stream: share of the context found down to each tier, (tiers,); nan where none returns
    heads             by level and stream: share of its shared head found likewise; nan where it has none
    resident, timely  shares of the prompt tokens
    first_token       mean [s]
    in_time           share of the turns with a first token within the limit
    utilisation       share of an instance's time spent on prefill
    turns             counted
    """

    private: list[tuple[Array, Array]]
    heads: list[list[tuple[Array, Array]]]
    resident: Pair
    timely: Pair
    first_token: Pair
    in_time: Pair
    utilisation: Pair
    turns: int


def simulated(plant: Plant, turns: int = 200_000, seed: int = 1) -> Seen:
    """Simulate about `turns` turns, more where sessions last so long that fewer than ten would follow each other,
    or where rates change, but never more than three times as many. 20 to 40 microseconds a turn.
    """
    streams = plant.streams
    rate = sum(float(s.arrival_rate) * float(s.turns.mean) for s in streams)
    longest = max(float(s.turns.mean) * float(s.gap.quantile(0.9)) for s in streams)
    changes = max((one.span for one in plant.rates if one is not None), default=0.0)
    horizon = min(max(turns / rate, SPANS * longest, changes), 3.0 * turns / rate)
    rng = np.random.default_rng(seed)
    events, prompt = sampled_prompts(streams, plant.outputs, plant.extra, horizon, rng, plant.rates)
    all_turns = turns_of(streams, events, plant.pinned, seed)
    found = found_in_chain(
        streams,
        all_turns,
        plant.tiers,
        plant.touch,
        plant.chain,
        plant.instances,
        plant.pinned,
        plant.renewed,
    )
    parts = reusable_parts(found, all_turns.private, plant.granularity, plant.extra)
    place = all_turns.instance(plant.instances)
    served = served_turns(all_turns.time, all_turns.key, place, prompt, parts, plant.prefill, plant.paths, plant.limit)
    shown = (all_turns.time >= WARM_UP * horizon) & (all_turns.time < (1.0 - COOL_DOWN) * horizon)
    each = np.ones(int(shown.sum()))
    between = np.diff(all_turns.time, prepend=0.0)[shown] * plant.instances

    def ratio(part: Array, whole: Array) -> Pair:
        return tuple(float(value) for value in ratio_of_sums(part[shown], whole))

    def down_to_each_tier(parts: Array, whole: Array) -> list[tuple[Array, Array]]:
        shares = []
        for i in range(len(streams)):
            mine = shown & (all_turns.stream == i)
            pair = ratio_of_sums(np.cumsum(parts, axis=0)[:, mine], whole[mine])
            shares.append(tuple(part if np.any(whole[mine]) else np.full_like(part, np.nan) for part in pair))
        return shares

    return Seen(
        private=down_to_each_tier(found.private, all_turns.private),
        heads=[down_to_each_tier(*level) for level in zip(found.heads, all_turns.heads, strict=True)],
        resident=ratio(parts.sum(axis=(0, 1)), prompt[shown]),
        timely=ratio(served.timely.sum(axis=0), prompt[shown]),
        first_token=ratio(served.first_token, each),
        in_time=ratio((served.first_token <= plant.limit).astype(float), each),
        utilisation=ratio(served.work, between),
        turns=int(shown.sum()),
    )
