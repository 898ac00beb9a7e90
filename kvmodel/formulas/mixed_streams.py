"""How many bytes does a drive program when data of several lifetimes share it, mixed in one log or placed apart?

Symbols: alpha physical over logical, b pages per erase unit, A amplification, r_k and s_k shares of writes and of space
of class k, heat r_k/s_k. Classes stand on the leading axis, study axes trail. Steady state, reached after three to five
drive fills; `write_amplification.spare_valid` is the flag for alpha.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, expit, exprel

from kvmodel.formulas.write_amplification import fifo_amplification, fifo_victim_valid_share

__all__ = [
    "MixedUnits",
    "SegregatedCache",
    "SharedStream",
    "SpareSplit",
    "best_spare_split",
    "greedy_shared_stream",
    "idle_stream_amplification",
    "segregated_cache",
    "separate_streams_amplification",
    "shared_stream",
]

NEWTON_STEPS = 40  # ten are enough in the usual range
HALVINGS, MIXINGS = 24, 24  # levels tried, and turns of the mixture of copies at each; it carries over to the next
DESCENTS = 400  # turns of a fixed point that falls to its largest root
CONTRACTIONS = 36  # each leaves less than a third of the error


class SharedStream(NamedTuple):
    """Classes of data mixed in one log."""

    amplification: np.ndarray  # [-]
    cycle_writes: np.ndarray  # host writes while the log goes round once, over logical size [-]


def shared_stream(alpha: ArrayLike, write_share: ArrayLike, space_share: ArrayLike) -> SharedStream:
    """Amplification of classes of different heat written through one stream, oldest-first reclaim.

    A = 1 + sum_k r_k / (exp(r_k X / s_k) - 1) with A X = alpha: a page written X ago survives with exp(-r_k X/s_k), so
    the log is a cache seen by its characteristic time.
    alpha        physical over logical, shape A                                           [-]
    write_share  r_k, share of host writes of class k, shape (classes,)+A, summing to one  [-]
    space_share  s_k > 0, share of live data of class k, (classes,)+A, summing to one      [-]
    One class gives `fifo_amplification`. A class never written (r = 0) is carried round for ever. Infinite at
    alpha <= 1. Also the limit of greedy reclaim for large erase units. Source: derived here; within 0.02 % of
    simulation.
    """
    share = np.divide(write_share, space_share)
    spare = np.maximum(np.subtract(alpha, 1.0), 0.0)
    cycle = 1.5 * spare + 0 * np.sum(share, axis=0)
    for _ in range(CONTRACTIONS):
        kept = 1 / exprel(share * cycle)  # y/(exp y - 1) at y = r X/s
        cycle = cycle - (cycle + np.sum(space_share * (kept - 1), axis=0) - spare) / 0.75
    with np.errstate(divide="ignore"):
        amplification = np.maximum(np.divide(alpha, cycle), 1.0)
    return SharedStream(np.where(np.greater(alpha, 1.0), amplification, np.inf), cycle)


class MixedUnits(NamedTuple):
    """Classes of data mixed in one stream of erase units, the emptiest of which is reclaimed."""

    amplification: np.ndarray  # [-]
    program_share: np.ndarray  # share of each class in what is programmed, copies included, leading axis [-]


def greedy_shared_stream(
    alpha: ArrayLike, write_share: ArrayLike, space_share: ArrayLike, pages_per_unit: ArrayLike
) -> MixedUnits:
    """Amplification of classes of different heat written through one stream, fewest valid pages first.

    With many units greedy reclaims a unit when its valid pages have fallen to a level v, at A = b/(b-v). The pages of
    a filled unit are drawn from what is programmed, class k with share q_k, and die at mu_k = r_k/s_k each, so
    the unit lives till the (b-v)-th of b independent deaths of the law F(t) = 1 - sum_k q_k exp(-mu_k t): t = F^-1(U)
    with U of law Beta(b-v, v+1). Units balance, A E[t] = alpha, and so do copies,
    q_k = (1-v/b) r_k + (v/b) E[share of k among the survivors]. Between whole levels v both are linear.
    alpha           physical over logical, shape A                                            [-]
    write_share     r_k > 0, share of host writes of class k, shape (classes,)+A, summing to one  [-]
    space_share     s_k > 0, share of live data of class k, (classes,)+A, summing to one      [-]
    pages_per_unit  b, shape A                                                                [-]
    One class (or equal heat) is greedy reclaim of uniform writes; b without bound is `shared_stream`. Infinite at
    alpha <= 1. Needs at least one page of spare in a unit, see `finite_unit_valid`. Source: derived here; within 1 % of
    simulation at 16 to 64 pages and up to 90 % of writes to a tenth of the data, 2 % low at 95 % to a twentieth
    (survivors lie together, which the draw ignores). Takes a second, so it is meant for small units.
    """
    r, s = (np.asarray(a, float) for a in np.broadcast_arrays(write_share, space_share))
    b = np.asarray(pages_per_unit, float) + 0 * np.sum(r, axis=0)
    spare = np.maximum(np.asarray(alpha, float), 1.0 + 1e-9) + 0 * b
    heat = r / s
    oldest = shared_stream(spare, r, s)  # the limit of large units, which copies most
    mix = r / -np.expm1(-heat * oldest.cycle_writes) / oldest.amplification
    low, high = 0 * b, b * (1 - 1 / oldest.amplification)
    for _ in range(HALVINGS):
        level = 0.5 * (low + high)
        whole = np.floor(level)
        part = level - whole
        for _ in range(MIXINGS):
            (long, left), (short, left_next) = (_unit_life(heat, mix, b, v) for v in (whole, whole + 1))
            copied = ((1 - part) * whole * left + part * (whole + 1) * left_next) / b
            mix = (1 - level / b) * r + copied
        life = (1 - part) * long + part * short
        few = b * life > spare * (b - level)  # units live too long: they are reclaimed fuller than this
        low, high = np.where(few, level, low), np.where(few, high, level)
    amplification = np.where(np.greater(alpha, 1.0), 1 / (1 - level / b), np.inf)
    return MixedUnits(np.where(np.greater(b, 1), amplification, 1.0), mix)


def _unit_life(heat: np.ndarray, mix: np.ndarray, b: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean time until v of b pages are left, and the classes' mean shares of these, for classes mixed as `mix`."""
    odds = np.linspace(-15.0, 15.0, 49).reshape((-1,) + (1,) * b.ndim)  # the tails decide the mean of a mixture
    p = expit(odds)
    weight = p * (1 - p)
    weight = weight / weight.sum(axis=0)
    left = 1 - betaincinv(b - v, v + 1, p)  # share alive
    heat, mix = heat[:, None], mix[:, None]
    t = -np.log(left) / np.sum(mix * heat, axis=0)  # below the root: the survival is convex in t on a log scale
    for _ in range(14):
        alive = mix * np.exp(-heat * t)
        total = np.sum(alive, axis=0)
        t = t + np.log(total / left) * total / np.sum(heat * alive, axis=0)
    alive = mix * np.exp(-heat * t)
    return np.sum(weight * t, axis=0), np.sum(weight * alive / np.sum(alive, axis=0), axis=1)


def idle_stream_amplification(
    alpha: ArrayLike, write_share: ArrayLike, used_again: ArrayLike, in_use: ArrayLike, idle: ArrayLike
) -> np.ndarray:
    """Amplification of a cache that drops what was not used for a time, written through one log, oldest-first reclaim.

    A byte lives L = R + T: it is in use for R, zero with probability 1 - p_k and else exponential of mean m_k, and kept
    T longer. The log comes round every c, and what still lives is written again, so A = E[ceil(L/c)] and
    A c = alpha E[L]; the largest c of these.
    alpha        physical over live data, shape A                                        [-]
    write_share  r_k of class k, shape (classes,)+A, summing to one                      [-]
    used_again   p_k, probability of a use after the one that wrote it, (classes,)+A     [-]
    in_use       m_k > 0, mean time from writing to the last use of such a byte, (classes,)+A  [s]
    idle         T, time kept after the last use (the LRU's characteristic time), shape A  [s]
    T = 0 and p = 1 is `shared_stream` with s_k in proportion to r_k m_k. Nothing used again: data die in the order
    written and A = 1 for any spare; so too as T outgrows m. Oldest-first reclaim, or any reclaim of units so large that
    their contents average out. Source: derived here (renewals of the log over a lifetime); within 2 % of a simulated
    log.
    """
    r, p, m, idle = np.broadcast_arrays(*(np.asarray(a, float) for a in (write_share, used_again, in_use, idle)))
    mean = np.sum(r * (p * m + idle), axis=0)
    whole = alpha * mean
    cycle, amplification = whole, np.ones_like(whole)
    for _ in range(DESCENTS):
        rounds = np.maximum(np.ceil(idle / cycle), 0.0)
        beyond = p * np.exp(-(rounds * cycle - idle) / m) / -np.expm1(-cycle / m)
        amplification = np.sum(r * (rounds + beyond), axis=0)
        cycle = whole / amplification
    return amplification


class SpareSplit(NamedTuple):
    """Spare given to each of several separate streams, and what comes of it."""

    amplification: np.ndarray  # over all host writes [-]
    stream_amplification: np.ndarray  # per class, leading axis [-]
    spare_share: np.ndarray  # share of the spare given to each class, adding up to one [-]


def separate_streams_amplification(
    alpha: ArrayLike, write_share: ArrayLike, space_share: ArrayLike, spare_share: ArrayLike
) -> np.ndarray:
    """Amplification of classes in streams of their own, each with a fixed part of the spare [-].

    A = sum_k r_k A_F(1 + x_k (alpha-1)/s_k), A_F = `fifo_amplification`.
    alpha        physical over logical, shape A                                          [-]
    write_share, space_share   r_k and s_k > 0, shape (classes,)+A, adding up to one     [-]
    spare_share  x_k, shape (classes,)+A, adding up to one; x = s (in proportion to size) gives A_F(alpha)
    [-] Infinite when a class that is written has no spare. Source: Desnoyers (SYSTOR 2012), Stoica and
    Ailamaki (VLDB 2013).
    """
    own_alpha = 1 + np.multiply(spare_share, np.subtract(alpha, 1.0)) / space_share
    return _weighted(write_share, fifo_amplification(own_alpha))


def best_spare_split(alpha: ArrayLike, write_share: ArrayLike, space_share: ArrayLike) -> SpareSplit:
    """Least amplification that one stream per class can reach, and the split of spare that reaches it.

    Minimises `separate_streams_amplification` over x. Where dA/dalpha = -1/phi(u), phi(u) = 1/u - 1 + ln u,
    every class has phi(u_k) = t r_k/s_k with one multiplier t, found from sum_k s_k (alpha_k - 1) = alpha -
    1.
    alpha        physical over logical, shape A                                          [-]
    write_share, space_share   r_k and s_k > 0, shape (classes,)+A, adding up to one     [-]
    A class that is not written gets no spare. Infinite at alpha <= 1, one at infinite spare. Upper bound of
    what data placement (streams, FDP) gives: separating alone, without moving spare, only gives back
    A_F(alpha). Source: problem as in Desnoyers (SYSTOR 2012) and Stoica and Ailamaki (VLDB 2013); solution
    derived here.
    """
    heat = np.divide(write_share, space_share)
    hottest = np.max(heat, axis=0)
    heat = np.maximum(heat, 1e-24 * hottest)  # so that a class never written has a place on the curve too
    # Beyond 500 every amplification is one in double precision.
    spare = np.clip(np.subtract(alpha, 1.0), 1e-6, 500.0) + 0 * hottest
    # If all classes were as hot as the hottest, the least multiplier would do. Newton climbs from there to
    # the root and never passes it, because the spare used is concave in the multiplier.
    even = fifo_victim_valid_share(1 + spare)
    multiplier = (1 / even - 1 + np.log(even)) / hottest
    for _ in range(NEWTON_STEPS):
        v = _inverse_valid_share_less_one(multiplier * heat)
        used = np.sum(space_share * _spare(v), axis=0)
        slope = np.sum(space_share * heat * (multiplier * heat / v) * (1 + 1 / v) / v, axis=0)
        multiplier = multiplier + (spare - used) / slope
    v = _inverse_valid_share_less_one(multiplier * heat)
    split = space_share * _spare(v)
    stream = 1 + 1 / v
    total = np.where(np.greater(alpha, 1.0), _weighted(write_share, stream), np.inf)
    return SpareSplit(total, stream, split / np.sum(split, axis=0))


class SegregatedCache(NamedTuple):
    """Small-object buckets and a large-object log on separate reclaim-unit handles."""

    amplification: np.ndarray  # over all host writes [-]
    small_amplification: np.ndarray  # of the small-object buckets [-]
    large_amplification: np.ndarray  # of the large-object log [-]


def segregated_cache(small_share: ArrayLike, spare_share: ArrayLike, small_write_share: ArrayLike) -> SegregatedCache:
    """Amplification of a cache that places its small-object buckets and its large-object log apart (FDP) [-].

    The log evicts whole regions in the order written, so its reclaim units die whole: A = 1. The buckets are
    overwritten at random and have all the spare: A = A_F((small + spare)/small), A_F = `fifo_amplification`.
    small_share        space of the small-object buckets over logical size, above zero   [-]
    spare_share        spare over logical size, alpha - 1                                [-]
    small_write_share  share of host writes that goes to the buckets                     [-]
    Amplification one when nothing is written to the buckets. Needs log order across regions and a handle per
    side; on a drive without data placement use `shared_stream`. Source: structure of arXiv 2503.11665
    (CacheLib on FDP, EuroSys 2025), whose abstract reports about one.
    """
    small = fifo_amplification(np.add(small_share, spare_share) / small_share)
    large = np.ones_like(small)
    shares = np.stack(np.broadcast_arrays(small_write_share, np.subtract(1.0, small_write_share)))
    return SegregatedCache(_weighted(shares, np.stack(np.broadcast_arrays(small, large))), small, large)


def _weighted(write_share: ArrayLike, amplification: ArrayLike) -> np.ndarray:
    """Mean amplification over the leading axis, where a class that is not written counts nothing even at A =
    inf."""
    with np.errstate(invalid="ignore"):
        return np.sum(np.where(np.greater(write_share, 0), np.multiply(write_share, amplification), 0.0), axis=0)


def _spare(v: np.ndarray) -> np.ndarray:
    """alpha - 1 at which a victim has the valid share u = 1/(1+v): -ln u/(1-u) - 1."""
    return (1 + v) * np.log1p(v) / v - 1


def _inverse_valid_share_less_one(phi: np.ndarray) -> np.ndarray:
    """v = 1/u - 1 from phi = 1/u - 1 + ln u = v - ln(1+v): Newton from above, where the curve is convex."""
    v = np.sqrt(2 * phi) + phi
    for _ in range(NEWTON_STEPS // 4):
        v = v - (v - np.log1p(v) - phi) * (1 + v) / v
    return v
