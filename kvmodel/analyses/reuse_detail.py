"""What stands behind a reuse figure: its doubts, its other definitions, what splits, pins and restarts cost.

Questions answered: may the closed form be trusted here? How large is the hit ratio by somebody else's definition? What
is left of a paused session after t, how long does a cold cache take to warm, what does pinning displace, what would
deleting finished sessions win, and what does it cost that adapters, versions or tenants may not share?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kvmodel.analyses.admitted import at_tier, taken_share
from kvmodel.analyses.answer import Answer, Curve
from kvmodel.analyses.capacity import granularity
from kvmodel.analyses.outcomes import Outcomes, outcomes_of, turn_classes
from kvmodel.analyses.reuse import (
    TOUCH,
    Residency,
    hit_shares,
    pinned_tokens,
    residency,
    stacks_of,
    streams_of,
)
from kvmodel.analyses.serving import Load
from kvmodel.analyses.traffic import Traffic, traffic_of
from kvmodel.formulas import reuse
from kvmodel.formulas.eviction import value_windows, windowed
from kvmodel.policies.eviction import EVICTIONS
from kvmodel.system.case import Case
from kvmodel.units import DAY

PAUSES = np.geomspace(1.0, 7 * DAY, 41)  # [s]
SINCE = np.geomspace(1.0, 30 * DAY, 49)  # [s]
WARM = 0.9
"""Share of the steady hits from which on a cache is called warm."""
FEWEST_AGENTS = 3
ROUNDING = 1e-6
"""Shares below it are differences of single precision."""
CONTEXTS = (2.0, 6.0, 20.0, np.inf)
RULE_ERRORS = {
    "fifo": ((0.06, 0.033, 0.048, 0.011), (0.16, 0.085, 0.051, 0.036), (0.16, 0.094, 0.09, 0.11)),
    "random": ((0.057, 0.055, 0.041, 0.011), (0.067, 0.06, 0.084, 0.085), (0.1, 0.12, 0.12, 0.085)),
    "value_aware": ((0.013, 0.013, 0.02, 0.004), (0.33, 0.17, 0.02, 0.014), (0.33, 0.17, 0.046, 0.031)),
}
"""Largest difference from simulation while fewer contexts are held than CONTEXTS: one kind of session, one with a
shared prefix, several kinds (docs/reuse.md)."""
LIFETIME_ERROR = 0.07
CHAIN_ERROR = 0.05


def reuse_flags(case: Case, load: Load) -> tuple[str, ...]:
    """Reasons to doubt the resident share of an arm, each with the error to expect; none where it is exact to 0.004."""
    if not load.tiers:
        return ()
    return (*_rule_flags(case, load), *_shape_flags(case, load), *_rate_flags(load))


def _rule_flags(case: Case, load: Load) -> Iterator[str]:
    """What the rule of eviction costs in certainty, with the contexts held where the error is largest."""
    policy = case.policy
    if policy.eviction == "ideal":
        yield "ideal eviction: an upper bound that knows every pause beforehand, not a rule that can be run"
    if not policy.retention_renewed:
        yield f"retention not renewed by hits: up to {LIFETIME_ERROR} off where capacity limits the stay as well"
    if policy.eviction in RULE_ERRORS:
        shared, several = any(t.prefixes for t in load.traffic), len(load.traffic) > 1
        errors = RULE_ERRORS[policy.eviction][2 if several else int(shared)]
        worst = []
        for tier, (_, share, capacity) in zip(load.tiers, stacks_of(case, load.tiers, load.active_tokens), strict=True):
            held = reuse.contexts_held(streams_of(case, load.traffic, share), capacity)
            fewest = float(np.min(np.where(np.asarray(capacity) > 0.0, held, np.inf)))
            error = errors[int(np.searchsorted(CONTEXTS[:-1], fewest, side="right"))]
            worst.append((error if np.isfinite(fewest) else 0.0, tier, fewest))  # no room, no doubt
        error, tier, fewest = max(worst)
        if error > reuse.STATED_ERROR:
            kind = "several kinds of session" if several else "sessions on a shared prefix" if shared else "one kind"
            yield f"{policy.eviction} eviction: {tier} holds {fewest:.3g} contexts of {kind}: up to {error} off"
    if not EVICTIONS[policy.eviction].stack and len(load.tiers) > 1:
        yield (
            f"{policy.eviction} eviction in {len(load.tiers)} tiers: each has the rule to itself, and what a lower one "
            f"adds is the difference; it may find up to {CHAIN_ERROR} more"
        )


def _shape_flags(case: Case, load: Load) -> Iterator[str]:
    policy = case.policy
    if policy.touch == "head_first" and any(
        np.any((t.first.variance <= 0) & (t.step.variance <= 0)) for t in load.traffic
    ):
        yield (
            "sizes that do not vary, head evicted first: the curve jumps, blurred over 2 % of capacity (up to 0.07 "
            "off there)"
        )
    agents = [t.sessions.agents for t in load.traffic if t.sessions.agents is not None]
    if any(np.any(np.asarray(count) / case.deployment.instances < FEWEST_AGENTS) for count in agents):
        yield f"fewer than {FEWEST_AGENTS} agents on an instance: up to 0.02 off"
    if agents and any(t.prefixes and t.sessions.agents is not None for t in load.traffic):
        yield "shared prefix under a fixed population: its users are thinned variant by variant, which is approximate"
    for tier in (tier for tier in load.tiers if tier in case.storage_tiers):
        taken = float(np.min(taken_share(case, tier, load.traffic, at_tier(case, tier, load.traffic))))
        if taken < 1:
            yield f"{tier}: its write bandwidth takes {taken:.0%} of what should be written; the rest never reaches it"
    if policy.pinned and load.tiers:
        held = sum(pinned_tokens(case, load.traffic).values())
        if np.any(np.asarray(load.residency.capacity_tokens[0]) < held):
            yield f"pinned prefixes do not fit {load.tiers[0]}: they take all of it, and the rest of them lies below"


def _rate_flags(load: Load) -> Iterator[str]:
    varying = [t.sessions for t in load.traffic if t.sessions.varies]
    if varying:
        peak = max(float(np.max(factor)) for sessions in varying for factor in sessions.rate_levels[1])
        yield (
            f"rates change, up to {peak:.3g} times their mean: hits are averaged over what the cache sees of it "
            "(within 0.015 of simulation; up to 0.025 where levels repeat faster than many pauses), waits and shares "
            "in time over the rates of turns that come of it, each as if it lasted; survival is that of the mean rate"
        )


def hit_ratios(case: Case, load: Load, arm: str) -> Iterator[Answer]:
    """The resident share by each definition in use, side by side; they differ by up to 20 points."""
    o = outcomes_of(turn_classes(load.traffic, case.axes), load.traffic, load.residency)
    size = np.maximum(np.asarray(granularity(case), float), 1.0)
    found = o.tokens.sum(axis=0)
    yield Answer(
        "reuse.hit_ratio_tokens",
        np.sum(o.share * found, axis=0) / np.sum(o.share * o.prompt, axis=0),
        "",
        "hit ratio by tokens: prompt tokens found / prompt tokens",
        arm=arm,
    )
    yield Answer(
        "reuse.hit_ratio_blocks",
        _block_ratio(o, found, size),
        "",
        "hit ratio by blocks: blocks found / blocks of the prompts, a last partial one counted whole",
        arm=arm,
    )
    yield Answer(
        "reuse.hit_ratio_requests",
        np.sum(o.share * found / np.maximum(o.prompt, 1.0), axis=0),
        "",
        "hit ratio by requests: mean over requests of found / prompt tokens",
        arm=arm,
    )
    yield Answer(
        "reuse.requests_with_hit",
        np.sum(np.where(found > 0, o.share, 0.0), axis=0),
        "",
        "share of requests that find anything",
        arm=arm,
    )
    missed = np.sum(o.share * o.prompt, axis=0)
    for k, tier in enumerate(load.tiers):
        here = sum(
            np.sum((o.share * tokens)[place == k], axis=0) for place, tokens in zip(o.place, o.tokens, strict=True)
        )
        yield Answer(
            "reuse.hit_ratio_reached",
            here / np.maximum(missed, 1e-300),
            "",
            "prompt tokens found here / prompt tokens not found in a tier above",
            arm=arm,
            tier=tier,
        )
        missed = missed - here


def _block_ratio(o: Outcomes, found: Any, size: Any) -> Any:
    """Found tokens are whole blocks already; a prompt of n tokens has n/g + 1/2 blocks on average."""
    partial = np.where(size > 1, 0.5, 0.0)
    return np.sum(o.share * found / size, axis=0) / np.sum(o.share * (o.prompt / size + partial), axis=0)


def survival_curve(case: Case, load: Load, arm: str) -> Curve | None:
    """Share of a waiting context that is still held after a pause, by population, down to each tier; None under rules
    by which it depends on more than the pause."""
    if case.policy.eviction not in ("lru", "value_aware") or not case.policy.retention_renewed:
        return None
    pauses = PAUSES.reshape((-1,) + (1,) * case.axes)
    answers: list[Answer] = []
    held: Any = 0.0
    for tier, (_, share, capacity) in zip(load.tiers, stacks_of(case, load.tiers, load.active_tokens), strict=True):
        streams = streams_of(case, load.traffic, share)
        if case.policy.eviction == "value_aware":
            streams = windowed(streams, value_windows(streams, capacity))
        touch = TOUCH[case.policy.touch]
        each = [reuse.paused_survival(streams, capacity, pauses / s.window, touch)[i] for i, s in enumerate(streams)]
        held = np.maximum(held, np.stack(each))
        definition = "share of a waiting context still held in this tier or above after a pause"
        answers += [
            Answer("reuse.survival", held[i], "", definition, arm=arm, population=t.name, tier=tier)
            for i, t in enumerate(load.traffic)
        ]
    return Curve("pause", PAUSES, "s", tuple(answers))


def warm_up_curve(case: Case, load: Load, arm: str) -> Curve:
    """Reuse after all tiers were emptied (new weights, a restart), over the time since, and the time until it is warm.

    Without queueing: hits come from pauses shorter than the time since, whatever the bandwidth.
    """
    since = SINCE.reshape((-1,) + (1,) * case.axes)
    offered = {t.name: (t.private_opportunity, *t.head_opportunities) for t in load.traffic}
    ceiling = sum(t.arrivals * sum(offered[t.name]) for t in load.traffic)
    kept: Any = 0.0
    for _, share, capacity in stacks_of(case, load.tiers, load.active_tokens):
        found = hit_shares(case, load.traffic, share, capacity, since)
        here = sum(
            t.arrivals * tokens * part
            for t in load.traffic
            for tokens, part in zip(offered[t.name], found[t.name], strict=True)
        )
        kept = np.maximum(kept, here / np.maximum(ceiling, 1e-300))
    kept = np.maximum.accumulate(np.broadcast_to(kept, np.broadcast_shapes(np.shape(kept), since.shape)), axis=0)
    warm = SINCE[np.minimum(np.sum(kept < WARM * kept[-1:], axis=0), len(SINCE) - 1)]
    return Curve(
        "since",
        SINCE,
        "s",
        (
            Answer(
                "reuse.since_emptied",
                kept,
                "",
                "share of the reuse offered that is found, so long after all tiers were emptied",
                arm=arm,
            ),
            Answer(
                "reuse.warm_up",
                warm,
                "s",
                f"time after which an emptied cache finds {WARM:.0%} of what it finds in "
                "the long run (new weights, a restart)",
                arm=arm,
            ),
        ),
    )


def pinning(case: Case, load: Load, arm: str) -> Iterator[Answer]:
    """What pinning wins for the pinned prefixes and displaces elsewhere, against the same case without it."""
    if not case.policy.pinned or not load.tiers:
        return
    free = case.changed(policy=case.policy.model_copy(update={"pinned": ()}))
    without = residency(free, load.traffic, load.tiers, load.active_tokens)
    won = _found(load.traffic, load.residency, load.prompt_rate)
    had = _found(load.traffic, without, load.prompt_rate)
    for name in won:
        change = won[name] - had[name]
        word = "wins" if name in case.policy.pinned else "costs this population (below zero)"
        yield Answer(
            "reuse.pinning",
            change,
            "",
            f"resident share of prompt tokens that pinning {word}",
            arm=arm,
            population=name,
        )
    yield Answer(
        "reuse.pinning",
        sum(won.values()) - sum(had.values()),
        "",
        "resident share of prompt tokens that pinning wins in all",
        arm=arm,
    )


def deletion(case: Case, load: Load, arm: str) -> Iterator[Answer]:
    """What it would win to delete every session when it ends, against the share that is deleted now."""
    if not load.tiers or all(np.all(np.asarray(t.sessions.deleted) == 1.0) for t in load.traffic):
        return
    ended = {name: sessions.model_copy(update={"deleted": 1.0}) for name, sessions in case.sessions.items()}
    tidy = case.changed(workload={**case.workload, **ended})
    found = residency(tidy, traffic_of(tidy, granularity(tidy)), load.tiers, load.active_tokens)
    here, there = (_found(load.traffic, part, load.prompt_rate) for part in (load.residency, found))
    won = {name: there[name] - here[name] for name in here}
    won = {name: np.where(share > ROUNDING, share, 0.0) for name, share in won.items()}
    definition = "resident share of prompt tokens that deleting all sessions when they end would win"
    for name, share in won.items():
        yield Answer("reuse.deletion", share, "", definition, arm=arm, population=name)
    yield Answer("reuse.deletion", sum(won.values()), "", definition, arm=arm)


def identity_cost(case: Case, load: Load, arm: str) -> Iterator[Answer]:
    """Resident reuse lost to each thing that splits KV of the same text, the others left as they are."""
    if not load.tiers:
        return
    here = sum(_found(load.traffic, load.residency, load.prompt_rate).values())
    for name in _splits(case):
        merged = _merged(case, name)
        found = residency(merged, traffic_of(merged, granularity(merged)), load.tiers, load.active_tokens)
        there = sum(_found(load.traffic, found, load.prompt_rate).values())
        yield Answer(
            "reuse.identity_cost",
            np.maximum(there - here, 0.0),
            "",
            f"resident share of prompt tokens lost because {name} may not share",
            arm=arm,
            population=name,
        )


def _splits(case: Case) -> list[str]:
    """Names of what splits the namespace in more than one group."""
    every = [pair for s in case.sessions.values() for pair in s.identity.items()]
    names = {name for name, count in every if np.any(np.asarray(count) > 1)}
    tenants = any(np.any(np.asarray(s.tenants) > 1) for s in case.sessions.values())
    return [*(["tenants"] if tenants else []), *sorted(names)]


def _merged(case: Case, split: str) -> Case:
    """The case if one split were not there."""
    workload = dict(case.workload)
    for name, s in case.sessions.items():
        rest = {"identity": {k: v for k, v in s.identity.items() if k != split}}
        workload[name] = s.model_copy(update={"tenants": 1.0} if split == "tenants" else rest)
    return case.changed(workload=workload)


def _found(traffic: Sequence[Traffic], found: Residency, prompt_rate: Any) -> dict[str, Any]:
    """Share of all prompt tokens found in any tier, by population, a session's own context and its prefixes apart."""
    parts: dict[str, Any] = {}
    for t in traffic:
        shares = {t.name: found.private[t.name], **found.prefix[t.name]}
        for (name, share), offered in zip(shares.items(), (t.private_opportunity, *t.head_opportunities), strict=True):
            parts[name] = parts.get(name, 0.0) + t.arrivals * offered * share.sum(axis=0) / prompt_rate
    return parts
