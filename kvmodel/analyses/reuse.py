"""What each tier still holds of a context when its next turn comes.

Question answered: of the reuse the workload offers, how much is resident, and in which tier?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.analyses.capacity import fixed_tokens, hbm_pool, stored_bytes_per_token, tier_tokens
from kvmodel.analyses.traffic import Traffic
from kvmodel.formulas import laws, reuse
from kvmodel.system.case import Case

TOUCH = {"tail_first": "reverse", "head_first": "forward"}  # which end is evicted first -> order of touching


@dataclass(frozen=True)
class Residency:
    """Share of each population's reusable tokens found in each tier, axis 0 the tiers in use. Parts, not sums."""

    tiers: tuple[str, ...]
    private: dict[str, Any]
    """By population: share of the private context found in each tier."""
    prefix: dict[str, Any]
    """By population: share of the shared prefix found in each tier."""
    capacity_tokens: Any
    """Tokens each tier can hold for paused KV, axis 0 the tiers [tokens]."""


def streams_of(case: Case, traffic: Sequence[Traffic], share: Any = 1.0) -> list[reuse.SessionStream]:
    """The populations as streams into one cache; `share` of the sessions reach it (one of several instances)."""
    extra = fixed_tokens(case)
    heads: dict[str, reuse.SharedPrefix] = {}
    streams = []
    retention = np.inf if case.policy.retention is None else np.asarray(case.policy.retention, float)
    for population in traffic:
        head = None
        if population.prefix is not None:
            head = heads.setdefault(population.prefix_name, _head(population))
        streams.append(reuse.SessionStream(
            arrival_rate=population.arrivals * share,
            first=laws.Sum((population.first, laws.Constant(extra))),
            step=population.step,
            turns=population.sessions.turns_law,
            gap=population.sessions.gap_law,
            retention=retention,
            prefix=head,
        ))
    return streams


def _head(population: Traffic) -> reuse.SharedPrefix:
    """The variants of a shared prefix; tenants that may not share have copies of their own."""
    prefix, tenants = population.prefix, np.asarray(population.sessions.tenants, float)
    one = reuse.SharedPrefix.zipf(prefix.tokens, prefix.variants, prefix.popularity.zipf)
    return reuse.SharedPrefix(one.tokens, one.share / tenants, one.count * tenants)


def residency(case: Case, traffic: Sequence[Traffic], tiers: Sequence[str], active_tokens: Any,
              known: dict[str, tuple[Any, Any]] | None = None) -> Residency:
    """Residency in `tiers` (fast to slow, the GPUs' memory first) while `active_tokens` per instance are in use.

    The GPUs' memory is private to an instance, which sees its share of the sessions (returning turns are routed to
    it); a tier of scope instance likewise; every other tier is one for all instances. The tiers cut one LRU stack:
    an exclusive chain adds capacities, an inclusive one counts the largest so far. Hits of a tier are what it adds
    to the tiers above it. Zero tiers give empty shares.
    known: filled with each tier's capacity and hits, and looked up when a tier is asked about with the same capacity.
    """
    instances = case.deployment.instances
    own = [_own_tokens(case, tier, active_tokens) for tier in tiers]
    private: dict[str, list[Any]] = {t.name: [] for t in traffic}
    prefix: dict[str, list[Any]] = {t.name: [] for t in traffic}
    best = {t.name: (0.0, 0.0) for t in traffic}
    stacked: Any = 0.0
    for tier, tokens in zip(tiers, own, strict=True):
        single = _per_instance(case, tier)
        total = tokens * instances if single else tokens
        stacked = stacked + total if case.policy.chain == "exclusive" else np.maximum(stacked, total)
        share, capacity = (1 / instances, stacked / instances) if single else (1.0, stacked)
        found = _remembered(known, tier, capacity, lambda: _hit_shares(case, traffic, share, capacity))  # noqa: B023
        admitted = _admitted(case, tier, traffic)
        for t in traffic:
            above = best[t.name]
            # a tier below never holds less of the stack than what is above it already serves
            part = tuple(np.maximum(f - a, 0.0) for f, a in zip(found[t.name], above, strict=True))
            private[t.name].append(part[0] * admitted[t.name])
            prefix[t.name].append(part[1])
            best[t.name] = tuple(np.maximum(f, a) for f, a in zip(found[t.name], above, strict=True))
    return Residency(tuple(tiers), {k: _stack(v) for k, v in private.items()},
                     {k: _stack(v) for k, v in prefix.items()}, _stack(own))


def _remembered(known: dict[str, tuple[Any, Any]] | None, tier: str, capacity: Any, work: Callable[[], Any]) -> Any:
    if known is None:
        return work()
    if tier not in known or not np.array_equal(known[tier][0], capacity):
        known[tier] = (capacity, work())
    return known[tier][1]


def _stack(parts: list[Any]) -> Any:
    return np.stack(np.broadcast_arrays(*parts)) if parts else np.zeros((0,))


def _per_instance(case: Case, tier: str) -> bool:
    return tier not in case.storage_tiers or case.tiers[tier].scope == "instance"


def _own_tokens(case: Case, tier: str, active_tokens: Any) -> Any:
    """Tokens one copy of the tier can hold beside what is in active use [tokens]."""
    if tier in case.storage_tiers:
        return tier_tokens(case, tier)
    pool = np.maximum(hbm_pool(case).nbytes, 0.0) / stored_bytes_per_token(case, tier)
    return np.maximum(pool - active_tokens, 0.0)


def _hit_shares(case: Case, traffic: Sequence[Traffic], share: Any, capacity: Any) -> dict[str, tuple[Any, Any]]:
    """(private, prefix) share found within a stack of `capacity` tokens, by population."""
    streams = streams_of(case, traffic, share)
    hits = reuse.hit_tokens(streams, capacity, TOUCH[case.policy.touch])
    return {t.name: (_ratio(hits.private[i], hits.reusable_private[i]), _ratio(hits.prefix[i], hits.reusable_prefix[i]))
            for i, t in enumerate(traffic)}


def _ratio(part: Any, whole: Any) -> Any:
    whole = np.asarray(whole, float)
    return np.clip(np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), 0.0), 0.0, 1.0)


def _admitted(case: Case, tier: str, traffic: Sequence[Traffic]) -> dict[str, Any]:
    """Share of what the stack would hold that admission lets into a tier that wears; 1 elsewhere."""
    rule = case.policy.admission
    wears = tier in case.storage_tiers and case.tiers[tier].kind == "nvme"
    return {t.name: np.asarray(rule.probability, float) * (t.reused_again if rule.second_use else 1.0)
            if wears else np.ones(()) for t in traffic}
