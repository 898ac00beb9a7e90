"""Sessions that share a cache, and how many distinct tokens they touch in a window: the working set W(t).

Sessions arrive as a Poisson process; turn k leaves a context of S_k tokens, S_1 = first, S_{k+1} = S_k +
step; the next turn comes after a pause (gap), or never. Every context counts once, at its last size. Moments
here; the law of W and what a cache makes of it are in `reuse`.

Shapes: parameters and capacities of study shape A broadcast together; a time argument may carry axes in
front. Sizes and capacities are in the same unit, [tokens] below ([B] works as well).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvmodel.formulas.laws import Constant, FixedTurns, Law, Sum, Turns

__all__ = [
    "SessionStream",
    "SharedPrefix",
    "characteristic_time",
    "contexts_held",
    "crossing",
    "one_in",
    "reused_within",
    "shared_pools",
    "untouched_probability",
    "variant_groups",
    "working_set_mean",
    "working_set_variance",
]

Array = NDArray[Any]
_NOTHING, _ONE_TURN = Constant(0.0), FixedTurns(1)
_LOG_FOREVER = 50.0  # e^50 s: where all sessions are deleted nothing else ends the search


@dataclass(frozen=True, eq=False)
class SharedPrefix:
    """Prompt heads requested by many sessions, one physical copy of each variant.

    tokens  length of a head                                            [tokens]
    share   probability of one variant of group g, axis 0 is the group  [-]
    count   number of equally popular variants in group g               [-]
    under   the head before it, or None at the beginning of the prompt
    sum(share * count) = 1. Streams that hold the same object share the copies. Under another head, share and count are
    those beside one variant of it, the same beside each; copies beside different variants are different objects.
    """

    tokens: ArrayLike
    share: ArrayLike
    count: ArrayLike
    under: SharedPrefix | None = None

    @classmethod
    def uniform(cls, tokens: ArrayLike, variants: ArrayLike, under: SharedPrefix | None = None) -> SharedPrefix:
        """`variants` equally popular heads."""
        count = np.asarray(variants, float)[None]
        return cls(tokens, 1.0 / count, count, under)

    @classmethod
    def explicit(cls, tokens: ArrayLike, popularity: ArrayLike, under: SharedPrefix | None = None) -> SharedPrefix:
        """One variant per row of `popularity`, which is normalised over axis 0."""
        weight = np.asarray(popularity, float)
        return cls(tokens, weight / weight.sum(axis=0), np.ones_like(weight), under)

    @classmethod
    def zipf(
        cls,
        tokens: ArrayLike,
        variants: ArrayLike,
        exponent: ArrayLike,
        groups: int = 4,
        under: SharedPrefix | None = None,
    ) -> SharedPrefix:
        """Popularity proportional to rank^-exponent: the three hottest alone, the others in groups.

        Groups are the nodes of Gauss's rule in the logarithm of the rank, with its weights, rounded to whole
        variants, as their counts: sums over the variants of any smooth function of popularity come out right.
        A group's variants stay separate objects. Total weight by the midpoint integral of x^-exponent, within
        0.3 % of the sum from rank 4 on. Equally popular ones (exponent zero throughout) are one group.
        """
        if not np.any(exponent):
            return cls.uniform(tokens, variants, under)
        variants, exponent = np.broadcast_arrays(np.asarray(variants, float), np.asarray(exponent, float))
        lead = (-1,) + (1,) * variants.ndim
        node, part = (values.reshape(lead) for values in np.polynomial.legendre.leggauss(groups))
        last = np.maximum(variants, 4.0) + 0.5
        rank = 3.5 * (last / 3.5) ** (0.5 * (1.0 + node))
        until = np.cumsum(rank * part, axis=0)
        until = np.rint(until / until[-1:] * np.maximum(variants - 3.0, 0.0))
        tail_count = np.diff(until, axis=0, prepend=0.0)
        tail = rank**-exponent
        counted = (tail_count * tail).sum(axis=0)
        tail = tail * np.where(counted > 0.0, _power_integral(3.5, last, exponent) / np.maximum(counted, 1e-300), 1.0)
        hot_rank = np.arange(1.0, 4.0).reshape(lead)
        count = np.concatenate([np.where(hot_rank <= variants, 1.0, 0.0), tail_count])
        weight = np.concatenate([np.broadcast_to(hot_rank**-exponent, count[:3].shape), tail])
        used = count.reshape(len(count), -1).any(axis=1)
        return cls(tokens, (weight / (weight * count).sum(axis=0))[used], count[used], under)

    @property
    def shape(self) -> tuple[int, ...]:
        own = np.broadcast_shapes(np.shape(self.tokens), np.shape(self.share)[1:], np.shape(self.count)[1:])
        return own if self.under is None else np.broadcast_shapes(own, self.under.shape)

    @property
    def chain(self) -> tuple[SharedPrefix, ...]:
        """The heads from the beginning of the prompt down to this one."""
        return (*(() if self.under is None else self.under.chain), self)

    def paths(self, ndim: int) -> tuple[Array, Array]:
        """Probability of one variant, and number of equally popular ones, with the groups of every head before it told
        apart: (groups of the first x ... x groups of this one,) + `ndim` study axes."""
        ndim = max(ndim, len(self.shape))
        own = tuple(variant_groups(values, ndim) for values in (self.share, self.count))
        if self.under is None:
            return own
        before = self.under.paths(ndim)
        pairs = [a[:, None] * b[None] for a, b in zip(before, own, strict=True)]
        return tuple(pair.reshape(-1, *pair.shape[2:]) for pair in pairs)


def _power_integral(low: Array, high: Array, exponent: Array) -> Array:
    """Integral of x^-exponent; the logarithm at exponent one."""
    p = 1.0 - exponent
    ratio = np.log(high / low)
    flat = np.abs(p) < 1e-9
    safe = np.where(flat, 1.0, p)
    return np.where(flat, ratio, low**safe * np.expm1(safe * ratio) / safe)


class RatesSeen(Protocol):
    """Paths of a rate, on an axis in front of all study axes, felt by one stream after a pause or window of t [s]."""

    time: Array  # share of the time of each path

    @property
    def shape(self) -> tuple[int, ...]: ...

    def seen(self, t: ArrayLike) -> Array:
        """Rate of sessions a window of t sees, over the mean rate."""

    def returning(self, t: ArrayLike) -> Array:
        """Returns after a pause t, over their mean."""

    def using(self, t: ArrayLike) -> Array:
        """All turns, where a window of t sees `seen`, over their mean."""


@dataclass(frozen=True)
class SessionStream:
    """Sessions of one kind that share the cache with the other streams.

    arrival_rate  new sessions                                        [1/s]
    first, step   tokens after the first turn, and added by each more [tokens]; without the shared head
    turns         number of turns of a session
    gap           pause between the end of a turn and the next
    retention     a context is dropped this long after its last use   [s], infinite: only when space is needed
    lifetime      the same since it was written, used or not (only the rules of `residence` know it) [s]
    value, head_value  worth of a token found, own or of the head, relative to others (only `eviction` asks)
    window        the unit in which the age of a context is counted: LRU where all are equal [-]; times t are then
                  in this unit
    head_window   the same for the shared heads
    prefix        shared head under every turn of the session, the last where they nest, or None
    agents        size of a fixed population, see `of_agents`; None: sessions arrive as a Poisson process
    deleted       share of the sessions whose context is freed when they end [-]
    rates         what the cache sees of a rate that changes (`varying_rates`); None: steady
    A prompt head requested on its own is a stream of one turn with `first` = what follows it (Constant(0)
    for nothing).
    """

    arrival_rate: ArrayLike
    first: Law
    step: Law = _NOTHING
    turns: Turns = _ONE_TURN
    gap: Law = _NOTHING
    retention: ArrayLike = np.inf
    prefix: SharedPrefix | None = None
    agents: ArrayLike | None = None
    deleted: ArrayLike = 0.0
    rates: RatesSeen | None = None
    lifetime: ArrayLike = np.inf
    value: ArrayLike = 1.0
    head_value: ArrayLike = 1.0
    window: ArrayLike = 1.0
    head_window: ArrayLike = 1.0

    @classmethod
    def of_agents(
        cls, agents: ArrayLike, first: Law, step: Law, turns: Turns, gap: Law, **options: Any
    ) -> SessionStream:
        """A fixed population: each agent runs one session after the other and makes one pause after every
        turn, the last one included. Its sessions arrive at agents / (E K * E Gap); the others are agents -
        1, not a Poisson number. Serving times are part of the pauses. Needs a pause of finite mean."""
        rate = np.asarray(agents, float) / (turns.mean * gap.mean)
        return cls(rate, first, step, turns, gap, agents=agents, **options)

    @property
    def shape(self) -> tuple[int, ...]:
        """Study shape A of all parameters."""
        parts = [
            np.shape(self.arrival_rate),
            np.shape(self.retention),
            np.shape(self.deleted),
            *map(np.shape, (self.lifetime, self.value, self.head_value, self.window, self.head_window)),
            self.first.shape,
            self.step.shape,
            self.turns.shape,
            self.gap.shape,
        ]
        parts += [part.shape for part in (self.prefix, self.rates) if part is not None]
        return np.broadcast_shapes(*parts, () if self.agents is None else np.shape(self.agents))

    @property
    def heads(self) -> tuple[SharedPrefix, ...]:
        """The shared heads of its prompts, first to last."""
        return () if self.prefix is None else self.prefix.chain

    @property
    def head_tokens(self) -> ArrayLike:
        """Tokens of all its shared heads."""
        return sum((head.tokens for head in self.heads), 0.0)

    @cached_property
    def paused_moments(self) -> tuple[Array, Array, Array]:
        """E sum_k 1(K > k) S_k^n for n = 0, 1, 2: what one session leaves waiting for a next turn."""
        j1, j2, j3 = self.turns.factorial_moments
        f, d = self.first.mean, self.step.mean
        square = self.first.second_moment * j1 + (self.step.variance + 2.0 * f * d) * j2 / 2.0
        return j1, f * j1 + d * j2 / 2.0, square + d * d * (j3 / 3.0 + j2 / 2.0)

    @cached_property
    def finished_moments(self) -> tuple[Array, Array, Array]:
        """E S_K^n for n = 0, 1, 2: what one session leaves behind for ever; nothing where it is deleted."""
        j1, j2, _ = self.turns.factorial_moments
        f, d = self.first.mean, self.step.mean
        square = self.first.second_moment + (self.step.variance + 2.0 * f * d) * j1 + d * d * (j2 + j1)
        left = 1.0 - np.asarray(self.deleted, float)
        return np.ones_like(j1), left * (f + d * j1), left * square

    @property
    def context_scale(self) -> Array:
        """E S_K, deleted or not [tokens]."""
        return self.first.mean + self.step.mean * self.turns.factorial_moments[0]

    @property
    def second_uses(self) -> SessionStream:
        """The sessions as a cache sees them that admits a context at its second use: those that reach a
        second turn, from then on (a shifted Poisson process is Poisson). Its hits per session count per such
        session: multiply by P(K > 1) = `turns.survival(1)`. Heads are taken as admitted with the session."""
        rate = self.arrival_rate * self.turns.survival(1)
        first, later = Sum((self.first, self.step)), self.turns.after_first
        return replace(self, arrival_rate=rate, first=first, turns=later)

    def held_times(self, t: ArrayLike) -> tuple[Array, Array]:
        """E min(Gap, t) and t, both cut at the retention time [s]: how long a window of t sees a waiting and
        a finished context as last touched; where rates change, times the rate it sees over the mean rate."""
        return self._held(np.minimum(self.window * t, self.retention))

    def _held(self, seen: ArrayLike) -> tuple[Array, Array]:
        factor = 1.0 if self.rates is None else self.rates.seen(seen)
        return factor * self.gap.restricted_mean(seen), factor * seen

    def rate_seen(self, t: ArrayLike) -> Array:
        """Rate of sessions that a window of t sees [1/s]."""
        return np.asarray(self.arrival_rate) * (1.0 if self.rates is None else self.rates.seen(self.window * t))

    def sessions_seen(self, t: ArrayLike) -> Array:
        """Mean number of sessions touched in a window of length t, as their head sees it."""
        paused, finished = self._held(np.minimum(self.head_window * t, self.retention))
        return self.arrival_rate * (self.paused_moments[0] * paused + finished)

    def outlasting(self, t: ArrayLike) -> Array:
        """P(Gap > min(t, retention)): the pause is longer than t, or so long that the context was dropped."""
        return self.gap.survival(np.minimum(self.window * t, self.retention))

    def outlasting_integral(self, t: ArrayLike) -> Array:
        """Integral of `outlasting` from 0 to finite t [s]."""
        seen = np.minimum(self.window * t, self.retention)
        integral = self.gap.restricted_mean(seen) + (self.window * t - seen) * self.gap.survival(seen)
        return integral / self.window

    @property
    def windows(self) -> tuple[ArrayLike, ...]:
        """The different units in which ages of its entries are counted."""
        one = self.prefix is None or np.array_equal(self.window, self.head_window)
        return (self.window,) if one else (self.window, self.head_window)

    @property
    def by_head_window(self) -> SessionStream:
        """The stream with the ages of its contexts counted as those of its head."""
        return replace(self, window=self.head_window)


def shared_pools(streams: Sequence[SessionStream]) -> list[tuple[SharedPrefix, list[SessionStream]]]:
    """Each distinct shared head, none before the one it lies under, with the streams whose prompts hold it."""
    users: dict[SharedPrefix, list[SessionStream]] = {}
    for stream in streams:
        for head in stream.heads:
            users.setdefault(head, []).append(stream)
    return list(users.items())


def _private_moment(stream: SessionStream, t: ArrayLike, order: int) -> tuple[Array, Array]:
    """Sum of size^order over the contexts whose pause still runs (that after the last turn included), and
    over older finished ones, expected in a window of length t."""
    paused, finished = stream.held_times(t)
    running = stream.paused_moments[order] + stream.finished_moments[order]
    older = (finished - paused) * stream.finished_moments[order]
    return stream.arrival_rate * paused * running, stream.arrival_rate * older


def _private_mean(stream: SessionStream, t: ArrayLike) -> Array:
    running, older = _private_moment(stream, t, 1)
    return (1.0 - one_in(stream)) * (running + older)


def _private_variance(stream: SessionStream, t: ArrayLike) -> Array:
    """Second cumulant; binomial for the running part of a fixed population."""
    mean, _ = _private_moment(stream, t, 1)
    running, older = _private_moment(stream, t, 2)
    share = one_in(stream)
    return (1.0 - share) * (running - share * mean**2 + older)


def one_in(stream: SessionStream) -> ArrayLike:
    """1/agents; zero for a Poisson process."""
    return 0.0 if stream.agents is None else 1.0 / np.asarray(stream.agents, float)


def untouched_probability(prefix: SharedPrefix, seen: Array) -> Array:
    """P(no session on one variant of a path in the window), paths on a new leading axis."""
    share, _ = prefix.paths(np.ndim(seen))
    return np.exp(-share * seen)


def variant_groups(values: ArrayLike, ndim: int) -> Array:
    """Axis 0 (groups) kept in front, the study axes of `values` aligned with the last of `ndim` axes."""
    values = np.asarray(values, float)
    return values.reshape(values.shape[:1] + (1,) * (ndim - values.ndim + 1) + values.shape[1:])


def reused_within(streams: Sequence[SessionStream], t: ArrayLike) -> tuple[list[Array], list[list[Array]]]:
    """Private and head tokens per session that were last used at most t ago (and so lately that retention did not drop
    them) when they are wanted again: what a cache finds that keeps all for t. By stream; heads by level first."""
    outlasting = [stream.outlasting(t) for stream in streams]
    private = [s.paused_moments[1] * (1.0 - longer) for s, longer in zip(streams, outlasting, strict=True)]
    levels = max(len(stream.heads) for stream in streams)
    heads = [[np.zeros(np.shape(longer)) for longer in outlasting] for _ in range(levels)]
    for pool, users in shared_pools(streams):
        seen = sum(user.sessions_seen(np.minimum(t, 1e150)) for user in users)
        share, count = pool.paths(np.ndim(seen))
        quiet = untouched_probability(pool, seen)
        for i, (stream, longer) in enumerate(zip(streams, outlasting, strict=True)):
            if pool in stream.heads:
                turns = 1.0 - quiet + stream.paused_moments[0] * (1.0 - quiet * longer)
                heads[len(pool.chain) - 1][i] = (pool.tokens * share * count * turns).sum(axis=0)
    return private, heads


def working_set_mean(streams: Sequence[SessionStream], t: ArrayLike) -> Array:
    """Mean tokens touched in a window of length t, E W(t) [tokens].

    sum_i lambda_i ( E min(Gap, t) E sum_k 1(K>k) S_k + t E S_K ) + sum_variants P (1 - exp(-L)), L the
    sessions of the variant seen in the window. Zero at t = 0; grows without bound with t through finished
    sessions, unless retention ends them. Exact. t [s] has shape (T,) + A or A.
    """
    total = sum(_private_mean(stream, t) for stream in streams)
    for prefix, users in shared_pools(streams):
        seen = sum(stream.sessions_seen(t) for stream in users)
        _, count = prefix.paths(np.ndim(seen))
        total = total + prefix.tokens * (count * (1.0 - untouched_probability(prefix, seen))).sum(axis=0)
    return total


def working_set_variance(streams: Sequence[SessionStream], t: ArrayLike) -> Array:
    """Variance of W(t) [tokens^2]: second cumulant of the sessions, Bernoulli variance of each shared head,
    and their covariance (a session seen brings its heads). Exact; zero at t = 0."""
    total = sum(_private_variance(stream, t) for stream in streams)
    untouched: dict[SharedPrefix, Array] = {}
    for prefix, users in shared_pools(streams):
        seen = sum(stream.sessions_seen(t) for stream in users)
        private = sum(_private_mean(stream, t) for stream in users)
        out = untouched[prefix] = untouched_probability(prefix, seen)
        share, count = prefix.paths(np.ndim(seen))
        own, joint = np.square(prefix.tokens) * (1.0 - out), 2.0 * prefix.tokens * share * private
        total = total + (count * out * (own + joint)).sum(axis=0)
        for head in prefix.chain[:-1]:
            before = np.repeat(untouched[head], len(out) // len(untouched[head]), axis=0)
            total = total + 2.0 * head.tokens * prefix.tokens * (count * before * (1.0 - out)).sum(axis=0)
    return total


def characteristic_time(streams: Sequence[SessionStream], capacity: ArrayLike) -> Array:
    """Window t [s] whose mean working set is the capacity [tokens]: E W(t) = C (Che's characteristic time).

    Where retention or a finite set of heads keeps the mean below C for ever, the time at which it reaches
    0.8 of its limit. Zero at C = 0. Found in log t between the bounds given by all touches and by
    finished sessions alone.
    """
    capacity = np.asarray(capacity, float)
    touched = sum(s.window * s.arrival_rate * (s.paused_moments[1] + s.finished_moments[1]) for s in streams)
    heads = sum(s.head_window * s.arrival_rate * s.turns.mean * s.head_tokens for s in streams)
    left = sum(s.window * s.arrival_rate * s.finished_moments[1] for s in streams)
    high = np.log(10.0 * np.maximum(capacity, 1e-200) / np.maximum(left, 1e-100))
    high = np.where(left > 0.0, high, _LOG_FOREVER)
    target = np.minimum(capacity, 0.8 * working_set_mean(streams, np.exp(high)))
    low = np.log(np.maximum(target, 1e-200) / np.maximum(touched + heads, 1e-100))
    low, high, target = np.broadcast_arrays(low, np.maximum(high, low), target)

    def over(log_time: Array) -> Array:
        return np.log(np.maximum(working_set_mean(streams, np.exp(log_time)), 1e-300) / np.maximum(target, 1e-300))

    return np.where(target > 0.0, np.exp(crossing(over, low, high)), 0.0)


def contexts_held(streams: Sequence[SessionStream], capacity: ArrayLike) -> Array:
    """Entries of one size that would make the occupancy of so many tokens vary as it does, C E W / Var W at the
    characteristic time [-]: few large ones weigh most. Zero at C = 0."""
    window = characteristic_time(streams, capacity)
    mean, variance = working_set_mean(streams, window), working_set_variance(streams, window)
    return np.asarray(capacity, float) * mean / np.maximum(variance, 1e-300)


def crossing(over: Callable[[Array], Array], low: Array, high: Array, steps: int = 18) -> Array:
    """Where a rising function crosses zero between two ends: false position, the end that stays twice weighing half
    each time (Illinois)."""
    at_low, at_high = np.minimum(over(low), 0.0), np.maximum(over(high), 0.0)
    side = np.zeros(np.shape(low))
    for _ in range(steps):
        gap = at_high - at_low
        x = np.where(gap > 0.0, (low * at_high - high * at_low) / np.where(gap > 0.0, gap, 1.0), high)
        value = over(x)
        above = value >= 0.0
        at_low = np.where(above, np.where(side > 0, 0.5 * at_low, at_low), value)
        at_high = np.where(above, value, np.where(side < 0, 0.5 * at_high, at_high))
        low, high, side = np.where(above, low, x), np.where(above, x, high), np.where(above, 1.0, -1.0)
    return x
