"""What each tier still holds of a context when its next turn comes.

Question answered: of the reuse the workload offers, how much is resident, and in which tier?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from kvmodel.analyses.admitted import under_rule
from kvmodel.analyses.capacity import fixed_tokens, hbm_pool, stored_bytes_per_token, tier_tokens
from kvmodel.analyses.timing import prefill_terms
from kvmodel.analyses.traffic import Traffic
from kvmodel.formulas import laws, reuse
from kvmodel.formulas.varying_rates import PhaseRates, phase_rates
from kvmodel.policies.eviction import eviction_rule
from kvmodel.system.case import Case
from kvmodel.workloads.day import levels

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
    """The populations as streams into one cache at their mean rates; `share` of the sessions reach it (one of several
    instances). Pinned prefixes are left out: they never compete."""
    extra = fixed_tokens(case)
    heads: dict[str, reuse.SharedPrefix] = {}
    streams = []
    retention = np.inf if case.policy.retention is None else np.asarray(case.policy.retention, float)
    limit = {"retention" if case.policy.retention_renewed else "lifetime": retention}
    for population in traffic:
        head = None
        if population.prefix is not None and population.prefix_name not in case.policy.pinned:
            head = heads.setdefault(population.prefix_name, _head(population))
        agents = population.sessions.agents
        value, head_value = _worth(case, population)
        streams.append(
            reuse.SessionStream(
                arrival_rate=population.arrivals * share,
                first=laws.Sum((population.first, laws.Constant(extra))),
                step=population.step,
                turns=population.sessions.turns_law,
                gap=population.sessions.gap_law,
                prefix=head,
                agents=None if agents is None else np.asarray(agents, float) * share,
                value=value,
                head_value=head_value,
                **limit,
            )
        )
    return streams


def _worth(case: Case, population: Traffic) -> tuple[Any, Any]:
    """Prefill seconds that a token found saves, of a session's own context and of the head before it; ones where the
    rule does not ask."""
    if case.policy.eviction != "value_aware":
        return 1.0, 1.0
    terms, head, own = prefill_terms(case), population.prefix_tokens, np.maximum(population.context.mean, 1.0)
    return (terms.saved(head + own) - terms.saved(head)) / own, terms.saved(head) / np.maximum(head, 1.0)


def _head(population: Traffic) -> reuse.SharedPrefix:
    """The variants of a shared prefix; groups that may not share have copies of their own."""
    prefix, groups = population.prefix, population.sessions.namespaces
    one = reuse.SharedPrefix.zipf(prefix.tokens, prefix.variants, prefix.popularity.zipf)
    return reuse.SharedPrefix(one.tokens, one.share / groups, one.count * groups)


def pinned_tokens(case: Case, traffic: Sequence[Traffic]) -> dict[str, Any]:
    """Tokens that each pinned prefix takes from every stack it is kept in, all its variants and copies [tokens]."""
    held: dict[str, Any] = {}
    for t in traffic:
        if t.prefix is not None and t.prefix_name in case.policy.pinned:
            copies = np.asarray(t.prefix.variants, float) * t.sessions.namespaces
            held[t.prefix_name] = np.maximum(held.get(t.prefix_name, 0.0), copies * t.prefix_tokens)
    return held


def residency(
    case: Case,
    traffic: Sequence[Traffic],
    tiers: Sequence[str],
    active_tokens: Any,
    known: dict[str, tuple[Any, Any]] | None = None,
) -> Residency:
    """Residency in `tiers` (fast to slow, the GPUs' memory first) while `active_tokens` per instance are in use.

    The GPUs' memory is private to an instance, which sees its share of the sessions (returning turns are routed to
    it); a tier of scope instance likewise; every other tier is one for all instances. The tiers cut one stack: an
    exclusive chain adds capacities, a tier of an inclusive one holds its own. Hits of a tier are what it adds to the
    tiers above it: exactly so under LRU, approximately under fifo and random, whose caches do not hold what smaller
    ones do. Zero tiers give empty shares.
    known: filled with each tier's capacity and hits, and looked up when a tier is asked about with the same capacity.
    """
    stacks = stacks_of(case, tiers, active_tokens)
    private: dict[str, list[Any]] = {t.name: [] for t in traffic}
    prefix: dict[str, list[Any]] = {t.name: [] for t in traffic}
    best = {t.name: (0.0, 0.0) for t in traffic}
    for tier, (_, share, capacity) in zip(tiers, stacks, strict=True):
        found = _remembered(known, tier, capacity, partial(hit_shares, case, traffic, share, capacity))
        admitted = _admitted(case, tier, traffic)
        for t in traffic:
            above = best[t.name]
            # a tier below never holds less of the stack than what is above it already serves
            part = tuple(np.maximum(f - a, 0.0) for f, a in zip(found[t.name], above, strict=True))
            private[t.name].append(part[0] * admitted[t.name])
            prefix[t.name].append(part[1])
            best[t.name] = tuple(np.maximum(f, a) for f, a in zip(found[t.name], above, strict=True))
    return Residency(
        tuple(tiers),
        {k: _stack(v) for k, v in private.items()},
        {k: _stack(v) for k, v in prefix.items()},
        _stack([own for own, *_ in stacks]),
    )


def stacks_of(case: Case, tiers: Sequence[str], active_tokens: Any) -> list[tuple[Any, Any, Any]]:
    """For each tier, fast to slow: tokens one copy of it can hold, share of the sessions that reach it, and tokens of
    the stack it is a cut of: its own, and in an exclusive chain those above it too."""
    instances, stacked, found = case.deployment.instances, 0.0, []
    for tier in tiers:
        tokens, single = _own_tokens(case, tier, active_tokens), _per_instance(case, tier)
        total = tokens * instances if single else tokens
        stacked = stacked + total if case.policy.chain == "exclusive" else total
        found.append((tokens, 1 / instances, stacked / instances) if single else (tokens, 1.0, stacked))
    return found


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
        return tier_tokens(case, tier) / (case.deployment.instances if _per_instance(case, tier) else 1.0)
    pool = np.maximum(hbm_pool(case).nbytes, 0.0) / stored_bytes_per_token(case, tier)
    return np.maximum(pool - active_tokens, 0.0)


def hit_shares(
    case: Case, traffic: Sequence[Traffic], share: Any, capacity: Any, since: Any = np.inf
) -> dict[str, tuple[Any, Any]]:
    """(private, prefix) share found within a stack of `capacity` tokens, by population, when `share` of the sessions
    reach it and it was empty `since` seconds ago.

    Rates that change are worked out phase by phase and averaged over returns, never replaced by their mean. Pinned
    prefixes always hit, as far as they fit, and leave the others what is left of the stack.
    """
    held = pinned_tokens(case, traffic)
    pinned = sum(held.values())
    kept = np.minimum(_ratio(capacity, pinned), 1.0) if held else np.ones(())
    room = np.maximum(capacity - pinned, 0.0)
    streams, touch = streams_of(case, traffic, share), TOUCH[case.policy.touch]
    phases = _phases(traffic, streams, room, max(case.axes, np.ndim(capacity), np.ndim(since)))
    busy = [
        stream if phase is None else replace(stream, arrival_rate=stream.arrival_rate * phase.factor)
        for stream, phase in zip(streams, phases, strict=True)
    ]
    hits = eviction_rule(case.policy.eviction, case.policy.retention_renewed)(busy, room, touch, since)
    some = next((phase for phase in phases if phase is not None), None)
    found = {}
    for i, (t, phase) in enumerate(zip(traffic, phases, strict=True)):
        parts = [
            _ratio(each[i], whole[i])
            for each, whole in ((hits.private, hits.reusable_private), (hits.prefix, hits.reusable_prefix))
        ]
        if some is not None:
            weight = some.time if phase is None else phase.weight
            parts = [(weight * part).sum(axis=0) for part in parts]
        found[t.name] = (parts[0], kept * np.ones_like(parts[1]) if t.prefix_name in held else parts[1])
    return found


def _phases(
    traffic: Sequence[Traffic], streams: Sequence[reuse.SessionStream], room: Any, ndim: int
) -> list[PhaseRates | None]:
    """Rates each stream sees at the phases of its day, in front of `ndim` study axes; None where they are steady."""
    if not any(t.sessions.day for t in traffic):
        return [None] * len(traffic)
    window = np.asarray(reuse.characteristic_time(streams, room))
    window = window.reshape((1,) * (ndim - window.ndim) + window.shape)
    return [
        phase_rates(stream, t.sessions.period, *map(_leading, levels(t.sessions.day)), window)
        if t.sessions.day
        else None
        for t, stream in zip(traffic, streams, strict=True)
    ]


def rate_levels(case: Case) -> tuple[list[Any], list[Any]]:
    """Shares of the time and rates over the mean rate, level by level; one level where no day curve is given."""
    return levels(next((p.day for p in case.sessions.values() if p.day), ()))


def _leading(level: Sequence[Any]) -> np.ndarray:
    return np.stack(np.broadcast_arrays(*level))


def _ratio(part: Any, whole: Any) -> Any:
    whole = np.asarray(whole, float)
    return np.clip(np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), 0.0), 0.0, 1.0)


def _admitted(case: Case, tier: str, traffic: Sequence[Traffic]) -> dict[str, Any]:
    """Share of what the stack would hold that admission lets into a tier that wears; 1 elsewhere."""
    wears = tier in case.storage_tiers and case.tiers[tier].kind == "nvme"
    rules = under_rule(case.policy.admission, traffic)
    return {t.name: rules[t.name].served if wears else np.ones(()) for t in traffic}
