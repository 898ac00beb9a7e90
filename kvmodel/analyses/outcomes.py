"""Every way a turn can go: what of its context is found where, what is fetched, and what that takes.

Question answered: for each kind of turn and each place its context may be found, is fetching worth it, and how long
does the turn take on an idle GPU?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.analyses.reuse import Residency
from kvmodel.analyses.timing import FetchTerms, PrefillTerms
from kvmodel.analyses.traffic import Traffic, reusable, size_classes
from kvmodel.formulas import queueing
from kvmodel.system.case import Case

NOWHERE = -1


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
    """Every (kind of turn, place of its own context, place of its shared prefix), all on axis 0."""

    population: np.ndarray
    """Index of the population, shape (outcomes,)."""
    returning: np.ndarray
    private_tier: np.ndarray
    """Index of the tier the session's own context is found in, NOWHERE when it is lost."""
    prefix_tier: np.ndarray
    share: Any
    """Of all turns per second."""
    prompt: Any
    private: Any
    """Tokens of the session's own context found [tokens]."""
    prefix: Any
    """Tokens of the shared prefix found [tokens]."""


@dataclass(frozen=True)
class Timing:
    """Per outcome (axis 0): what is used in time, GPU work, and time to first token before any wait for the GPU."""

    private_timely: Any
    prefix_timely: Any
    work: Any
    """Prefill left to do [s]."""
    service: Any
    """Fetch with its wait, and that prefill [s]."""
    saved: Any
    """Prefill that timely hits save, by the tier they come from: (private, prefix) [s]."""
    tier_utilisation: Any
    """Of each tier's devices or links, the busier, axis 0; 0 for the GPUs' memory."""
    tier_wait: Any
    """Mean wait before a restore, axis 0 [s]."""


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
            for law in (t.sessions.first_tokens, t.context, t.sessions.new_tokens)
        )
        classes.append(TurnClasses(t.name, False, share * of_first, size + t.prefix_tokens, 0.0 * size, head))
        for value, weight in zip(new, new_share, strict=True):
            classes.append(
                TurnClasses(
                    t.name,
                    True,
                    old_share * weight * (1 - of_first),
                    old + value + t.prefix_tokens,
                    reusable(old, t.granularity),
                    head,
                )
            )
    return classes


def in_front(values: Any, ndim: int, inner: int = 1) -> np.ndarray:
    """The first `inner` axes kept in front of `ndim` study axes, to the last of which the other axes are aligned."""
    values = np.asarray(values)
    return values.reshape(values.shape[:inner] + (1,) * (ndim + inner - values.ndim) + values.shape[inner:])


def outcomes_of(classes: Sequence[TurnClasses], traffic: Sequence[Traffic], found: Residency) -> Outcomes:
    """Split every class by where its own context and its shared prefix are found.

    A prefix is never found in a slower tier than the context behind it, which was last used no later. Without that
    context it is found where others left it.
    """
    index = {t.name: i for i, t in enumerate(traffic)}
    rate = [t.turn_rate for t in traffic]
    total = sum(rate)
    tiers = range(len(found.tiers))
    parts: list[tuple[int, bool, int, int, Any, Any, Any, Any]] = []
    for c in classes:
        i = index[c.population]
        share = c.share * (rate[i] / total)
        private, prefix = found.private[c.population], _left_by_others(found, traffic[i])
        own = [(k, private[k]) for k in tiers] if c.returning else []
        lost = 1 - sum(probability for _, probability in own)
        for k, probability in own:
            faster = [(j, prefix[j]) for j in range(k)]
            beside = [*faster, (k, 1 - sum(p for _, p in faster))]
            parts += [(i, True, k, j, share * probability * p, c.prompt, c.private, c.prefix) for j, p in beside]
        parts += [(i, c.returning, NOWHERE, j, share * lost * prefix[j], c.prompt, 0.0, c.prefix) for j in tiers]
        nothing = 1 - sum(prefix[j] for j in tiers)
        parts.append((i, c.returning, NOWHERE, NOWHERE, share * lost * nothing, c.prompt, 0.0, 0.0))
    shape = np.broadcast_shapes(*(np.shape(amount) for p in parts for amount in p[4:]))
    amounts = [np.concatenate([np.broadcast_to(p[k], shape) for p in parts]) for k in (4, 5, 6, 7)]
    labels = [np.repeat(np.array([p[k] for p in parts]), shape[0]) for k in (0, 1, 2, 3)]
    return Outcomes(labels[0], labels[1].astype(bool), labels[2], labels[3], *amounts)


def _left_by_others(found: Residency, t: Traffic) -> Any:
    """Share of the shared prefix found in each tier where the session's own context is not, axis 0 the tiers.

    Of all turns a share w returns, and finds its prefix at least as near as its own context: with P and F the shares of
    contexts and prefixes found down to a tier, F = w P + (1 - w P) X leaves X = (F - w P) / (1 - w P).
    """
    if not found.tiers:
        return found.prefix[t.name]
    returning = t.returns / (1 + t.returns)
    own = returning * np.cumsum(found.private[t.name], axis=0)
    upto = np.clip((np.cumsum(found.prefix[t.name], axis=0) - own) / np.maximum(1 - own, 1e-12), 0.0, 1.0)
    return np.diff(np.maximum.accumulate(upto, axis=0), axis=0, prepend=0.0)


def timing_of(
    case: Case,
    o: Outcomes,
    tiers: Sequence[str],
    prefill: PrefillTerms,
    paths: Mapping[str, FetchTerms],
    turn_rate: Any,
) -> Timing:
    """Use all that is found, only the shared prefix, or nothing: whichever is soonest.

    The waits on the paths depend on what is fetched, so the choice is made on idle paths first and again with the waits
    of that first choice.
    """
    saved_all, saved_head = prefill.saved(o.private + o.prefix), prefill.saved(o.prefix)
    whole = prefill.seconds(o.prompt, 0.0)
    at_private = [in_front(o.private_tier == k, case.axes) for k in range(len(tiers))]
    at_prefix = [in_front(o.prefix_tier == k, case.axes) for k in range(len(tiers))]
    waits: Any = np.zeros(len(tiers))
    for _ in range(2):
        all_of_it, head = np.zeros(()), np.zeros(())
        for tier, wait, own, shared in zip(tiers, waits, at_private, at_prefix, strict=True):
            if tier not in paths:
                continue
            together = o.private + np.where(shared, o.prefix, 0.0)
            one = paths[tier].seconds(o.prefix, compute=whole - saved_head, wait=wait)
            head = np.where(shared, one, head)
            rest = paths[tier].seconds(together, compute=whole - saved_all, wait=wait)
            all_of_it = all_of_it + np.where(own, rest, np.where(shared, one, 0.0))
        use_all = (o.private > 0) & (all_of_it - saved_all < np.minimum(head - saved_head, 0.0))
        use_head = ~use_all & (o.prefix > 0) & (head < saved_head)
        taken = [
            np.where(own & use_all, o.private, 0.0) + np.where(shared & (use_all | use_head), o.prefix, 0.0)
            for own, shared in zip(at_private, at_prefix, strict=True)
        ]
        utilisation, waits = _queues(case, o, tiers, paths, taken, turn_rate)
    spent = np.where(use_all, all_of_it, np.where(use_head, head, 0.0))
    in_time = spent <= (np.inf if case.slo is None else case.slo.ttft.limit)
    work = whole - np.where(use_all, saved_all, np.where(use_head, saved_head, 0.0))
    private, prefix = use_all & in_time, (use_all | use_head) & in_time
    saved = (np.where(private, saved_all - saved_head, 0.0), np.where(prefix, saved_head, 0.0))
    return Timing(private, prefix, work, work + spent, saved, utilisation, waits)


def _queues(
    case: Case, o: Outcomes, tiers: Sequence[str], paths: Mapping[str, FetchTerms], taken: Sequence[Any], turn_rate: Any
) -> tuple[Any, Any]:
    """Utilisation and mean wait (M/G/1) of every tier: its devices serve all instances, its links one each."""
    instances = case.deployment.instances
    utilisation, waits = [np.zeros(())], [np.zeros(())]
    for tier, tokens in zip(tiers, taken, strict=True):
        if tier not in paths:
            continue
        path = paths[tier]
        size = np.where(tokens > 0, path.nbytes(tokens), 0.0)
        rate = turn_rate * np.sum(np.where(size > 0, o.share, 0.0), axis=0)
        some = np.maximum(rate / turn_rate, 1e-30)
        mean, square = np.sum(o.share * size, axis=0) / some, np.sum(o.share * size**2, axis=0) / some
        scv = np.maximum(square / np.maximum(mean, 1e-30) ** 2 - 1, 0.0)
        device, link = rate * mean / path.device_bandwidth, rate / instances * mean / path.link_bandwidth
        utilisation.append(np.maximum(device, link))
        waits.append(
            np.maximum(
                queueing.single_server_mean_wait(device, mean / path.device_bandwidth, scv),
                queueing.single_server_mean_wait(link, mean / path.link_bandwidth, scv),
            )
        )
    if not tiers:
        return np.zeros((0,)), np.zeros((0,))
    return np.stack(np.broadcast_arrays(*utilisation)), np.stack(np.broadcast_arrays(*waits))
