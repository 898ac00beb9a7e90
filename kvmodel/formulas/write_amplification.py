"""How many bytes does a drive program for each byte the host writes?

Flash is written in pages and erased in much larger units, so before a unit is erased its still valid pages
are copied. What decides the copying is the spare, `alpha` = physical pages / pages holding live data, the
order in which units are reclaimed, and whether data that dies together lies together (several lifetimes in
one drive: `mixed_streams`).

Symbols: alpha physical over logical (hidden spare included, TiB of flash over TB of address space), b pages
per erase unit, u valid share of a reclaimed unit, A = 1/(1-u) amplification, W0 the principal Lambert branch.

At alpha = 1 there is nothing to reclaim and every A is infinite; as alpha grows A falls to one.
`spare_valid` is the flag for alpha. Formulas are for the steady state, which a drive reaches after three to
five drive fills.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, lambertw, zeta

__all__ = [
    "BucketStore",
    "agarwal_amplification",
    "bucket_store",
    "effective_physical_over_logical",
    "fifo_amplification",
    "fifo_physical_over_logical",
    "fifo_victim_valid_share",
    "finite_unit_valid",
    "greedy_amplification",
    "indirection_amplification",
    "object_aligned",
    "object_amplification",
    "physical_over_logical",
    "random_victim_amplification",
    "spare_valid",
]

NEWTON_STEPS = 40  # ten are enough in the usual range


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


def fifo_physical_over_logical(amplification: ArrayLike) -> np.ndarray:
    """Spare behind an amplification [-]: alpha = -ln(u)/(1-u), u = 1 - 1/A; the inverse of `fifo_amplification`.

    amplification  A >= 1, for example the ratio of a drive's two ratings   [-]
    One at A infinite, infinite at A = 1. Source: `fifo_victim_valid_share` read from the other side.
    """
    new = np.maximum(1 / np.asarray(amplification, float), 1e-12)  # 1 - u
    with np.errstate(divide="ignore"):
        return -np.log1p(-new) / new


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
