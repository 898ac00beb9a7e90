"""What each tier still holds of a context when its next turn comes.

Question answered: of the reuse the workload offers, how much is resident, and in which tier?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from kvmodel.analyses.admitted import Admitted, at_tier, taken_share
from kvmodel.analyses.capacity import fixed_tokens, hbm_pool, stored_bytes_per_token, tier_tokens
from kvmodel.analyses.timing import prefill_terms
from kvmodel.analyses.traffic import Traffic
from kvmodel.formulas import laws, reuse
from kvmodel.formulas.varying_rates import RatePaths, burst_rates, hit_tokens_at_one_window, level_rates
from kvmodel.policies.eviction import eviction_rule
from kvmodel.system.case import Case
from kvmodel.workloads.sessions import Sessions

FIRST_GROUPS, NESTED_GROUPS = 4, 2
"""Groups of the less popular variants of a shared prefix at the head of the prompt, and under another one."""
TOUCH = {"tail_first": "reverse", "head_first": "forward"}  # which end is evicted first -> order of touching


@dataclass(frozen=True)
class Residency:
    """Share of each population's reusable tokens found in each tier, axis 0 the tiers in use. Parts, not sums."""

    tiers: tuple[str, ...]
    private: dict[str, Any]
    """By population: share of the private context found in each tier."""
    prefix: dict[str, dict[str, Any]]
    """By population, and by name of its shared prefixes, first to last: share of it found in each tier."""
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
        head = _last_head(population, case.policy.pinned, heads)
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
                deleted=population.sessions.deleted,
                value=value,
                head_value=head_value,
                **limit,
            )
        )
    return streams


def _last_head(
    population: Traffic, pinned: Sequence[str], heads: dict[str, reuse.SharedPrefix]
) -> reuse.SharedPrefix | None:
    """The last of a population's shared prefixes behind the others, each taken from `heads` where it is there already.

    Groups that may not share have copies of their own of the first, and so of all behind it. Of a pinned prefix that
    others come after only the variants matter: it takes no room here.
    """
    last, groups = None, population.sessions.namespaces
    if not set(population.prefixes) - set(pinned):
        return None
    for name, prefix in population.prefixes.items():
        if name not in heads:
            tail, copies = (FIRST_GROUPS, groups) if last is None else (NESTED_GROUPS, 1.0)
            one = reuse.SharedPrefix.zipf(prefix.tokens, prefix.variants, prefix.popularity.zipf, tail)
            tokens = 0.0 if name in pinned else one.tokens
            heads[name] = reuse.SharedPrefix(tokens, one.share / copies, one.count * copies, under=last)
        last = heads[name]
    return last


def _worth(case: Case, population: Traffic) -> tuple[Any, Any]:
    """Prefill seconds that a token found saves, of a session's own context and of the head before it; ones where the
    rule does not ask."""
    if case.policy.eviction != "value_aware":
        return 1.0, 1.0
    terms, head, own = prefill_terms(case), population.prefix_tokens, np.maximum(population.context.mean, 1.0)
    return (terms.saved(head + own) - terms.saved(head)) / own, terms.saved(head) / np.maximum(head, 1.0)


def pinned_tokens(case: Case, traffic: Sequence[Traffic]) -> dict[str, Any]:
    """Tokens that each pinned prefix takes from every stack it is kept in, all its variants and copies [tokens]."""
    held: dict[str, Any] = {}
    for t in traffic:
        for name, prefix in t.prefixes.items():
            if name in case.policy.pinned:
                copies = case.texts(name) * t.sessions.namespaces
                held[name] = np.maximum(held.get(name, 0.0), copies * np.asarray(prefix.tokens, float))
    return held


def residency(
    case: Case,
    traffic: Sequence[Traffic],
    tiers: Sequence[str],
    active_tokens: Any,
    known: dict[str, tuple[Any, Any]] | None = None,
    admitted: Mapping[str, Admitted] | None = None,
) -> Residency:
    """Residency in `tiers` (fast to slow, the GPUs' memory first) while `active_tokens` per instance are in use.

    The GPUs' memory is private to an instance, which sees its share of the sessions (returning turns are routed to
    it); a tier of scope instance likewise; every other tier is one for all instances. The tiers cut one stack: an
    exclusive chain adds capacities, a tier of an inclusive one holds its own. Hits of a tier are what it adds to the
    tiers above it: exactly so under LRU, approximately under fifo and random, whose caches do not hold what smaller
    ones do. Zero tiers give empty shares.
    known: filled with each tier's capacity and hits, and looked up when a tier is asked about with the same capacity.
    admitted: what is let into tiers that wear, by population; the case's own rule when absent.
    """
    stacks = stacks_of(case, tiers, active_tokens)
    private: dict[str, list[Any]] = {t.name: [] for t in traffic}
    prefix: dict[str, dict[str, list[Any]]] = {t.name: {name: [] for name in t.prefixes} for t in traffic}
    best = {t.name: (0.0,) * (1 + len(t.prefixes)) for t in traffic}
    for tier, (_, share, capacity) in zip(tiers, stacks, strict=True):
        found = _remembered(known, tier, capacity, partial(hit_shares, case, traffic, share, capacity))
        let_in = _let_in(case, tier, traffic, admitted)
        for t in traffic:
            above = best[t.name]
            # a tier below never holds less of the stack than what is above it already serves
            own, *heads = (np.maximum(f - a, 0.0) for f, a in zip(found[t.name], above, strict=True))
            private[t.name].append(own * let_in[t.name])
            for name, part in zip(t.prefixes, heads, strict=True):
                prefix[t.name][name].append(part)
            best[t.name] = tuple(np.maximum(f, a) for f, a in zip(found[t.name], above, strict=True))
    return Residency(
        tuple(tiers),
        {k: _stack(v, case.axes) for k, v in private.items()},
        {k: {name: _stack(parts, case.axes) for name, parts in v.items()} for k, v in prefix.items()},
        _stack([own for own, *_ in stacks], case.axes),
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


def _stack(parts: list[Any], ndim: int) -> Any:
    """Tiers in front of `ndim` study axes, as many as there are even where nothing varies."""
    return np.stack(np.broadcast_arrays(*parts, np.zeros((1,) * ndim))[:-1]) if parts else np.zeros((0,))


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
) -> dict[str, tuple[Any, ...]]:
    """Share found within a stack of `capacity` tokens, by population, of its own context and of each of its shared
    prefixes, first to last, when `share` of the sessions reach it and it was empty `since` seconds ago.

    Rates that change are averaged over what the cache sees of them, never replaced by their mean. Pinned
    prefixes always hit, as far as they fit, and leave the others what is left of the stack.
    """
    held = pinned_tokens(case, traffic)
    # an exclusive chain that serves all instances goes on below their memories, each with its own copy
    pinned = sum(held.values()) * (case.deployment.instances * share if case.policy.chain == "exclusive" else 1.0)
    kept = np.minimum(_ratio(capacity, pinned), 1.0) if held else np.ones(())
    room = np.maximum(capacity - pinned, 0.0)
    streams, touch = streams_of(case, traffic, share), TOUCH[case.policy.touch]
    axes = max(case.axes, np.ndim(capacity), np.ndim(since))
    room = np.reshape(room, (1,) * (axes - np.ndim(room)) + np.shape(room))
    streams = [replace(s, rates=rate_paths(t.sessions, s, room)) for t, s in zip(traffic, streams, strict=True)]
    rule = eviction_rule(case.policy.eviction, case.policy.retention_renewed)
    if rule is not reuse.hit_tokens:
        rule = partial(hit_tokens_at_one_window, rule)
    hits = rule(streams, room, touch, since)
    found = {}
    for i, t in enumerate(traffic):
        own = _ratio(hits.private[i], hits.reusable_private[i])
        heads = [
            kept * np.ones_like(own) if name in held else _ratio(hits.heads[level, i], hits.reusable_heads[level, i])
            for level, name in enumerate(t.prefixes)
        ]
        found[t.name] = (own, *heads)
    return found


def rate_paths(sessions: Sessions, stream: reuse.SessionStream, room: Any) -> RatePaths | None:
    """What the stream sees of the changes of its rate in a cache of `room` tokens; None where it is steady."""
    if sessions.bursts is not None:
        return burst_rates(stream, sessions.bursts.share, sessions.bursts.factor, sessions.bursts.mean_length, room)
    if sessions.day:
        return level_rates(stream, sessions.period, *map(_leading, sessions.rate_levels), room)
    return None


def rate_levels(case: Case) -> tuple[list[Any], list[Any]]:
    """Shares of the time and rates over the mean rate, level by level; one level where all rates are steady."""
    return next((p for p in case.sessions.values() if p.varies), next(iter(case.sessions.values()))).rate_levels


def _leading(level: Sequence[Any]) -> np.ndarray:
    return np.stack(np.broadcast_arrays(*level))


def _ratio(part: Any, whole: Any) -> Any:
    whole = np.asarray(whole, float)
    return np.clip(np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), 0.0), 0.0, 1.0)


def _let_in(
    case: Case, tier: str, traffic: Sequence[Traffic], admitted: Mapping[str, Admitted] | None
) -> dict[str, Any]:
    """Share of what the stack would hold that gets into a tier: past admission where it wears, and past its writes."""
    if tier not in case.storage_tiers:
        return {t.name: np.ones(()) for t in traffic}
    wears = case.tiers[tier].kind == "nvme"
    rules = admitted if wears and admitted is not None else at_tier(case, tier, traffic)
    taken = taken_share(case, tier, traffic, rules)
    return {t.name: rules[t.name].served * taken for t in traffic}
