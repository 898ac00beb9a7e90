"""Every way a turn can go: what of its context is found where, what is fetched, and what that takes.

Question answered: for each kind of turn and each place its context may be found, is fetching worth it, and how long
does the turn take on an idle GPU?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    heads: tuple[Any, ...]
    """Of each shared prefix offered for reuse, first to last [tokens]."""


@dataclass(frozen=True)
class Outcomes:
    """Every (kind of turn, place of each part of its context), outcomes on axis 0.

    Parts lead where said: the shared prefixes, first to last, then the session's own context; a population with fewer
    prefixes than others has empty parts before them. Part by part a context lies in the same tier or a slower one, or
    is lost, so that what is found is the beginning of it.
    """

    population: np.ndarray
    """Index of the population, shape (outcomes,)."""
    returning: np.ndarray
    place: np.ndarray
    """Index of the tier each part is found in, NOWHERE when it is lost or there is none, (parts, outcomes)."""
    share: Any
    """Of all turns per second."""
    prompt: Any
    tokens: Any
    """Tokens of each part found, (parts, outcomes) + A [tokens]."""


@dataclass(frozen=True)
class Timing:
    """Per outcome (axis 0): what is used in time, GPU work, and time to first token before any wait for the GPU."""

    timely: Any
    """Whether each part is used, (parts, outcomes) + A."""
    work: Any
    """Prefill left to do [s]."""
    service: Any
    """Fetch with its wait, and that prefill [s]."""
    saved: Any
    """Prefill that each part saves if it is, (parts, outcomes) + A [s]."""
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
        (size, share), (old, old_share), (new, new_share) = (
            tuple(in_front(part, ndim) for part in size_classes(law))
            for law in (t.sessions.first_tokens, t.context, t.sessions.new_tokens)
        )
        classes.append(
            TurnClasses(t.name, False, share * of_first, size + t.prefix_tokens, 0.0 * size, t.reusable_heads)
        )
        for value, weight in zip(new, new_share, strict=True):
            classes.append(
                TurnClasses(
                    t.name,
                    True,
                    old_share * weight * (1 - of_first),
                    old + value + t.prefix_tokens,
                    reusable(old, t.granularity),
                    t.reusable_heads,
                )
            )
    return classes


def in_front(values: Any, ndim: int, inner: int = 1) -> np.ndarray:
    """The first `inner` axes kept in front of `ndim` study axes, to the last of which the other axes are aligned."""
    values = np.asarray(values)
    return values.reshape(values.shape[:inner] + (1,) * (ndim + inner - values.ndim) + values.shape[inner:])


def outcomes_of(classes: Sequence[TurnClasses], traffic: Sequence[Traffic], found: Residency) -> Outcomes:
    """Split every class by where its own context and its shared prefixes are found.

    A prefix is never found in a slower tier than what comes after it, which was last used no later: it is where that
    is, or where others left it, whichever is faster.
    """
    index = {t.name: i for i, t in enumerate(traffic)}
    total = sum(t.turn_rate for t in traffic)
    levels = max(len(t.prefixes) for t in traffic)
    labels: list[tuple[int, ...]] = []
    amounts: list[tuple[Any, ...]] = []
    for c in classes:
        i = index[c.population]
        share = c.share * (traffic[i].turn_rate / total)
        for place, probability in _places(found, traffic[i], c.returning).items():
            heads, own = place[:-1], place[-1]
            tokens = [0.0 if k == NOWHERE else size for k, size in zip(heads, c.heads, strict=True)]
            spare = levels - len(heads)
            labels.append((i, c.returning, *[NOWHERE] * spare, *place))
            private = 0.0 if own == NOWHERE else c.private
            amounts.append((share * probability, c.prompt, *[0.0] * spare, *tokens, private))
    shape = np.broadcast_shapes(*(np.shape(amount) for row in amounts for amount in row))
    share, prompt, *tokens = (
        np.concatenate([np.broadcast_to(amount, shape) for amount in column]) for column in zip(*amounts, strict=True)
    )
    population, returning, *place = (np.repeat(np.array(column), shape[0]) for column in zip(*labels, strict=True))
    return Outcomes(population, returning.astype(bool), np.stack(place), share, prompt, np.stack(tokens))


def _places(found: Residency, t: Traffic, returning: bool) -> dict[tuple[int, ...], Any]:
    """Probability of every way the parts of a context can lie: its shared prefixes, first to last, and its own."""
    tiers = range(len(found.tiers))
    own = {(k,): found.private[t.name][k] for k in tiers} if returning else {}
    places = {**own, (NOWHERE,): 1 - sum(own.values())}
    for left in reversed(_left_by_others(found, t)):
        longer: dict[tuple[int, ...], Any] = {}
        for place, probability in places.items():
            faster = [k for k in tiers if place[0] == NOWHERE or k < place[0]]
            longer |= {(k, *place): probability * left[k] for k in faster}
            longer[place[0], *place] = probability * (1 - sum(left[k] for k in faster))
        places = longer
    return places


def _left_by_others(found: Residency, t: Traffic) -> list[Any]:
    """Share of each shared prefix, first to last, found in each tier (axis 0) where what comes after it is not.

    Of all turns a share w returns, and finds the last prefix at least as near as its own context: with P and F the
    shares of contexts and prefixes found down to a tier, F = w P + (1 - w P) X leaves X = (F - w P) / (1 - w P). The
    prefix before it is found at least as near as this one, and so on, F in the place of w P.
    """
    if not found.tiers:
        return list(found.prefix[t.name].values())
    behind, left = t.returns / (1 + t.returns) * np.cumsum(found.private[t.name], axis=0), []
    for here in reversed(found.prefix[t.name].values()):
        here = np.cumsum(here, axis=0)
        upto = np.clip((here - behind) / np.maximum(1 - behind, 1e-12), 0.0, 1.0)
        left.append(np.diff(np.maximum.accumulate(upto, axis=0), axis=0, prepend=0.0))
        behind = here
    return left[::-1]


def timing_of(
    case: Case,
    o: Outcomes,
    tiers: Sequence[str],
    prefill: PrefillTerms,
    paths: Mapping[str, FetchTerms],
    turn_rate: Any,
) -> Timing:
    """Use what is found up to some part, all of it, or nothing: whichever is soonest.

    The waits on the paths depend on what is fetched, so the choice is made on idle paths first and again with the waits
    of that first choice.
    """
    whole = prefill.seconds(o.prompt, 0.0)
    saved = [prefill.saved(tokens) for tokens in np.cumsum(o.tokens, axis=0)]  # with all parts up to each
    at = [[in_front(place == k, case.axes) for k in range(len(tiers))] for place in o.place]
    waits: Any = np.zeros(len(tiers))
    for _ in range(2):
        last, spent, won = np.full(np.shape(whole), -1), np.zeros(()), np.zeros(())
        for part, fetch in enumerate(_fetches(case, o, tiers, paths, whole, saved, waits)):
            better = (o.tokens[part] > 0) & (fetch - saved[part] < spent - won)
            last = np.where(better, part, last)
            spent, won = np.where(better, fetch, spent), np.where(better, saved[part], won)
        used = [(tokens > 0) & (last >= part) for part, tokens in enumerate(o.tokens)]
        taken = [
            sum(np.where(use & here[k], tokens, 0.0) for use, here, tokens in zip(used, at, o.tokens, strict=True))
            for k in range(len(tiers))
        ]
        utilisation, waits = _queues(case, o, tiers, paths, taken, turn_rate)
    in_time = spent <= (np.inf if case.slo is None else case.slo.ttft.limit)
    timely = np.stack([use & in_time for use in used])
    each = np.diff(np.stack(np.broadcast_arrays(*saved)), axis=0, prepend=0.0)
    return Timing(timely, whole - won, whole - won + spent, np.where(timely, each, 0.0), utilisation, waits)


def _fetches(
    case: Case,
    o: Outcomes,
    tiers: Sequence[str],
    paths: Mapping[str, FetchTerms],
    whole: Any,
    saved: Sequence[Any],
    waits: Any,
) -> Iterator[Any]:
    """Time to fetch all parts up to each [s]: parts that follow each other in one tier come in one go, hidden behind
    the computing that they leave."""
    run, before, spent = np.zeros(()), np.zeros(()), np.zeros(())
    above = np.full(o.place.shape[1], NOWHERE)
    for place, tokens, gain in zip(o.place, o.tokens, saved, strict=True):
        goes_on = in_front(place == above, case.axes)
        run, before = np.where(goes_on, run, 0.0) + tokens, np.where(goes_on, before, spent)
        spent = before
        for k, (tier, wait) in enumerate(zip(tiers, waits, strict=True)):
            if tier in paths:
                one = paths[tier].seconds(run, compute=whole - gain, wait=wait)
                spent = np.where(in_front(place == k, case.axes), before + one, spent)
        above = place
        yield spent


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
