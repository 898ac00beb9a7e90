"""A case against the event simulation of its sessions, tiers and GPUs: the closed forms beside their referee."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from kvmodel.analyses.admitted import at_tier, taken_share
from kvmodel.analyses.answer import Answer
from kvmodel.analyses.capacity import fixed_tokens, granularity
from kvmodel.analyses.reuse import TOUCH, stacks_of, streams_of
from kvmodel.analyses.serving import Load, load_of
from kvmodel.analyses.timing import fetch_terms, prefill_terms
from kvmodel.analyses.traffic import Traffic, traffic_of
from kvmodel.formulas.eviction import value_windows
from kvmodel.formulas.reuse import SessionStream
from kvmodel.simulation.eviction_orders import Clairvoyant, Fifo, Lru, Order, RandomVictim, ValueAware
from kvmodel.simulation.serving import Path, Prefill
from kvmodel.simulation.session_cache import RandomBursts, RateCurve, Rates
from kvmodel.simulation.tier_chain import Admitted, ChainTier
from kvmodel.simulation.verification import Plant, Seen, simulated
from kvmodel.system.case import Case
from kvmodel.workloads.sessions import Sessions

Rule = Callable[[Sequence[SessionStream], float], Callable[[], Order]]


def _by_value(streams: Sequence[SessionStream], capacity: float) -> Callable[[], Order]:
    windows = value_windows(streams, capacity)
    return partial(ValueAware, [float(window) for part in windows for window in part])


# eviction rule -> its simulation in a stack of so many tokens; a rule that is not here is told by name
SIMULATED: dict[str, Rule] = {
    "lru": lambda streams, capacity: Lru,
    "fifo": lambda streams, capacity: Fifo,
    "random": lambda streams, capacity: RandomVictim,
    "value_aware": _by_value,
    "ideal": lambda streams, capacity: Clairvoyant,
}


def verified(case: Case, tiers: Sequence[str], arm: str, turns: int = 200_000, seed: int = 1) -> Iterator[Answer]:
    """Closed form and, with its standard error, simulation of an arm: shares of contexts and shared prefixes found down
    to each tier, resident and timely reuse, time to first token, GPU time. The case's numbers must be single ones.
    """
    if case.policy.eviction not in SIMULATED:
        flag = f"not verified: there is no simulation of the eviction rule {case.policy.eviction}"
        yield Answer("verify.simulated", np.nan, "", "simulation of this arm", arm=arm, flags=(flag,))
        return
    traffic = traffic_of(case, granularity(case))
    load = load_of(case, tiers, traffic)
    plant = plant_of(case, load)
    seen = simulated(plant, turns, seed)
    if case.policy.eviction == "ideal" and tiers:
        flag = (
            "ideal is a bound of all rules: the simulation is the best rule that knows all pauses, and stays below it"
        )
        yield Answer("verify.rule", np.nan, "", "what is simulated", arm=arm, flags=(flag,))
    for told in (*_found(load, seen), *_served(load, seen)):
        yield from (replace(answer, arm=arm) for answer in told)


def _side_by_side(
    closed: float, seen: tuple[float, float], definition: str, unit: str = "", **where: str
) -> list[Answer]:
    parts = zip(("closed_form", "simulated", "standard_error"), (closed, *seen), strict=True)
    return [
        Answer(
            f"verify.{name}",
            float(value),
            unit,
            f"{definition}, {name.replace('_', ' ')}",
            **where,
        )
        for name, value in parts
    ]


def _found(load: Load, seen: Seen) -> Iterator[list[Answer]]:
    """Down to each tier, of every population that has something to find."""
    for i, t in enumerate(load.traffic):
        parts = [("own context", load.residency.private[t.name], seen.private[i])]
        for name, level in zip(t.prefixes, seen.heads, strict=False):
            parts.append((f"shared prefix {name}", load.residency.prefix[t.name][name], level[i]))
        for what, closed, found in parts:
            for tier, share, mean, error in zip(load.tiers, np.cumsum(closed, axis=0), *found, strict=True):
                if np.isfinite(mean):
                    definition = f"share of the {what} found down to this tier"
                    yield _side_by_side(float(share), (mean, error), definition, population=t.name, tier=tier)


def _served(load: Load, seen: Seen) -> Iterator[list[Answer]]:
    if load.tiers:
        for what, closed, found in (
            ("found in some tier", load.resident, seen.resident),
            ("found and used in time", load.timely, seen.timely),
        ):
            share = float(np.sum(sum(closed.values()), axis=0) / load.prompt_rate)
            yield _side_by_side(share, found, f"share of prompt tokens {what}")
    utilisation = float(load.prefill_utilisation)
    yield _side_by_side(utilisation, seen.utilisation, "share of an instance's time spent on prefill")
    overloaded = utilisation >= 1.0 or seen.utilisation[0] >= 1.0  # the longer the run, the longer the wait
    waiting, in_time = ((np.inf, np.nan), (0.0, np.nan)) if overloaded else (seen.first_token, seen.in_time)
    yield _side_by_side(float(load.ttft_mean), waiting, "mean time to first token", "s")
    if np.isfinite(load.ttft_exceedance):
        closed = 1.0 - float(load.ttft_exceedance)
        yield _side_by_side(closed, in_time, "share of turns within the TTFT limit")


def plant_of(case: Case, load: Load) -> Plant:
    """The case as the simulation takes it: the room that active contexts leave in the tiers, pinned prefixes among the
    streams."""
    tiers, traffic = load.tiers, load.traffic
    extra = float(fixed_tokens(case))
    free = case.changed(policy=case.policy.model_copy(update={"pinned": ()}))
    streams = [
        replace(stream, first=t.sessions.first_tokens, step=t.sessions.new_tokens, retention=_limit(stream))
        for stream, t in zip(streams_of(free, traffic), traffic, strict=True)
    ]
    heads = [pair for s, t in zip(streams, traffic, strict=True) for pair in zip(t.prefixes, s.heads, strict=True)]
    pinned = dict.fromkeys(head for name, head in heads if name in case.policy.pinned)
    prefill = prefill_terms(case)
    return Plant(
        streams=streams,
        outputs=[t.sessions.output_tokens for t in traffic],
        extra=extra,
        granularity=float(granularity(case)),
        rates=_rates([t.sessions for t in traffic]),
        tiers=[
            ChainTier(
                float(own),
                not _one_each(case, tier),
                _admitted(case, tier, traffic),
                SIMULATED[case.policy.eviction](streams_of(free, traffic, share), float(stack)),
            )
            for tier, (own, share, stack) in zip(tiers, stacks_of(case, tiers, load.active_tokens), strict=True)
        ],
        paths=[_path(case, tier) for tier in tiers],
        touch=TOUCH[case.policy.touch],
        chain=case.policy.chain,
        renewed=case.policy.retention_renewed,
        instances=int(case.deployment.instances),
        pinned=tuple(pinned),
        prefill=Prefill(float(prefill.constant), float(prefill.linear), float(prefill.attention)),
        limit=np.inf if case.slo is None else float(case.slo.ttft.limit),
    )


def _limit(stream: SessionStream) -> float:
    """Retention, or the lifetime that stands in its place where hits do not renew it [s]."""
    return min(float(stream.retention), float(stream.lifetime))


def _one_each(case: Case, tier: str) -> bool:
    return tier not in case.storage_tiers or case.tiers[tier].scope == "instance"


def _admitted(case: Case, tier: str, traffic: Sequence[Traffic]) -> Admitted:
    """The study's rule where a tier wears. What its write bandwidth does not take is left out context by context."""
    if tier not in case.storage_tiers:
        return Admitted()
    taken = float(taken_share(case, tier, traffic, at_tier(case, tier, traffic)))
    if case.tiers[tier].kind != "nvme":
        return Admitted(probability=taken)
    rule = case.policy.admission
    uses = max(int(rule.uses), 2 if rule.second_use else 1)
    return Admitted(uses, float(rule.minimum_tokens), float(rule.probability) * taken, blocks=True)


def _path(case: Case, tier: str) -> Path:
    """Seconds of a fetch from the tier. Tiers without a path of their own share the GPUs' host link."""
    if tier not in case.storage_tiers:
        return Path()
    terms = fetch_terms(case, tier)
    devices = terms.device_bandwidth / (case.deployment.instances if _one_each(case, tier) else 1.0)
    busy = [(terms.fixed_bytes / rate, terms.bytes_per_token / rate) for rate in (devices, terms.link_bandwidth)]
    numbers = (terms.fixed, terms.per_token, terms.hidden, *busy[0], *busy[1])
    link = tier if case.tiers[tier].path else "host link"
    return Path(*(float(number) for number in numbers), shared=not _one_each(case, tier), link=link)


def _rates(populations: Sequence[Sessions]) -> list[Rates | None]:
    """The rates each population follows; None where they are steady. Populations with bursts have them together."""
    some = next((s.bursts for s in populations if s.bursts is not None), None)
    bursts = None if some is None else RandomBursts(float(some.share), float(some.factor), float(some.mean_length))
    return [_curve(s) if s.day else bursts if s.bursts is not None else None for s in populations]


def _curve(sessions: Sessions) -> RateCurve:
    shares, factors = ([float(number) for number in part] for part in sessions.rate_levels)
    return RateCurve(float(sessions.period), shares, factors)
