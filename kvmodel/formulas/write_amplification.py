"""How many bytes does a drive program for each byte the host writes?

Flash is written in pages and erased in much larger units, so before a unit is erased its still valid pages
are copied. What decides the copying is the spare, `alpha` = physical pages / pages holding live data, the
order in which units are reclaimed, and whether data that dies together lies together.

Symbols: alpha physical over logical (hidden spare included, TiB of flash over TB of address space), b pages
per erase unit, u valid share of a reclaimed unit, A = 1/(1-u) amplification, r_k and s_k shares of writes
and of space of class k, W0 the principal Lambert branch. Classes stand on the leading axis, study axes trail.

At alpha = 1 there is nothing to reclaim and every A is infinite; as alpha grows A falls to one.
`spare_valid` is the flag for alpha. Formulas are for the steady state, which a drive reaches after three to
five drive fills.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, digamma, expit, exprel, lambertw, zeta

__all__ = [
    "BucketStore",
    "MixedUnits",
    "SegregatedCache",
    "SharedStream",
    "SpareSplit",
    "agarwal_amplification",
    "best_spare_split",
    "bucket_store",
    "effective_physical_over_logical",
    "fifo_amplification",
    "fifo_physical_over_logical",
    "fifo_victim_valid_share",
    "finite_unit_valid",
    "greedy_amplification",
    "greedy_shared_stream",
    "idle_stream_amplification",
    "indirection_amplification",
    "object_aligned",
    "object_amplification",
    "physical_over_logical",
    "random_victim_amplification",
    "segregated_cache",
    "separate_streams_amplification",
    "shared_stream",
    "spare_valid",
]

NEWTON_STEPS = 40  # ten are enough in the usual range
HALVINGS, MIXINGS = 24, 24  # levels tried, and turns of the mixture of copies at each; it carries over to the next
DESCENTS = 400  # turns of a fixed point that falls to its largest root
CONTRACTIONS = 36  # each leaves less than a third of the error


def physical_over_logical(raw_capacity: ArrayLike, usable_capacity: ArrayLike) -> np.ndarray:
    """alpha [-] = flash fitted / capacity the host can address; alpha - 1 is the over-provisioning rho.

    raw_capacity [B], usable_capacity [B]. TiB of flash sold as TB hides 10 % here (4 TiB as 4 TB gives
    1.0995).
    """
    return np.divide(raw_capacity, usable_capacity)


def effective_physical_over_logical(alpha: ArrayLike, dead_share: ArrayLike) -> np.ndarray:
    """alpha against mean live data [-] = alpha / (1 - t): trimmed or never written addresses are spare too.

    alpha       physical over addressable pages                              [-]
    dead_share  mean share of addresses trimmed or never written, 0 <= t < 1    [-]
    Infinite as all data dies. Mean-field: live data that swings by much more than the spare (few large
    objects) needs the spare at its peak instead. Source: Frankie et al., arXiv 1210.5975 (effective
    over-provisioning).
    """
    with np.errstate(divide="ignore"):
        return np.divide(alpha, np.subtract(1.0, dead_share))


def spare_valid(alpha: ArrayLike) -> np.ndarray:
    """True where there is spare enough for the steady-state formulas: alpha >= 1.01 (they diverge at one)."""
    return np.greater_equal(alpha, 1.01)


def fifo_victim_valid_share(alpha: ArrayLike) -> np.ndarray:
    """Valid share u of the unit reclaimed oldest first, one stream of uniform random overwrites [-].

    u = -W0(-alpha exp(-alpha)) / alpha, the root of alpha (1 - u) = -ln u.   alpha  physical over logical [-]
    One at alpha <= 1, zero at infinite spare. Source: Menon; Robinson; Desnoyers (SYSTOR 2012); Xiang and
    Kurkoski (arXiv 1110.4245).
    """
    spare = np.maximum(alpha, 1.0)
    # At the branch point alpha = 1 rounding may leave the domain of W0; fmin puts one there.
    return np.fmin(-lambertw(-spare * np.exp(-spare)).real / spare, 1.0)


def fifo_amplification(alpha: ArrayLike) -> np.ndarray:
    """Amplification with oldest-first reclaim, one stream of uniform random overwrites [-]: A = 1/(1-u).

    A = alpha / (alpha + W0(-alpha exp(-alpha))).   alpha  physical over logical [-]
    Also the limit of greedy reclaim for large erase units, and of LRU or FIFO objects of any size
    overwritten in random order. Infinite at alpha <= 1, one at infinite spare. Source: as
    `fifo_victim_valid_share`; Xiang and Kurkoski print 2.36 at alpha 1.3.
    """
    return _amplification(fifo_victim_valid_share(alpha))


def greedy_amplification(alpha: ArrayLike, pages_per_unit: ArrayLike) -> np.ndarray:
    """Amplification when the unit with fewest valid pages is reclaimed, uniform random overwrites [-].

    A = b/(b - (X0-1)), X0 = 1/2 - (b/alpha) W0(-s exp(-s)), s = alpha (1 + 1/(2b)); X0-1 are the valid pages
    of a victim.
    alpha           physical over logical                                         [-]
    pages_per_unit  b, independently overwritten pages (or equal aligned objects) in one erase unit   [-]
    `fifo_amplification` as b grows without bound; one for b = 1. Infinite at alpha <= 1. Meant for
    `finite_unit_valid`. Source: form of Desnoyers (SYSTOR 2012); within 0.2 % of simulation at b = 64 and
    256, 0.5 % at 16.
    """
    half_page = np.divide(0.5, pages_per_unit)
    s = np.maximum(alpha, 1.0) * (1 + half_page)
    victim = fifo_victim_valid_share(s) * (1 + half_page) - half_page
    return _amplification(np.where(np.greater(alpha, 1.0), np.maximum(victim, 0.0), 1.0))


def finite_unit_valid(alpha: ArrayLike, pages_per_unit: ArrayLike) -> np.ndarray:
    """True where `greedy_amplification` is within 1.2 %: at least 16 pages, and two of spare in each unit.

    alpha [-], pages_per_unit [-]. Against the balance of whole pages, H_b - H_v = alpha (1 - v/b) with H
    linear between the harmonic numbers. Closer to alpha = 1 the form stays finite where the truth diverges.
    """
    return np.greater_equal(pages_per_unit, 16) & (np.subtract(alpha, 1.0) * pages_per_unit >= 2.0)


def random_victim_amplification(alpha: ArrayLike) -> np.ndarray:
    """Amplification when the reclaimed unit is drawn at random [-]: A = alpha/(alpha-1), for any one-stream
    workload.

    alpha physical over logical [-]. Infinite at alpha <= 1. Source: the victim holds the average valid share
    1/alpha.
    """
    return _amplification(1 / np.maximum(alpha, 1.0))


def agarwal_amplification(alpha: ArrayLike) -> np.ndarray:
    """Agarwal and Marrow's closed form [-]: A = alpha / (2 (alpha - 1)). Kept to compare with tools that
    print it.

    alpha physical over logical [-]. 8 % low at alpha 1.3 and below one for alpha > 2, so nothing here uses
    it. Source: printed 2.17 for alpha 1.3 in arXiv 1110.4245, beside a simulated 2.35.
    """
    with np.errstate(divide="ignore"):
        return np.divide(alpha, 2 * np.maximum(np.subtract(alpha, 1.0), 0.0))


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


def greedy_shared_stream(alpha: ArrayLike, write_share: ArrayLike, space_share: ArrayLike,
                         pages_per_unit: ArrayLike) -> MixedUnits:
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
    amplification = np.where(np.greater(alpha, 1.0), _amplification(level / b), np.inf)
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


def idle_stream_amplification(alpha: ArrayLike, write_share: ArrayLike, used_again: ArrayLike, in_use: ArrayLike,
                              idle: ArrayLike) -> np.ndarray:
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


def fifo_physical_over_logical(amplification: ArrayLike) -> np.ndarray:
    """Spare behind an amplification [-]: alpha = -ln(u)/(1-u), u = 1 - 1/A; the inverse of `fifo_amplification`.

    amplification  A >= 1, for example the ratio of a drive's two ratings   [-]
    One at A infinite, infinite at A = 1. Source: `fifo_victim_valid_share` read from the other side.
    """
    new = np.maximum(1 / np.asarray(amplification, float), 1e-12)  # 1 - u
    with np.errstate(divide="ignore"):
        return -np.log1p(-new) / new


class SpareSplit(NamedTuple):
    """Spare given to each of several separate streams, and what comes of it."""

    amplification: np.ndarray  # over all host writes [-]
    stream_amplification: np.ndarray  # per class, leading axis [-]
    spare_share: np.ndarray  # share of the spare given to each class, adding up to one [-]


def separate_streams_amplification(alpha: ArrayLike, write_share: ArrayLike, space_share: ArrayLike,
                                   spare_share: ArrayLike) -> np.ndarray:
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


def object_amplification(alpha: ArrayLike, object_pages: ArrayLike, pages_per_unit: ArrayLike) -> np.ndarray:
    """Amplification of whole objects overwritten in random order through one stream, greedy reclaim [-].

    One where objects leave empty units: n0 = 1 + (b-g)/o objects share a unit when laid end to end (g the
    greatest common divisor), which takes H(n0) times the live space, H linear between the harmonic numbers;
    A = 1 if that fits alpha, always so for o a multiple of b. Otherwise A = 1/(1-u) with
    alpha (1-u) = psi(n+1) - psi(n u + 1) and n = 2 + (b-2)/o fragments in a unit, one cut at each end of its
    copied and of its new part.
    alpha           physical over logical                           [-]
    object_pages    o, whole pages, overwritten as one              [-]
    pages_per_unit  b, whole pages of an erase unit                 [-]
    o = 1 is greedy reclaim of pages. Infinite at alpha <= 1 unless aligned. Exact where `object_aligned` and
    for o = 1; else an estimate. Against simulated drives of one write frontier that have been in use: within 4 % at
    alpha 1.15, 14 % low at 1.07 and up to 15 % high at 1.3. Drives filled in order whose objects divide the unit keep
    them whole and do better (up to 45 % below), and so do drives that copy to a frontier of their own, so ask the
    vendor or measure. Only for greedy reclaim: with FIFO reclaim objects of any size have `fifo_amplification`.
    Source: derived here.
    """
    o, b = np.asarray(object_pages), np.asarray(pages_per_unit)
    shared = 1 + (b - np.gcd(o.astype(int), b.astype(int))) / o
    whole, part = np.floor(shared), shared % 1.0
    packed = digamma(whole + 1) - digamma(1.0) + part / (whole + 1)
    n = 2 + (b - 2) / o
    u = np.zeros(np.broadcast_shapes(np.shape(alpha), np.shape(n)))
    # The balance is convex in u, so the climb from zero stops at the lower root; the upper one is u = 1.
    for _ in range(NEWTON_STEPS):
        balance = digamma(n + 1) - digamma(n * u + 1) - np.multiply(alpha, 1 - u)
        slope = np.maximum(n * zeta(2, n * u + 1) - alpha, 1e-12)
        u = np.minimum(u + np.maximum(balance, 0.0) / slope, 1.0)
    straddling = _amplification(np.where(np.greater(alpha, 1.0), u, 1.0))
    return np.where(packed <= alpha, 1.0, straddling)


def object_aligned(object_pages: ArrayLike, pages_per_unit: ArrayLike) -> np.ndarray:
    """True where objects are whole multiples of the erase unit, so none straddles; both in pages [-]."""
    return np.equal(np.mod(object_pages, pages_per_unit), 0)


class SegregatedCache(NamedTuple):
    """Small-object buckets and a large-object log on separate reclaim-unit handles."""

    amplification: np.ndarray  # over all host writes [-]
    small_amplification: np.ndarray  # of the small-object buckets [-]
    large_amplification: np.ndarray  # of the large-object log [-]


def segregated_cache(small_share: ArrayLike, spare_share: ArrayLike,
                     small_write_share: ArrayLike) -> SegregatedCache:
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


def indirection_amplification(write_size: ArrayLike, indirection_unit: ArrayLike) -> np.ndarray:
    """Read-modify-write amplification of aligned writes on a drive that maps coarse units [-] = ceil(w/IU)
    IU / w.

    write_size        bytes of one host write, above zero    [B]
    indirection_unit  mapping unit of the drive              [B]
    IU/w below one unit, one at whole units, towards one for large writes. Multiplies the device
    amplification. A write that is not aligned touches up to one unit more. Source: derived here.
    """
    return np.ceil(np.divide(write_size, indirection_unit)) * np.divide(indirection_unit, write_size)


class BucketStore(NamedTuple):
    """A log-structured store that compacts a bucket once few of its objects are left."""

    amplification: np.ndarray  # host-side rewrites, one plus copied over new bytes [-]
    utilisation: np.ndarray  # live bytes over bytes held by buckets [-]


def bucket_store(threshold: ArrayLike, objects_per_bucket: ArrayLike) -> BucketStore:
    """Amplification and utilisation of a store that compacts a bucket when its live share falls to the
    threshold.

    A = 1/(1-g); utilisation = (1-g) / (H_n - H_gn), H the harmonic numbers, which is (1-g)/ln(1/g) for many
    objects: a bucket spends 1/(j lambda) with j live objects before it is taken.
    threshold           g, live share at which a bucket is compacted, 0 <= g < 1   [-]
    objects_per_bucket  n, equal objects in a bucket                               [-]
    g = 0 waits for empty buckets: A = 1 at the utilisation 1/H_n. g -> 1: A infinite, utilisation one. Valid
    for deaths at random with one rate (exponential lifetimes); objects that die in log order do better.
    Multiplies the device amplification. Source: derived here; the limit is the relation of
    `fifo_amplification` read from the other side.
    """
    n = np.asarray(objects_per_bucket, float)
    kept = np.multiply(threshold, n)
    with np.errstate(divide="ignore", invalid="ignore"):
        utilisation = np.subtract(1.0, threshold) / (digamma(n + 1) - digamma(kept + 1))
    return BucketStore(_amplification(threshold), np.where(np.less(threshold, 1.0), utilisation, 1.0))


def _amplification(victim_valid_share: ArrayLike) -> np.ndarray:
    """A = 1/(1-u), infinite where the victim is full."""
    with np.errstate(divide="ignore"):
        return 1 / np.subtract(1.0, victim_valid_share)


def _weighted(write_share: ArrayLike, amplification: ArrayLike) -> np.ndarray:
    """Mean amplification over the leading axis, where a class that is not written counts nothing even at A =
    inf."""
    with np.errstate(invalid="ignore"):
        return np.sum(np.where(np.greater(write_share, 0), np.multiply(write_share, amplification), 0.0),
        axis=0)


def _spare(v: np.ndarray) -> np.ndarray:
    """alpha - 1 at which a victim has the valid share u = 1/(1+v): -ln u/(1-u) - 1."""
    return (1 + v) * np.log1p(v) / v - 1


def _inverse_valid_share_less_one(phi: np.ndarray) -> np.ndarray:
    """v = 1/u - 1 from phi = 1/u - 1 + ln u = v - ln(1+v): Newton from above, where the curve is convex."""
    v = np.sqrt(2 * phi) + phi
    for _ in range(NEWTON_STEPS // 4):
        v = v - (v - np.log1p(v) - phi) * (1 + v) / v
    return v
