"""One arm under one load: hits, timeliness, utilisation, latency, and the share of turns and sessions in time.

Question answered: with these tiers and this rate of sessions, what does a turn wait, and does it keep its limits?

Model of the GPUs: an instance serves prefills first come first served (M/G/1 over the mixture of hits and misses) and
gives what is left of its time to decoding, so that a decode step takes step(batch) / (1 - prefill utilisation). Time
spent fetching does not occupy the GPU; a fetch that loses against recomputing is not made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from kvmodel.analyses.capacity import fixed_tokens, hbm_pool, stored_bytes_per_token
from kvmodel.analyses.reuse import Residency, residency
from kvmodel.analyses.timing import FetchTerms, PrefillTerms, decode_lines, fetch_terms, prefill_terms
from kvmodel.analyses.traffic import Traffic, reusable, size_classes
from kvmodel.formulas import decode, latency, queueing
from kvmodel.system.case import Case


@dataclass(frozen=True)
class TurnClasses:
    """Kinds of turn of one population by size, axis 0. `share` is of the population's turns."""

    population: str
    returning: bool
    share: Any
    prompt: Any
    private: Any
    """Private context offered for reuse [tokens]."""
    prefix: Any
    """Shared prefix offered for reuse [tokens]."""


@dataclass(frozen=True)
class Outcomes:
    """Every (kind of turn, place found) with its probability; all axes 0 alike. What the latency mixture is made of."""

    population: np.ndarray
    """Index of the population, shape (outcomes,)."""
    returning: np.ndarray
    tier: np.ndarray
    """Index of the tier the context comes from, -1 when nothing is found."""
    share: Any
    """Of all turns per second."""
    prompt: Any
    private: Any
    """Tokens of the session's own context found [tokens]."""
    prefix: Any
    """Tokens of the shared prefix found [tokens]."""

    @property
    def cached(self) -> Any:
        """Tokens found [tokens]."""
        return self.private + self.prefix


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
    tier_utilisation: Any
    """Of each tier's devices or links, whichever is busier, axis 0; 0 for the GPUs' memory."""
    tier_wait: Any
    """Mean wait before a restore, axis 0 [s]."""
    batch: Any
    """Sequences decoding at once on one instance."""
    active_tokens: Any
    tpot: Any
    ttft_mean: Any
    ttft_exceedance: Any
    """Share of turns beyond the TTFT limit; nan without limits."""
    tpot_exceedance: Any
    room: Any
    """Whether the active contexts fit the KV pool."""
    qualified: Any
    """Share of sessions all of whose turns keep all limits; nan without limits."""


def turn_classes(traffic: Sequence[Traffic], ndim: int) -> list[TurnClasses]:
    """First and returning turns of each population, cut into classes of context and of new tokens.

    ndim: number of study axes; classes lie in front of them.
    """
    classes = []
    for t in traffic:
        of_first = 1 / (1 + t.returns)
        head = reusable(t.prefix_tokens, t.granularity)
        (size, share), (old, old_share), (new, new_share) = (
            tuple(in_front(part, ndim) for part in size_classes(law))
            for law in (t.sessions.first_tokens, t.context, t.sessions.new_tokens))
        classes.append(TurnClasses(t.name, False, share * of_first, size + t.prefix_tokens, 0.0 * size, head))
        for value, weight in zip(new, new_share, strict=True):
            classes.append(TurnClasses(t.name, True, old_share * weight * (1 - of_first),
                                       old + value + t.prefix_tokens, reusable(old, t.granularity), head))
    return classes


def in_front(values: Any, ndim: int, inner: int = 1) -> np.ndarray:
    """The first `inner` axes kept in front of `ndim` study axes, to the last of which the other axes are aligned."""
    values = np.asarray(values)
    return values.reshape(values.shape[:inner] + (1,) * (ndim + inner - values.ndim) + values.shape[inner:])


def _outcomes(classes: Sequence[TurnClasses], traffic: Sequence[Traffic], found: Residency) -> Outcomes:
    """Split every class by the tier its context is found in; what is lost may still find its shared prefix."""
    index = {t.name: i for i, t in enumerate(traffic)}
    rate = [t.turn_rate for t in traffic]
    total = sum(rate)
    parts: list[tuple[int, bool, int, Any, Any, Any, Any]] = []
    for c in classes:
        i = index[c.population]
        share = c.share * (rate[i] / total)
        private, prefix = found.private[c.population], found.prefix[c.population]
        lost = share
        if c.returning:
            for tier in range(len(found.tiers)):
                parts.append((i, True, tier, share * private[tier], c.prompt, c.private, c.prefix))
            lost = share * (1 - private.sum(axis=0))
        for tier in range(len(found.tiers)):
            parts.append((i, c.returning, tier, lost * prefix[tier], c.prompt, 0.0, c.prefix))
        parts.append((i, c.returning, -1, lost * (1 - prefix.sum(axis=0)), c.prompt, 0.0, 0.0))
    shape = np.broadcast_shapes(*(np.shape(amount) for p in parts for amount in p[3:]))
    stacked = [np.concatenate([np.broadcast_to(p[k], shape) for p in parts]) for k in (3, 4, 5, 6)]
    labels = [np.repeat(np.array([p[k] for p in parts]), shape[0]) for k in (0, 1, 2)]
    return Outcomes(labels[0], labels[1].astype(bool), labels[2], *stacked)


def load_of(case: Case, tiers: Sequence[str], traffic: Sequence[Traffic]) -> Load:
    """Serve the traffic with the given tiers (none: no reuse at all; the first is the GPUs' memory).

    Active KV competes with retained KV for the GPUs' memory, and hits decide how much is active; two passes settle
    it: the first with the least prefill the workload allows, the second with the hits of the first.
    """
    prefill = prefill_terms(case)
    classes = turn_classes(traffic, case.axes)
    paths = {tier: fetch_terms(case, tier) for tier in tiers if tier in case.storage_tiers}
    turn_rate = sum(t.turn_rate for t in traffic)
    least = least_utilisation(case, traffic, prefill, bool(tiers))
    active = _decoding(case, traffic, least).tokens
    known: dict[str, tuple[Any, Any]] = {}
    for _ in range(2 if tiers else 1):
        found = residency(case, traffic, tiers, active, known)
        outcomes = _outcomes(classes, traffic, found)
        timing = _timing(case, outcomes, tiers, prefill, paths, turn_rate)
        utilisation = turn_rate / case.deployment.instances * np.sum(outcomes.share * timing.work, axis=0)
        decoding = _decoding(case, traffic, utilisation)
        # an overloaded instance has no steady state; its residency is told as if the load could be served
        active = np.where(np.isfinite(decoding.tokens), decoding.tokens, active)
    pool = hbm_pool(case).nbytes / stored_bytes_per_token(case, next(iter(case.tiers)))
    room = decoding.tokens <= pool
    late, slow, mean, qualified = _in_time(case, traffic, outcomes, timing, utilisation, decoding)
    opportunity, resident, timely = _chain(traffic, outcomes, timing, tiers, turn_rate)
    return Load(
        tiers=tuple(tiers), traffic=traffic, residency=found, turn_rate=turn_rate,
        opportunity=opportunity, resident=resident, timely=timely,
        saved_seconds=turn_rate * _by_tier(outcomes, tiers, timing.timely * prefill.saved(outcomes.cached)),
        prompt_rate=sum(t.arrivals * t.prompt_tokens for t in traffic),
        prefill_utilisation=utilisation, tier_utilisation=timing.tier_utilisation, tier_wait=timing.tier_wait,
        batch=decoding.batch, active_tokens=active, tpot=decoding.step, ttft_mean=mean, ttft_exceedance=late, tpot_exceedance=slow,
        room=room, qualified=np.where(room, qualified, 0.0),
    )


def _by_tier(o: Outcomes, tiers: Sequence[str], amount: Any, of: Any = True) -> Any:
    """Sum of an amount over the outcomes of each tier, weighted by their share, (tiers,) + A."""
    if not tiers:
        return np.zeros((0, *np.shape(o.share)[1:]))
    return np.stack([np.sum((o.share * amount)[(o.tier == k) & of], axis=0) for k in range(len(tiers))])


def _chain(traffic: Sequence[Traffic], o: Outcomes, timing: _Timing, tiers: Sequence[str], turn_rate: Any
           ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Opportunity, resident and timely tokens per second by population; a session's own context and its shared prefix
    are two populations."""
    opportunity: dict[str, Any] = {}
    resident: dict[str, Any] = {}
    timely: dict[str, Any] = {}
    for i, t in enumerate(traffic):
        parts = ((t.name, t.private_opportunity, o.private), (t.prefix_name, t.prefix_opportunity, o.prefix))
        for name, offered, found in parts[: 1 + bool(t.prefix_name)]:
            opportunity[name] = opportunity.get(name, 0.0) + t.arrivals * offered
            own = o.population == i
            resident[name] = resident.get(name, 0.0) + turn_rate * _by_tier(o, tiers, found, own)
            timely[name] = timely.get(name, 0.0) + turn_rate * _by_tier(o, tiers, found * timing.timely, own)
    return opportunity, resident, timely


@dataclass(frozen=True)
class _Timing:
    """Per outcome (axis 0): is the fetch made, is it timely, GPU work, unloaded time to first token."""

    fetched: Any
    timely: Any
    work: Any
    service: Any
    tier_utilisation: Any
    tier_wait: Any


def _timing(case: Case, o: Outcomes, tiers: Sequence[str], prefill: PrefillTerms, paths: dict[str, FetchTerms],
            turn_rate: Any) -> _Timing:
    """Fetch where it is faster than recomputing. The wait on a path depends on what is fetched, so the choice is made
    idle first and again with the waits of that first choice."""
    whole, saved = prefill.seconds(o.prompt, 0.0), prefill.saved(o.cached)
    suffix = whole - saved
    from_tier = [in_front(o.tier == k, case.axes) for k in range(len(tiers))]
    moved, spent, wait = np.zeros(()), np.zeros(()), np.zeros(())
    for tier, here in zip(tiers, from_tier, strict=True):
        if tier in paths:
            moved = np.where(here, o.cached * paths[tier].bytes_per_token, moved)
            spent = np.where(here, paths[tier].seconds(o.cached, compute=suffix), spent)
    for _ in range(2):
        fetched = (o.cached > 0) & (spent + wait < saved)
        utilisation, waits = _queues(case, o, tiers, paths, np.where(fetched, moved, 0.0), turn_rate)
        for here, queued in zip(from_tier, waits, strict=True):
            wait = np.where(here, queued, wait)
    limit = np.inf if case.slo is None else case.slo.ttft.limit
    timely = fetched & (spent + wait <= limit)
    work = np.where(fetched, suffix, whole)
    return _Timing(fetched, timely, work, work + np.where(fetched, spent + wait, 0.0), utilisation, waits)


def _queues(case: Case, o: Outcomes, tiers: Sequence[str], paths: dict[str, FetchTerms], moved: Any, turn_rate: Any
            ) -> tuple[Any, Any]:
    """Utilisation and mean wait (M/G/1) of every tier: its devices serve all instances, its links one each."""
    instances = case.deployment.instances
    utilisation, waits = [], []
    for k, tier in enumerate(tiers):
        if tier not in paths:
            utilisation.append(np.zeros(()))
            waits.append(np.zeros(()))
            continue
        path, share, size = paths[tier], o.share[o.tier == k], moved[o.tier == k]
        rate = turn_rate * np.sum(np.where(size > 0, share, 0.0), axis=0)
        some = np.maximum(rate / turn_rate, 1e-30)
        mean, square = np.sum(share * size, axis=0) / some, np.sum(share * size**2, axis=0) / some
        scv = np.maximum(square / np.maximum(mean, 1e-30) ** 2 - 1, 0.0)
        device, link = rate * mean / path.device_bandwidth, rate / instances * mean / path.link_bandwidth
        utilisation.append(np.maximum(device, link))
        waits.append(np.maximum(queueing.single_server_mean_wait(device, mean / path.device_bandwidth, scv),
                                queueing.single_server_mean_wait(link, mean / path.link_bandwidth, scv)))
    if not tiers:
        return np.zeros((0,)), np.zeros((0,))
    return np.stack(np.broadcast_arrays(*utilisation)), np.stack(np.broadcast_arrays(*waits))


def least_utilisation(case: Case, traffic: Sequence[Traffic], prefill: PrefillTerms, reuse: bool) -> Any:
    """Prefill utilisation if every opportunity were found at once, or none [-]."""
    rates = {t.name: t.turn_rate for t in traffic}
    work = sum(rates[c.population] * np.sum(c.share * prefill.seconds(c.prompt, (c.private + c.prefix) * reuse), axis=0)
               for c in turn_classes(traffic, case.axes))
    return work / case.deployment.instances


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
    left = np.maximum(1 - np.asarray(prefill_utilisation, float), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        idle = in_front(decode_lines(case, context), case.axes, inner=2)
        lines = np.where(left > 0, idle / np.where(left > 0, left, 1.0), np.inf)
    batch = decode.mean_concurrency(output / case.deployment.instances, lines[0], lines[1]).sequences
    with np.errstate(invalid="ignore"):
        step = np.max(lines[0] + np.where(lines[1] > 0, lines[1] * batch, 0.0), axis=0)
    return _Decoding(batch, batch * context, step, lines)


def _in_time(case: Case, traffic: Sequence[Traffic], o: Outcomes, timing: _Timing, utilisation: Any, decoding: _Decoding
             ) -> tuple[Any, Any, Any, Any]:
    """Share of turns beyond the TTFT and the TPOT limit, mean TTFT, and share of sessions with every turn in time."""
    mean_work, scv = latency.mixture_moments(o.share, timing.work)
    wait = queueing.single_server_mean_wait(utilisation, mean_work, scv)
    mean = wait + np.sum(o.share * timing.service, axis=0)
    if case.slo is None:
        return np.nan, np.nan, mean, np.nan
    slow = _slow_steps(case, decoding)
    ok = 1 - queueing.tail_exceedance(case.slo.ttft.limit - timing.service, utilisation=utilisation, mean_wait=wait)
    late = 1 - np.sum(o.share * ok, axis=0)
    sessions = 0.0
    arrivals = sum(t.arrivals for t in traffic)
    for i, t in enumerate(traffic):
        first, later = (_mean_over(o, ok, (o.population == i) & (o.returning == kind)) * (1 - slow)
                        for kind in (False, True))
        turns = t.sessions.turns_law
        with np.errstate(divide="ignore", invalid="ignore"):
            whole = np.where(later > 0, first * turns.generating_function(later) / later, first * (1 - turns.survival(1)))
        sessions = sessions + t.arrivals / arrivals * whole
    return late, slow, mean, sessions


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
    limit, (start, slope) = np.asarray(case.slo.tpot.limit, float), decoding.lines
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(start > limit, 0.0, np.where(slope > 0, (limit - start) / slope, np.inf))
        largest = np.min(each, axis=0)
        beyond = ndtr((decoding.batch - largest) / np.sqrt(np.maximum(decoding.batch, 1.0)))
    return np.where(largest < 1.0, 1.0, np.where(np.isfinite(decoding.batch), np.nan_to_num(beyond), 1.0))
