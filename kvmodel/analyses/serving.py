"""One arm under one load: hits, timeliness, utilisation, latency, and the share of turns and sessions in time.

Question answered: with these tiers and this rate of sessions, what does a turn wait, and does it keep its limits?

Model of the GPUs: an instance serves prefills first come first served (M/G/1 over the mixture of hits and misses) and
gives what is left of its time to decoding, so that a decode step takes step(batch) / (1 - prefill utilisation). Time
spent fetching does not occupy the GPU; a fetch that loses against recomputing is not made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from kvmodel.analyses.admitted import Admitted
from kvmodel.analyses.capacity import fixed_tokens, hbm_pool, stored_bytes_per_token
from kvmodel.analyses.outcomes import Outcomes, Timing, in_front, outcomes_of, timing_of, turn_classes
from kvmodel.analyses.reuse import Residency, rate_paths, residency, streams_of
from kvmodel.analyses.timing import PrefillTerms, decode_lines, fetch_terms, prefill_terms
from kvmodel.analyses.traffic import Traffic, traffic_of
from kvmodel.formulas import decode, latency, queueing
from kvmodel.system.case import Case
from kvmodel.workloads.sessions import Sessions

INSTANT = 0.1  # [s], a window in which rates do not change
SETTLED = 1e-3  # of the pool: a change of active KV that small moves no figure a report shows
PASSES = 30
NO_TIME = 1e-30  # share of its time that a saturated instance has left for decoding; not 0, so that 0 / 0 cannot arise


@dataclass(frozen=True)
class Load:
    """Everything about one arm at one rate; arrays over the study's axes, tiers on axis 0 where said."""

    tiers: tuple[str, ...]
    traffic: Sequence[Traffic]
    residency: Residency
    turn_rate: Any
    opportunity: dict[str, Any]
    """By population (sessions and shared prefixes): tokens per second that were computed before [tokens/s]."""
    resident: dict[str, Any]
    """Of these, found in each tier, axis 0 [tokens/s]."""
    timely: dict[str, Any]
    """Of these, consumable in time and sooner than recomputed, axis 0 [tokens/s]."""
    saved_seconds: Any
    """Prefill seconds per second that timely hits of each tier save, axis 0."""
    prompt_rate: Any
    prefill_utilisation: Any
    """At the mean rates."""
    busiest: Any
    """The same at the busiest level of rates that vary."""
    tier_utilisation: Any
    """Of each tier's devices or links, whichever is busier, axis 0; 0 for the GPUs' memory."""
    tier_wait: Any
    """Mean wait that a restore would find, axis 0 [s]."""
    batch: Any
    """Sequences decoding at once on one instance."""
    active_tokens: Any
    tpot: Any
    ttft_mean: Any
    ttft_exceedance: Any
    """Share of turns beyond the TTFT limit; nan without limits."""
    tpot_exceedance: Any
    end_to_end_exceedance: Any
    """Share of turns beyond the end-to-end limit; 0 where there is none."""
    room: Any
    """Whether the active contexts fit the KV pool."""
    metastable: Any
    """Whether a pool once full of active contexts would stay so: what is lost keeps up the load. False if not asked."""
    qualified: Any
    """Share of sessions all of whose turns keep all limits; nan without limits."""

    @property
    def effective_reuse(self) -> Any:
        """Timely tokens of all populations and tiers, share of the prompt tokens."""
        return sum(found.sum(axis=0) for found in self.timely.values()) / self.prompt_rate


def load_of(
    case: Case,
    tiers: Sequence[str],
    traffic: Sequence[Traffic],
    admitted: Mapping[str, Admitted] | None = None,
    relapse: bool = False,
) -> Load:
    """Serve the traffic with the given tiers (none: no reuse at all; the first is the GPUs' memory).

    Where rates vary, hits are averaged over what the caches see of them; what turns wait, and so the shares of turns
    and sessions in time, over the rates of turns that come of them, each as if it lasted and with those hits.
    admitted: what is let into tiers that wear, by population; the case's own rule when absent.
    relapse: also look whether a full memory would stay full.
    """
    load = _load_at(case, tiers, traffic, admitted, relapse)
    if not any(t.sessions.varies for t in traffic):
        return load
    share, each = _at_rates(case, tiers, traffic, load.residency)

    def mean(value: Any, rate: Any) -> Any:
        """By the turns or sessions that come at each rate."""
        weight = share * rate
        return (weight * value).sum(axis=0) / weight.sum(axis=0)

    return replace(
        load,
        busiest=np.max(each.prefill_utilisation, axis=0),
        ttft_mean=mean(each.ttft_mean, each.turn_rate),
        ttft_exceedance=mean(each.ttft_exceedance, each.turn_rate),
        tpot_exceedance=mean(each.tpot_exceedance, each.turn_rate),
        end_to_end_exceedance=mean(each.end_to_end_exceedance, each.turn_rate),
        qualified=mean(each.qualified, sum(t.arrivals for t in each.traffic)),
    )


def _at_rates(case: Case, tiers: Sequence[str], traffic: Sequence[Traffic], found: Residency) -> tuple[Any, Load]:
    """Share of the time of each rate of turns that comes of rates that vary, and the load at each as if it lasted, in
    front of the study's axes."""
    pool = hbm_pool(case).nbytes / stored_bytes_per_token(case, next(iter(case.tiers)))
    streams, room = streams_of(case, traffic), pool + np.zeros((1,) * case.axes)
    paths = {t.name: rate_paths(t.sessions, s, room) for t, s in zip(traffic, streams, strict=True)}
    share = next(path.time for path in paths.values() if path is not None)
    rates = {name: share**0 if path is None else path.using(INSTANT) for name, path in paths.items()}
    populations = {n: p.steady(rates[n]) if isinstance(p, Sessions) else p for n, p in case.workload.items()}
    steady = case.changed(workload=populations)
    return share, _load_at(steady, tiers, traffic_of(steady, traffic[0].granularity), found=found)


def _load_at(
    case: Case,
    tiers: Sequence[str],
    traffic: Sequence[Traffic],
    admitted: Mapping[str, Admitted] | None = None,
    relapse: bool = False,
    found: Residency | None = None,
) -> Load:
    """At the mean rates. found: what the tiers hold, where that is known.

    Active KV competes with retained KV for the GPUs' memory, and what is found decides how much is active: more active
    KV leaves less room, finds less, prefills longer and is active longer. From the least prefill the workload allows
    the passes rise to the least fixed point, which a warm deployment holds. Where none leaves room, at and beyond
    saturation, active KV fills the memory: retained KV has none of it.
    """
    prefill = prefill_terms(case)
    classes = turn_classes(traffic, case.axes)
    paths = {tier: fetch_terms(case, tier) for tier in tiers if tier in case.storage_tiers}
    turn_rate = sum(t.turn_rate for t in traffic)
    pool = hbm_pool(case).nbytes / stored_bytes_per_token(case, next(iter(case.tiers)))
    known: dict[str, tuple[Any, Any]] = {}

    def beside(active: Any) -> tuple[Residency, Outcomes, Timing, Any, _Decoding]:
        """What is found, and so how long everything takes, beside so much active KV."""
        held = found or residency(case, traffic, tiers, active, known, admitted)
        outcomes = outcomes_of(classes, traffic, held)
        outcomes, timing = timing_of(case, outcomes, tiers, prefill, paths, turn_rate)
        utilisation = turn_rate / case.deployment.instances * np.sum(outcomes.share * timing.work, axis=0)
        return held, outcomes, timing, utilisation, _decoding(case, traffic, utilisation)

    decoding = _decoding(case, traffic, least_utilisation(case, traffic, prefill, bool(tiers)))
    active: Any = np.zeros(())
    settled = np.zeros((), bool)
    for _ in range(PASSES):
        active = np.where(settled, active, np.minimum(decoding.tokens, pool))
        held, outcomes, timing, utilisation, decoding = beside(active)
        settled = np.minimum(decoding.tokens, pool) - active <= SETTLED * pool
        if np.all(settled):
            break
    room = decoding.tokens <= pool
    metastable = room & (beside(pool)[-1].tokens > pool) if relapse and tiers else np.zeros((), bool)
    times = _in_time(case, traffic, outcomes, timing, utilisation, decoding)
    opportunity, resident, timely = _chain(traffic, outcomes, timing, len(tiers), turn_rate)
    return Load(
        tiers=tuple(tiers),
        traffic=traffic,
        residency=held,
        turn_rate=turn_rate,
        opportunity=opportunity,
        resident=resident,
        timely=timely,
        saved_seconds=turn_rate
        * sum(
            _by_tier(outcomes.share * saved, place, len(tiers))
            for saved, place in zip(timing.saved, outcomes.place, strict=True)
        ),
        prompt_rate=sum(t.arrivals * t.prompt_tokens for t in traffic),
        prefill_utilisation=utilisation,
        busiest=utilisation,
        tier_utilisation=timing.tier_utilisation,
        tier_wait=timing.tier_wait,
        batch=decoding.batch,
        active_tokens=active,
        tpot=decoding.step,
        room=room,
        metastable=metastable,
        ttft_mean=times.ttft_mean,
        ttft_exceedance=times.late,
        tpot_exceedance=times.slow,
        end_to_end_exceedance=times.overdue,
        qualified=np.where(room, times.qualified, 0.0),
    )


def _by_tier(amount: Any, tier: np.ndarray, tiers: int) -> Any:
    """Sum of an amount over the outcomes that find it in each tier, (tiers,) + A."""
    if not tiers:
        return np.zeros((0, *np.shape(amount)[1:]))
    return np.stack([np.sum(amount[tier == k], axis=0) for k in range(tiers)])


def _chain(
    traffic: Sequence[Traffic], o: Outcomes, timing: Timing, tiers: int, turn_rate: Any
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Opportunity, resident and timely tokens per second by population; a session's own context and each of its shared
    prefixes are populations."""
    opportunity: dict[str, Any] = {}
    resident: dict[str, Any] = {}
    timely: dict[str, Any] = {}
    for i, t in enumerate(traffic):
        mine = o.population == i
        offers = {t.name: t.private_opportunity, **dict(zip(t.prefixes, t.head_opportunities, strict=True))}
        parts = [-1, *range(-len(offers), -1)]  # the own context is the last part, its prefixes those before it
        for (name, offered), part in zip(offers.items(), parts, strict=True):
            tokens, here, used = turn_rate * (o.share * o.tokens[part])[mine], o.place[part, mine], timing.timely[part]
            opportunity[name] = opportunity.get(name, 0.0) + t.arrivals * offered
            resident[name] = resident.get(name, 0.0) + _by_tier(tokens, here, tiers)
            timely[name] = timely.get(name, 0.0) + _by_tier(tokens * used[mine], here, tiers)
    return opportunity, resident, timely


def least_utilisation(case: Case, traffic: Sequence[Traffic], prefill: PrefillTerms, reuse: bool) -> Any:
    """Prefill utilisation if every opportunity were found at once, or none [-]."""
    rates = {t.name: t.turn_rate for t in traffic}
    work = sum(
        rates[c.population] * np.sum(c.share * prefill.seconds(c.prompt, (c.private + sum(c.heads)) * reuse), axis=0)
        for c in turn_classes(traffic, case.axes)
    )
    return work / case.deployment.instances


@dataclass(frozen=True)
class _InTime:
    """What a turn waits, and shares of turns (and sessions) beyond (within) the limits; nan without limits."""

    ttft_mean: Any
    late: Any
    overdue: Any
    slow: Any
    qualified: Any


@dataclass(frozen=True)
class _Decoding:
    """Steady state of decoding on one instance."""

    batch: Any
    tokens: Any
    """Tokens of KV in active use."""
    step: Any
    """Mean step time [s]."""
    lines: Any
    """Bounds of a step as lines in the batch, with prefill's share of the time taken out, (2, 3) + A."""


def _decoding(case: Case, traffic: Sequence[Traffic], prefill_utilisation: Any) -> _Decoding:
    """Sequences decoding at once, by Little's law; prefill takes its share of the time first, which stretches a step
    by 1 / (1 - utilisation)."""
    turn_rate = sum(t.turn_rate for t in traffic)
    output = sum(t.turn_rate * t.sessions.output_tokens.mean for t in traffic)
    context = sum(t.turn_rate * (t.prompt_tokens / (1 + t.returns) + t.sessions.output_tokens.mean) for t in traffic)
    context = context / turn_rate + fixed_tokens(case)
    left = np.maximum(1 - np.asarray(prefill_utilisation, float), NO_TIME)
    lines = in_front(decode_lines(case, context), case.axes, inner=2) / left
    batch = decode.mean_concurrency(output / case.deployment.instances, lines[0], lines[1]).sequences
    step = np.where(
        left > NO_TIME, np.max(lines[0] + lines[1] * np.where(np.isfinite(batch), batch, 0.0), axis=0), np.inf
    )
    step = np.where(np.isfinite(batch), step, np.inf)
    return _Decoding(batch, batch * context, step, lines)


def _in_time(
    case: Case, traffic: Sequence[Traffic], o: Outcomes, timing: Timing, utilisation: Any, decoding: _Decoding
) -> _InTime:
    """Shares of turns beyond each limit, and of sessions with every turn within all of them.

    The wait for the GPU is M/G/1 with an exponential tail; the turns of a session are taken as independent.
    """
    mean_work, scv = latency.mixture_moments(o.share, timing.work)
    wait = queueing.single_server_mean_wait(utilisation, mean_work, scv)
    mean = wait + np.sum(o.share * timing.service, axis=0)
    if case.slo is None:
        return _InTime(mean, np.nan, np.nan, np.nan, np.nan)
    to_first, to_last = case.slo.ttft.limit - timing.service, np.asarray(np.inf)
    if case.slo.end_to_end is not None:
        output = sum(
            np.where(in_front(o.population == i, case.axes), t.sessions.output_tokens.mean, 0.0)
            for i, t in enumerate(traffic)
        )
        to_last = case.slo.end_to_end.limit - timing.service - output * np.nan_to_num(decoding.step, posinf=1e300)
    late, overdue, either = (
        queueing.tail_exceedance(left, utilisation=utilisation, mean_wait=wait)
        for left in (to_first, to_last, np.minimum(to_first, to_last))
    )
    slow = _slow_steps(case, decoding)
    sessions = _whole_sessions(traffic, o, 1 - either, 1 - slow)
    return _InTime(mean, *(np.sum(o.share * share, axis=0) for share in (late, overdue)), slow, sessions)


def _whole_sessions(traffic: Sequence[Traffic], o: Outcomes, ok: Any, fast: Any) -> Any:
    """Share of sessions all of whose turns are in time: E[first x later^(K-1)] over the number of turns K."""
    sessions, arrivals = 0.0, sum(t.arrivals for t in traffic)
    for i, t in enumerate(traffic):
        first, later = (_mean_over(o, ok, (o.population == i) & (o.returning == kind)) * fast for kind in (False, True))
        turns = t.sessions.turns_law
        with np.errstate(divide="ignore", invalid="ignore"):
            whole = np.where(
                later > 0, first * np.real(turns.generating_function(later)) / later, first * (1 - turns.survival(1))
            )
        sessions = sessions + t.arrivals / arrivals * whole
    return sessions


def _mean_over(o: Outcomes, value: Any, which: np.ndarray) -> Any:
    """Mean of a value over some outcomes by their shares; 1 where there are none."""
    share = o.share[which]
    total = np.sum(share, axis=0) if share.size else 0.0
    weighted = np.sum(share * value[which], axis=0) if share.size else 0.0
    return np.where(total > 0, weighted / np.maximum(total, 1e-300), 1.0)


def _slow_steps(case: Case, decoding: _Decoding) -> Any:
    """Share of turns with steps beyond the TPOT limit: P(batch > largest batch within the limit).

    The batch is Poisson around its mean (sessions come and go independently), taken as normal; at least one sequence
    decodes whenever a step is made.
    """
    if case.slo.tpot is None:
        return np.zeros(())
    limit, (start, slope) = np.asarray(case.slo.tpot.limit, float), decoding.lines
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(start > limit, 0.0, np.where(slope > 0, (limit - start) / slope, np.inf))
        largest = np.min(each, axis=0)
        beyond = ndtr((decoding.batch - largest) / np.sqrt(np.maximum(decoding.batch, 1.0)))
    return np.where(largest < 1.0, 1.0, np.where(np.isfinite(decoding.batch), np.nan_to_num(beyond), 1.0))
