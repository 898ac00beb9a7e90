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
    "Rates",
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
    prefix   tokens of its shared heads, first to last on axis 0, zero where it has none           [tokens]
    over     tokens above each head, likewise                                                      [tokens]
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

    @property
    def span(self) -> float:
        """Time in which the course of the rate averages out: ten periods [s]."""
        return 10.0 * self.period

    def curve(self, horizon: float, rng: np.random.Generator) -> RateCurve:
        """The rate's course in one run: always the same."""
        return self

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
    """Arrival rates that alternate between two levels, each for an exponential time; all streams of a run share them.

    share of the time in a burst; factor: rate in a burst over the mean rate, at most 1/share, where nothing arrives
    between bursts; mean_length of a burst [s].
    """

    share: float
    factor: float
    mean_length: float

    @property
    def span(self) -> float:
        """Time in which the course of the rate averages out: three hundred bursts [s]."""
        return 300.0 * self.mean_length / self.share

    def curve(self, horizon: float, rng: np.random.Generator) -> RateCurve:
        """One course of the rate, longer than the horizon; it is in its steady state at time zero."""
        mean = self.mean_length * np.array([1.0, 1.0 / self.share - 1.0])
        cycles = horizon / mean.sum()
        length = rng.exponential(mean, (int(cycles + 10.0 * np.sqrt(cycles) + 20.0), 2)).ravel()
        quiet = (1.0 - self.share * self.factor) / (1.0 - self.share)
        first = int(rng.uniform() < self.share)  # what is left of an exponential time is as long as a new one
        level = np.tile([self.factor, quiet], len(length) // 2)[1 - first :]
        length = length[1 - first :]
        return RateCurve(float(length.sum()), length / length.sum(), level)

    def times(self, rate: float, horizon: float, rng: np.random.Generator) -> Array:
        """Arrival times before the horizon, of a course of their own."""
        return self.curve(horizon, rng).times(rate, horizon, rng)


Rates = RateCurve | RandomBursts


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
    stream: SessionStream, horizon: float, rng: np.random.Generator, rates: RateCurve
) -> tuple[Array, ...]:
    """All turns of the sessions that arrive before the horizon: session, time, context after the turn,
    variant of each head."""
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


def _chains(stream: SessionStream, horizon: float, rng: np.random.Generator, rates: RateCurve) -> tuple[Array, int]:
    """Start of each independent chain of sessions and sessions in each: one for a Poisson arrival, enough to
    fill the horizon for an agent. Agents start anywhere within a session's length: where pauses and turns do not vary
    they would go in step for ever."""
    if stream.agents is None:
        return rates.times(float(stream.arrival_rate), horizon, rng), 1
    length = float(stream.turns.mean * stream.gap.mean)
    sessions = horizon / length
    starts = rng.uniform(0.0, length, int(stream.agents))
    return starts, int(2.0 * sessions + 10.0 * np.sqrt(sessions) + 20.0)


def _within(values: Array, start: Array, turns: Array) -> Array:
    """Running sum inside each session."""
    total = np.cumsum(values)
    return total - np.repeat(total[start] - values[start], turns)


def _sampled_variants(stream: SessionStream, sessions: int, rng: np.random.Generator) -> list[Array]:
    """Number of each session's variant of each head, those beside different variants of the head before told apart."""
    variants, above = [], np.zeros(sessions, int)
    for head in stream.heads:
        chance = np.repeat(np.asarray(head.share, float), np.asarray(head.count, int))
        above = above * len(chance) + rng.choice(len(chance), sessions, p=chance / chance.sum())
        variants.append(above)
    return variants


def simulate_sessions(
    streams: Sequence[SessionStream],
    horizon: float,
    seed: int,
    touch: Touch = "reverse",
    warm_up: float = 0.2,
    rates: Rates | Sequence[Rates | None] | None = None,
    second_use: bool = False,
) -> TurnLog:
    """Run the streams for `horizon` seconds and log every turn after the first `warm_up` share of it.

    rates: how arrivals change over time, of all streams or of each; steady when absent. second_use: a context enters at
    its second turn.
    Sessions that began before time zero are missing, so the warm-up must exceed the length of a session and
    the longest pause that matters. Cost: about 10 microseconds a turn.
    """
    if any(np.any(np.asarray(stream.deleted) > 0.0) for stream in streams):
        raise ValueError("sessions that are deleted leave holes in the stack; simulate them with `simulate_policy`")
    events = sampled_events(streams, horizon, np.random.default_rng(seed), rates)
    return _replayed(streams, events, touch, warm_up * horizon, second_use)


def sampled_events(
    streams: Sequence[SessionStream],
    horizon: float,
    rng: np.random.Generator,
    rates: Rates | Sequence[Rates | None] | None = None,
    running: bool = False,
) -> Array:
    """All turns before the horizon in time order; rows are time, stream, session, context after the turn, and its
    shared heads, first to last: at least one row, -1 where it has none.

    rates: of all streams, or of each; those with the same object have its bursts together. running: with the sessions
    that run at time zero, and all their turns before it, at negative times; without them the first sessions are all
    young.
    """
    heads = {head: n for n, head in enumerate(dict.fromkeys(head for s in streams for head in s.heads))}
    levels = max(1, *(len(stream.heads) for stream in streams))
    before = max(_lasting(stream, horizon) for stream in streams) if running else 0.0
    parts, each = [], rates if isinstance(rates, Sequence) else [rates] * len(streams)
    steady = RateCurve(before + horizon, (1.0,), (1.0,))
    courses = {id(r): (r or steady).curve(before + horizon, rng) for r in {id(r): r for r in each}.values()}
    for index, (stream, rate) in enumerate(zip(streams, each, strict=True)):
        session, time, size, variants = _sampled_turns(stream, before + horizon, rng, courses[id(rate)])
        time = time - before
        rows = np.full((4 + levels, len(time)), -1.0)
        rows[:4] = time, np.full(len(time), index), session * len(streams) + index, size
        for row, head, variant in zip(rows[4:], stream.heads, variants, strict=False):
            row[:] = (variant * len(heads) + heads[head])[session]
        last = time[np.flatnonzero(np.diff(session, append=-1))]
        parts.append(rows[:, (time < horizon) & (last[session] >= 0.0)])
    events = np.concatenate(parts, axis=1)
    return events[:, np.argsort(events[0], kind="stable")]


def _lasting(stream: SessionStream, horizon: float) -> float:
    """Time that all but a few sessions end within: ten mean sessions, at most ten horizons [s]."""
    return min(10.0 * float(stream.turns.mean * stream.gap.mean), 10.0 * horizon)


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
    """Push every turn through the stack. In reverse touch the own context is touched first and the head of the prompt
    last; in forward touch the other way round."""
    tokens = [[float(head.tokens) for head in s.heads] for s in streams]
    retention = [float(s.retention) for s in streams]
    levels = len(events) - 4
    stack = _Stack((1 + levels) * events.shape[1])
    contexts, heads = _Entries(stack), _Entries(stack)
    expiry: list[tuple[float, int, float, _Entries]] = []
    rows = []
    for i, (now, of, key, size, *chain) in enumerate(zip(*events.tolist(), strict=True)):
        while expiry and expiry[0][0] < now:
            _, position, owner, entries = heapq.heappop(expiry)
            entries.drop(owner, position)
        lengths, context = tokens[int(of)], contexts.size.get(key, 0.0)
        if now >= start:
            above, over = contexts.above(key), [heads.above(head) for head in chain]
            if touch == "forward":  # a lost head loses what is behind it
                needed = 0.0
                for level, length in enumerate(lengths):
                    over[level] = max(over[level], needed - length)
                    needed = over[level] + length
                above = max(above, needed - context)
            rows.append((of, context, above, *lengths, *[0.0] * (levels - len(lengths)), *over))
        touched = [(contexts, key, size)]
        if second_use and key not in contexts.size:
            contexts.size[key], touched = size, []
        touched += [(heads, head, length) for head, length in zip(chain, lengths, strict=False)][::-1]
        for entries, owner, _ in touched:
            entries.drop(owner)
        ordered = touched if touch == "reverse" else touched[::-1]
        for position, (entries, owner, amount) in enumerate(ordered, (1 + levels) * i):
            entries.push(owner, position, amount)
            if retention[int(of)] < np.inf:
                heapq.heappush(expiry, (now + retention[int(of)], position, owner, entries))
    columns = np.array(rows).T
    return TurnLog(touch, *columns[:3], columns[3 : 3 + levels], columns[3 + levels :])


def hit_ratio(
    log: TurnLog, capacity: ArrayLike, stream: int | None = None, batches: int = 20, level: int | None = None
) -> HitRatio:
    """Share of the reusable tokens found at each capacity, of one stream or of all, with the standard error
    of the ratio from means over `batches` equal spans of turns. Of all shared heads together, or of those of one level
    (0: at the beginning of the prompt)."""
    mine = slice(None) if stream is None else log.stream == stream
    levels = slice(None) if level is None else slice(level, level + 1)
    capacity = np.atleast_1d(np.asarray(capacity, float))
    private = _ratio(log.private[None, mine], log.above[None, mine], log.touch, capacity, batches)
    return HitRatio(*private, *_ratio(log.prefix[levels, mine], log.over[levels, mine], log.touch, capacity, batches))


def _ratio(size: Array, above: Array, touch: Touch, capacity: Array, batches: int) -> tuple[Array, Array]:
    """Ratio of sums, over the parts on axis 0 as well."""
    found: Array = 0.0
    for tokens, over in zip(size, above, strict=True):
        room = np.minimum(capacity, 1e300)[:, None] - over
        found = found + (np.clip(room, 0.0, tokens) if touch == "reverse" else np.where(room >= tokens, tokens, 0.0))
    return ratio_of_sums(found, size.sum(axis=0), batches)


def ratio_of_sums(part: Array, whole: Array, batches: int = 20) -> tuple[Array, Array]:
    """sum(part) / sum(whole) over the last axis, and its standard error from the means of numerator minus ratio
    times denominator over `batches` equal spans; nan of fewer than two values."""
    batches = min(batches, len(whole))
    if batches < 2:
        return np.full(part.shape[:-1], np.nan), np.full(part.shape[:-1], np.nan)
    edges = np.linspace(0, len(whole), batches + 1).astype(int)[:-1]
    top, bottom = np.add.reduceat(part, edges, axis=-1), np.add.reduceat(whole, edges)
    ratio = top.sum(axis=-1) / max(bottom.sum(), 1e-300)
    residual = top - ratio[..., None] * bottom
    return ratio, np.sqrt(batches * residual.var(axis=-1, ddof=1)) / max(bottom.sum(), 1e-300)
