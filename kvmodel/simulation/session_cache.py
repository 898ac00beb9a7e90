"""Exact LRU of sessions that grow, pause and share prompt heads, one touch at a time.

An LRU cache is a stack, so one pass gives every capacity at once: at each turn the tokens lying above a
context are recorded, and a capacity finds what of it lies above the cut. A session's private context is one
stack entry (its tail leaves first or last, by touch order), each shared head another.

The simulator shares only the sampling of the laws with the closed forms it checks.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.reuse import SessionStream, Touch

__all__ = [
    "HitRatio",
    "RandomBursts",
    "RateCurve",
    "TurnLog",
    "hit_ratio",
    "ratio_of_sums",
    "sampled_events",
    "simulate_sessions",
]

Array = NDArray[Any]


class HitRatio(NamedTuple):
    """Share of the reusable tokens found, and its standard error, one entry per capacity."""

    private: Array
    private_error: Array
    prefix: Array
    prefix_error: Array


@dataclass(frozen=True)
class TurnLog:
    """What every turn after the warm-up found, in time order.

    stream   index of the session's stream
    private  tokens of the session's own context before the turn; zero at the first turn           [tokens]
    above    tokens over it in the stack, infinite if it was dropped or never seen; in forward order at least
             what the loss of its head needs                                                       [tokens]
    prefix   tokens of its shared head, zero without one                                           [tokens]
    over     tokens above the head, infinite likewise                                              [tokens]
    """

    touch: Touch
    stream: Array
    private: Array
    above: Array
    prefix: Array
    over: Array


@dataclass(frozen=True)
class RateCurve:
    """Arrival rates that repeat: parts of a period, one after the other, each with its own rate.

    period [s]; share of the period, and rate over the stream's own, part by part.
    """

    period: float
    share: Sequence[float]
    factor: Sequence[float]

    def times(self, rate: float, horizon: float, rng: np.random.Generator) -> Array:
        """Arrival times of a Poisson process whose rate follows the curve: uniform in the integrated rate."""
        periods = int(np.ceil(horizon / self.period))
        length = np.tile(np.asarray(self.share, float) * self.period, periods)
        time = np.concatenate([[0.0], np.cumsum(length)])
        mass = np.concatenate([[0.0], np.cumsum(length * np.tile(self.factor, periods))])
        end = np.interp(horizon, time, mass)
        return np.interp(rng.uniform(0.0, end, rng.poisson(rate * end)), mass, time)


@dataclass(frozen=True)
class RandomBursts:
    """Arrival rates that alternate between two levels, each for an exponential time; every stream has its own bursts.

    share of the time in a burst; factor: rate in a burst over the mean rate, at most 1/share, where nothing arrives
    between bursts; mean_length of a burst [s].
    """

    share: float
    factor: float
    mean_length: float

    def times(self, rate: float, horizon: float, rng: np.random.Generator) -> Array:
        """Arrival times before the horizon; the levels are in their steady state at time zero."""
        mean = self.mean_length * np.array([1.0, 1.0 / self.share - 1.0])
        cycles = horizon / mean.sum()
        length = rng.exponential(mean, (int(cycles + 10.0 * np.sqrt(cycles) + 20.0), 2)).ravel()
        quiet = (1.0 - self.share * self.factor) / (1.0 - self.share)
        first = int(rng.uniform() < self.share)  # what is left of an exponential time is as long as a new one
        level = np.tile([self.factor, quiet], len(length) // 2)[1 - first :]
        length = length[1 - first :]
        return RateCurve(float(length.sum()), length / length.sum(), level).times(rate, horizon, rng)


class _Stack:
    """Tokens above a position of an LRU stack: a Fenwick tree over touch numbers."""

    def __init__(self, positions: int):
        self.size = positions
        self.tree = [0.0] * (positions + 1)
        self.total = 0.0

    def add(self, position: int, tokens: float) -> None:
        self.total += tokens
        position += 1
        while position <= self.size:
            self.tree[position] += tokens
            position += position & -position

    def above(self, position: int) -> float:
        """Tokens at later positions than this one."""
        position += 1
        below = 0.0
        while position > 0:
            below += self.tree[position]
            position &= position - 1
        return self.total - below


def _sampled_turns(
    stream: SessionStream, horizon: float, rng: np.random.Generator, rates: RateCurve | RandomBursts
) -> tuple[Array, ...]:
    """All turns of the sessions that arrive before the horizon: session, time, context after the turn,
    variant."""
    arrivals, length = _chains(stream, horizon, rng, rates)
    chains = len(arrivals)
    sessions = chains * length
    turns = stream.turns.sample(rng, sessions)
    session = np.repeat(np.arange(sessions), turns)
    start = np.cumsum(turns) - turns
    begin, together = (
        start[::length],
        np.add.reduceat(turns, np.arange(0, sessions, length)) if sessions else turns,
    )
    gap = np.asarray(stream.gap.sample(rng, len(session)), float)
    gap[begin] = arrivals
    size = np.asarray(stream.step.sample(rng, len(session)), float)
    size[start] = stream.first.sample(rng, sessions)
    time, context = _within(gap, begin, together), _within(size, start, turns)
    return session, time, context, _sampled_variants(stream, sessions, rng)


def _chains(
    stream: SessionStream, horizon: float, rng: np.random.Generator, rates: RateCurve | RandomBursts
) -> tuple[Array, int]:
    """Start of each independent chain of sessions and sessions in each: one for a Poisson arrival, enough to
    fill the horizon for an agent."""
    if stream.agents is None:
        return rates.times(float(stream.arrival_rate), horizon, rng), 1
    sessions = horizon / float(stream.turns.mean * stream.gap.mean)
    starts = rng.uniform(0.0, float(stream.gap.mean), int(stream.agents))
    return starts, int(2.0 * sessions + 10.0 * np.sqrt(sessions) + 20.0)


def _within(values: Array, start: Array, turns: Array) -> Array:
    """Running sum inside each session."""
    total = np.cumsum(values)
    return total - np.repeat(total[start] - values[start], turns)


def _sampled_variants(stream: SessionStream, sessions: int, rng: np.random.Generator) -> Array:
    if stream.prefix is None:
        return np.full(sessions, -1)
    count = np.asarray(stream.prefix.count, int)
    chance = np.repeat(np.asarray(stream.prefix.share, float), count)
    return rng.choice(len(chance), sessions, p=chance / chance.sum())


def simulate_sessions(
    streams: Sequence[SessionStream],
    horizon: float,
    seed: int,
    touch: Touch = "reverse",
    warm_up: float = 0.2,
    rates: RateCurve | RandomBursts | None = None,
    second_use: bool = False,
) -> TurnLog:
    """Run the streams for `horizon` seconds and log every turn after the first `warm_up` share of it.

    rates: how arrivals change over time; steady when absent. second_use: a context enters at its second turn.
    Sessions that began before time zero are missing, so the warm-up must exceed the length of a session and
    the longest pause that matters. Cost: about 10 microseconds a turn.
    """
    events = sampled_events(streams, horizon, np.random.default_rng(seed), rates)
    return _replayed(streams, events, touch, warm_up * horizon, second_use)


def sampled_events(
    streams: Sequence[SessionStream],
    horizon: float,
    rng: np.random.Generator,
    rates: RateCurve | RandomBursts | None = None,
) -> Array:
    """All turns before the horizon in time order; rows are time, stream, session, context after the turn,
    head (-1)."""
    heads = {id(s.prefix): n for n, s in enumerate(streams) if s.prefix is not None}
    parts, rates = [], rates or RateCurve(horizon, (1.0,), (1.0,))
    for index, stream in enumerate(streams):
        session, time, size, variant = _sampled_turns(stream, horizon, rng, rates)
        key = session * len(streams) + index
        head = np.where(variant < 0, -1, variant * len(streams) + heads.get(id(stream.prefix), 0))[session]
        parts.append(np.array([time, np.full(len(time), index), key, size, head])[:, time < horizon])
    events = np.concatenate(parts, axis=1)
    return events[:, np.argsort(events[0], kind="stable")]


class _Entries:
    """Current stack position and size of the entries of one sort, by owner; a dropped entry keeps its
    size."""

    def __init__(self, stack: _Stack):
        self.stack = stack
        self.position: dict[float, int] = {}
        self.size: dict[float, float] = {}

    def above(self, owner: float) -> float:
        position = self.position.get(owner)
        return np.inf if position is None else self.stack.above(position)

    def drop(self, owner: float, position: int | None = None) -> None:
        """Take the entry out, if it is still where it was."""
        if position is None or self.position.get(owner) == position:
            held = self.position.pop(owner, None)
            if held is not None:
                self.stack.add(held, -self.size[owner])

    def push(self, owner: float, position: int, size: float) -> None:
        self.position[owner], self.size[owner] = position, size
        self.stack.add(position, size)


def _replayed(streams: Sequence[SessionStream], events: Array, touch: Touch, start: float, second_use: bool) -> TurnLog:
    """Push every turn through the stack. In reverse touch the head lies above the session's own context."""
    tokens = [0.0 if s.prefix is None else float(s.prefix.tokens) for s in streams]
    retention = [float(s.retention) for s in streams]
    over_private, over_head = (0, 1) if touch == "reverse" else (1, 0)
    stack = _Stack(2 * events.shape[1])
    contexts, heads = _Entries(stack), _Entries(stack)
    expiry: list[tuple[float, int, float, _Entries]] = []
    rows = []
    for i, (now, of, key, size, head) in enumerate(zip(*events.tolist(), strict=True)):
        while expiry and expiry[0][0] < now:
            _, position, owner, entries = heapq.heappop(expiry)
            entries.drop(owner, position)
        length, context = tokens[int(of)], contexts.size.get(key, 0.0)
        if now >= start:
            above, over = contexts.above(key), heads.above(head)
            if touch == "forward" and head >= 0:
                above = max(above, over + length - context)  # a lost head loses the context behind it
            rows.append((of, context, above, length, over))
        touched = [(contexts, key, 2 * i + over_private, size)]
        if second_use and key not in contexts.size:
            contexts.size[key], touched = size, []
        if head >= 0:
            touched.append((heads, head, 2 * i + over_head, length))
        for entries, owner, _, _ in touched:
            entries.drop(owner)
        for entries, owner, position, amount in touched:
            entries.push(owner, position, amount)
            if retention[int(of)] < np.inf:
                heapq.heappush(expiry, (now + retention[int(of)], position, owner, entries))
    return TurnLog(touch, *np.array(rows).T)


def hit_ratio(log: TurnLog, capacity: ArrayLike, stream: int | None = None, batches: int = 20) -> HitRatio:
    """Share of the reusable tokens found at each capacity, of one stream or of all, with the standard error
    of the ratio from means over `batches` equal spans of turns."""
    mine = slice(None) if stream is None else log.stream == stream
    capacity = np.atleast_1d(np.asarray(capacity, float))
    private = _ratio(log.private[mine], log.above[mine], log.touch, capacity, batches)
    return HitRatio(*private, *_ratio(log.prefix[mine], log.over[mine], log.touch, capacity, batches))


def _ratio(size: Array, above: Array, touch: Touch, capacity: Array, batches: int) -> tuple[Array, Array]:
    room = np.minimum(capacity, 1e300)[:, None] - above
    found = np.clip(room, 0.0, size) if touch == "reverse" else np.where(room >= size, size, 0.0)
    return ratio_of_sums(found, size, batches)


def ratio_of_sums(part: Array, whole: Array, batches: int = 20) -> tuple[Array, Array]:
    """sum(part) / sum(whole) over the last axis, and its standard error from the means of numerator minus ratio
    times denominator over `batches` equal spans."""
    edges = np.linspace(0, len(whole), batches + 1).astype(int)[:-1]
    top, bottom = np.add.reduceat(part, edges, axis=-1), np.add.reduceat(whole, edges)
    ratio = top.sum(axis=-1) / max(bottom.sum(), 1e-300)
    residual = top - ratio[..., None] * bottom
    return ratio, np.sqrt(batches * residual.var(axis=-1, ddof=1)) / max(bottom.sum(), 1e-300)
