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
    """Mean wait that a restore would find, axis 0 [s]."""


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


@dataclass(frozen=True)
class _Choice:
    """What is used of every outcome, and what that takes without any wait."""

    used: Any
    """Whether each part is used, (parts, outcomes) + A."""
    taken: list[Any]
    """Tokens fetched from each tier [tokens]."""
    spent: Any
    """Fetching not hidden behind the prefill that is left [s]."""
    won: Any
    """Prefill saved [s]."""


def timing_of(
    case: Case,
    o: Outcomes,
    tiers: Sequence[str],
    prefill: PrefillTerms,
    paths: Mapping[str, FetchTerms],
    turn_rate: Any,
) -> tuple[Outcomes, Timing]:
    """Use what is found up to some part, all of it, or nothing: whichever is soonest.

    The choice is made on idle paths. Then a turn looks at the queue of each path it wants, fast to slow, and where that
    is longer than what the fetch saves it does with the best it has without. Every outcome is split by the first path
    that was too busy for it, if any; no path is asked for more than it carries.
    """
    whole = prefill.seconds(o.prompt, 0.0)
    saved = [prefill.saved(tokens) for tokens in np.cumsum(o.tokens, axis=0)]  # with all parts up to each
    idle = _choice(case, o, tiers, paths, whole, saved)
    through: Any = np.ones(np.shape(o.share))
    branches, waits = [], []
    utilisation, mean_wait = [np.zeros(())] * bool(tiers), [np.zeros(())] * bool(tiers)
    for k, tier in enumerate(tiers):
        if tier not in paths:
            continue
        without = _choice(case, o, tiers, {**paths, tier: None}, whole, saved)
        patience = idle.won - idle.spent - (without.won - without.spent)
        queue = _queue(case, o, paths[tier], idle.taken[k], patience, turn_rate)
        joining = np.where(patience > 0, queue.joining, 1.0)
        branches.append((through * (1 - joining), without))
        through = through * joining
        waits.append((k, queue.wait))
        utilisation.append(queue.utilisation)
        mean_wait.append(queue.mean_wait)
    branches.append((through, idle))
    split = [(o.share * share, chosen) for share, chosen in branches]
    rows = np.concatenate([_some(share) + n * len(o.population) for n, (share, _) in enumerate(split)])
    share, spent, won, used = (
        _rows(parts, rows, axis)
        for axis, parts in (
            (0, [share for share, _ in split]),
            (0, [c.spent + sum(np.where(c.taken[k] > 0, wait, 0.0) for k, wait in waits) for _, c in split]),
            (0, [c.won for _, c in split]),
            (1, [c.used for _, c in split]),
        )
    )
    rows = rows % len(o.population)
    each = np.diff(np.stack(np.broadcast_arrays(*saved)), axis=0, prepend=0.0)[:, rows]
    work = whole[rows] - won
    timely = used & (spent <= (np.inf if case.slo is None else case.slo.ttft.limit))
    timing = Timing(timely, work, work + spent, np.where(timely, each, 0.0), _tiers(utilisation), _tiers(mean_wait))
    return _of_rows(o, rows, share), timing


def _choice(
    case: Case,
    o: Outcomes,
    tiers: Sequence[str],
    paths: Mapping[str, FetchTerms | None],
    whole: Any,
    saved: Sequence[Any],
) -> _Choice:
    """The soonest way on idle paths; a path of None is not to be had."""
    last, spent, won = np.full(np.shape(whole), -1), np.zeros(()), np.zeros(())
    for part, fetch in enumerate(_fetches(case, o, tiers, paths, whole, saved)):
        better = (o.tokens[part] > 0) & (fetch - saved[part] < spent - won)
        last = np.where(better, part, last)
        spent, won = np.where(better, fetch, spent), np.where(better, saved[part], won)
    used = np.stack([(tokens > 0) & (last >= part) for part, tokens in enumerate(o.tokens)])
    taken = [
        sum(
            np.where(use & in_front(place == k, case.axes), tokens, 0.0)
            for use, place, tokens in zip(used, o.place, o.tokens, strict=True)
        )
        for k in range(len(tiers))
    ]
    return _Choice(used, taken, spent, won)


def _some(share: Any) -> np.ndarray:
    """Outcomes that happen at all, at some point of the study."""
    return np.flatnonzero(np.any(np.reshape(share, (len(share), -1)) > 0, axis=1))


def _rows(parts: Sequence[Any], rows: np.ndarray, axis: int) -> Any:
    """Some outcomes of several sets of them, one after the other."""
    return np.take(np.concatenate(np.broadcast_arrays(*parts), axis=axis), rows, axis=axis)


def _of_rows(o: Outcomes, rows: np.ndarray, share: Any) -> Outcomes:
    return Outcomes(o.population[rows], o.returning[rows], o.place[:, rows], share, o.prompt[rows], o.tokens[:, rows])


def _tiers(values: list[Any]) -> Any:
    return np.stack(np.broadcast_arrays(*values)) if values else np.zeros((0,))


def _fetches(
    case: Case,
    o: Outcomes,
    tiers: Sequence[str],
    paths: Mapping[str, FetchTerms | None],
    whole: Any,
    saved: Sequence[Any],
) -> Iterator[Any]:
    """Time to fetch all parts up to each [s]: parts that follow each other in one tier come in one go, hidden behind
    the computing that they leave."""
    run, before, spent = np.zeros(()), np.zeros(()), np.zeros(())
    above = np.full(o.place.shape[1], NOWHERE)
    for place, tokens, gain in zip(o.place, o.tokens, saved, strict=True):
        goes_on = in_front(place == above, case.axes)
        run, before = np.where(goes_on, run, 0.0) + tokens, np.where(goes_on, before, spent)
        spent = before
        for k, tier in enumerate(tiers):
            if tier in paths:
                path = paths[tier]
                one = np.inf if path is None else path.seconds(run, compute=whole - gain)
                spent = np.where(in_front(place == k, case.axes), before + one, spent)
        above = place
        yield spent


def _queue(
    case: Case, o: Outcomes, path: FetchTerms, tokens: Any, patience: Any, turn_rate: Any
) -> queueing.BalkingQueue:
    """The queue of a tier: its devices serve all instances, its links one each; the busier of the two."""
    size = np.where(tokens > 0, path.nbytes(tokens), 0.0)
    device, link = size / path.device_bandwidth, size / path.link_bandwidth
    at_device, at_link = o.share * turn_rate * device, o.share * turn_rate / case.deployment.instances * link
    busier = np.sum(at_device, axis=0) >= np.sum(at_link, axis=0)
    offered, seconds = np.where(busier, at_device, at_link), np.where(busier, device, link)
    residual = np.sum(offered * seconds, axis=0) / np.maximum(2 * np.sum(offered, axis=0), 1e-300)
    return queueing.balking_queue(offered, residual, patience)
