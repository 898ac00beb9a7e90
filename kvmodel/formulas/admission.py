"""Which writes to admit into a tier that wears, and what the rule costs in reuse.

Rules: a coin with probability q (open loop: sized for the present flow; closed loop: solved together with
the hit ratio it changes), second use, k uses in a window, and rank by worth until the budget is full. What a
class of writes is worth per byte is `value_per_byte`; what a byte costs is `endurance.wear_cost_per_byte`.

The caches are seen by their characteristic time T: an object of rate lambda is in the cache with a
probability that depends on lambda T only, and T is such that the expected bytes fill the capacity (Che 2002;
Fricker, Robert, Roberts 2012). Requests are Poisson and independent; `characteristic_time_valid` says when
the approximation is within 0.001.

Symbols: lambda_i request rate [1/s], s_i size [B], C capacity [B], q admission probability, h_i hit
probability,
e = exp(-lambda T). Objects stand on the leading axis, study axes trail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, pdtrc

from kvmodel.units import DAY

__all__ = [
    "AdmittedCache",
    "admission_gain",
    "admitted_share",
    "cachelib_base_probability",
    "cachelib_factor",
    "cachelib_target_rate",
    "characteristic_time_valid",
    "closed_loop_probability",
    "open_loop_probability",
    "q_lru",
    "repeat_probability",
    "second_use",
    "static_best_hit_ratio",
    "value_per_byte",
]

BISECTIONS = 60  # a range of e^40 is halved to below rounding
CLOSED_LOOP_STEPS = 12  # Newton from below, quadratic
LEAST_PROBABILITY = 1e-300  # stands for zero inside logarithms; already the limit in every digit


class AdmittedCache(NamedTuple):
    """An LRU cache behind an admission rule, in steady state."""

    hit_probability: np.ndarray  # of each object, leading axis [-]
    hit_ratio: np.ndarray  # of all requests [-]
    characteristic_time: np.ndarray  # [s]
    insertions_per_request: np.ndarray  # [-]
    write_rate: np.ndarray  # admitted bytes [B/s]


def open_loop_probability(
    write_budget: ArrayLike, candidate_rate: ArrayLike, amplification: ArrayLike = 1.0
) -> np.ndarray:
    """Admission probability for the present flow of candidates [-]: p = min(1, budget / (A * candidates)).

    write_budget    bytes per second allowed                            [B/s]
    candidate_rate  bytes per second that ask to be written             [B/s]
    amplification   A, when the budget is in flash bytes; one when it is in host bytes   [-]
    One when nothing asks. Rejecting changes the misses and with them the candidates;
    `closed_loop_probability` takes that in. Source: bookkeeping.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.fmin(np.divide(write_budget, np.multiply(candidate_rate, amplification)), 1.0)


def q_lru(
    request_rate: ArrayLike, capacity: ArrayLike, admit_probability: ArrayLike, size: ArrayLike = 1.0
) -> AdmittedCache:
    """LRU cache that stores a missed object with probability q.

    h = q (1-e) / (e + q (1-e)), e = exp(-lambda T), sum_i s_i h_i = C; a request inserts with probability q
    (1-h).
    request_rate       lambda_i > 0, shape (objects,)+A                      [1/s]
    capacity           C > 0, shape A                                        [B]
    admit_probability  q, shape A, or (objects,)+A for a rule per object     [-]
    size               s_i, shape (objects,)+A or A                          [B]
    q = 1 is LRU. q -> 0 tends to keeping the hottest objects per byte for ever (`static_best_hit_ratio`),
    and writes nothing; the way there takes of the order of 1/q times as long. Everything hits, T infinite,
    when all fits. Source: Garetto, Leonardi, Martina, arXiv 1307.6702; within 0.0005 of simulation at q 0.5
    and 0.1.
    """
    q = np.maximum(admit_probability, LEAST_PROBABILITY)

    def occupancy(x: np.ndarray) -> np.ndarray:
        return expit(np.log(q) + x + np.log1p(-np.exp(-x)))  # odds q (1-e)/e

    latest = 40 - np.min(np.log(q))  # e/q is 4e-18 there
    hit, time = _filled(occupancy, request_rate, size, capacity, latest)
    return _steady_state(request_rate, size, hit, time, np.multiply(admit_probability, 1 - hit))


def second_use(
    request_rate: ArrayLike, capacity: ArrayLike, filter_entries: ArrayLike, size: ArrayLike = 1.0
) -> AdmittedCache:
    """LRU cache that stores a missed object only when an LRU list of recent names still holds it (2-LRU).

    Every request refreshes the list (time T1) and, on a hit, the cache (T2). With F(T) = 1 - exp(-lambda T)
    the state after a request is a two-state chain: cached again with F(max(T1,T2)) from cached, with F(T1)
    from not cached, so
    c = F(T1)/(1 - F(max) + F(T1)), h = c F(T2), inserts per request (1-c) F(T1) + c (F(T1) - F(T2))+.
    request_rate    lambda_i > 0, shape (objects,)+A       [1/s]
    capacity        C > 0, shape A                         [B]
    filter_entries  names the list holds, shape A          [-]
    size            s_i, shape (objects,)+A or A           [B]
    A list that holds all names admits every second request at the latest: LRU; an empty list admits nothing.
    Source: derived here (joint law of list and cache). Against the simulated 2-LRU of 10,000 Zipf 0.8
    objects: hit ratio +0.0001, writes +0.2 %, where taking the list for an independent coin (`q_lru` with q
    = F(T1)) gives +0.0016 and +16 %.
    """
    _, list_time = _filled(lambda x: -np.expm1(-x), request_rate, 1.0, filter_entries, 40.0)
    seen = -np.expm1(-np.multiply(request_rate, list_time))

    def chain(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = -np.expm1(-x)
        cached = seen / np.maximum(1 - np.maximum(found, seen) + seen, LEAST_PROBABILITY)
        return cached * found, (1 - cached) * seen + cached * np.maximum(seen - found, 0.0)

    latest = 40 - np.log(np.maximum(np.min(seen), 1e-30))
    hit, time = _filled(lambda x: chain(x)[0], request_rate, size, capacity, latest)
    return _steady_state(request_rate, size, hit, time, chain(np.multiply(request_rate, time))[1])


def closed_loop_probability(
    request_rate: ArrayLike, capacity: ArrayLike, write_budget: ArrayLike, size: ArrayLike = 1.0
) -> np.ndarray:
    """Largest admission probability whose own writes stay within the budget [-]: q sum_i lambda_i s_i
    (1-h_i(q)) = w.

    request_rate  lambda_i > 0, shape (objects,)+A          [1/s]
    capacity      C > 0, shape A                            [B]
    write_budget  w, host bytes per second, shape A         [B/s]
    size          s_i, shape (objects,)+A or A              [B]
    One when plain LRU stays within the budget, zero for a budget of zero. Never exceeds the budget: the
    answer is taken from below. Newton on ln q climbs from the open-loop value, because misses rise with q.
    Source: `q_lru` solved for q; derived here.
    """
    weight = np.multiply(request_rate, size)
    budget = np.maximum(write_budget, LEAST_PROBABILITY)
    lru = q_lru(request_rate, capacity, 1.0, size)
    q = np.minimum(budget / np.maximum(lru.write_rate, LEAST_PROBABILITY), 1.0)
    for _ in range(CLOSED_LOOP_STEPS):
        cache = q_lru(request_rate, capacity, q, size)
        spread = cache.hit_probability * (1 - cache.hit_probability)  # dh / d ln q at fixed T
        x = np.multiply(request_rate, np.minimum(cache.characteristic_time, 1e300))
        aging = spread * x / -np.expm1(-x)  # dh / d ln T
        shrink = np.sum(size * spread, axis=0) / np.maximum(np.sum(size * aging, axis=0), LEAST_PROBABILITY)
        lost = np.sum(weight * (aging * shrink - spread), axis=0)  # d misses / d ln q at full capacity
        misses = np.maximum(np.sum(weight * (1 - cache.hit_probability), axis=0), LEAST_PROBABILITY)
        slope = np.maximum(1 + lost / misses, 1.0)
        q = np.clip(q * np.exp(np.log(budget / (q * misses)) / slope), LEAST_PROBABILITY, 1.0)
    written = q_lru(request_rate, capacity, q, size).write_rate
    # Writes fall at least as fast as q, so this last cut brings them below the budget whatever rounding left.
    within = np.minimum(1.0, budget / np.maximum(written, LEAST_PROBABILITY))
    return np.where(np.greater(write_budget, 0), q * within, 0.0)


def static_best_hit_ratio(request_rate: ArrayLike, capacity: ArrayLike) -> np.ndarray:
    """Hit ratio of keeping the hottest equal-sized objects for ever [-]: the mass of the C most popular.

    request_rate  lambda_i, shape (objects,)+A   [1/s]
    capacity      whole objects held, shape A    [-]
    The limit of `q_lru` as q -> 0, and what no admission rule can beat under independent requests.
    """
    hottest = -np.sort(-np.asarray(request_rate, float), axis=0)
    rank = np.arange(len(hottest)).reshape((-1,) + (1,) * (hottest.ndim - 1))
    kept = np.clip(np.subtract(capacity, rank), 0.0, 1.0)
    return np.sum(hottest * kept, axis=0) / np.sum(hottest, axis=0)


def repeat_probability(request_rate: ArrayLike, window: ArrayLike, count: ArrayLike) -> np.ndarray:
    """Probability of at least k requests in a window [-] = 1 - Poisson CDF(k-1; lambda W): "admit on the
    k-th use".

    request_rate [1/s], window [s], count k >= 1 [-]. Zero at rate or window zero. Poisson requests only:
    bursts make it larger.
    """
    return pdtrc(np.subtract(count, 1), np.multiply(request_rate, window))


def value_per_byte(
    reuse_probability: ArrayLike,
    recompute_seconds: ArrayLike,
    fetch_seconds: ArrayLike,
    gpu_price: ArrayLike,
    written_bytes: ArrayLike,
) -> np.ndarray:
    """Expected saving per byte written [USD/B] = P (t_recompute - t_fetch) p / bytes.

    reuse_probability  of a use before eviction: F_G(T), the law of return at the tier's characteristic time
    [-]
    recompute_seconds  prefill time avoided             [s]
    fetch_seconds      time of fetching it instead      [s]
    gpu_price          price of the GPUs that would prefill   [USD/s]
    written_bytes      host bytes written for it, above zero  [B]
    Negative where fetching is slower. Grows with the prefix, as attention makes late tokens dearer to
    recompute. Admit where it exceeds `endurance.wear_cost_per_byte`. Source: derived here.
    """
    saved = np.subtract(recompute_seconds, fetch_seconds)
    return np.multiply(reuse_probability, saved) * np.divide(gpu_price, written_bytes)


def admission_gain(value_per_byte: ArrayLike, wear_cost_per_byte: ArrayLike, written_bytes: ArrayLike) -> np.ndarray:
    """Net gain of writing [USD] = (value - wear) * bytes; admit where it is above zero.

    value_per_byte [USD/B], wear_cost_per_byte [USD/B] with amplification in it, written_bytes [B].
    """
    return np.subtract(value_per_byte, wear_cost_per_byte) * written_bytes


def admitted_share(score: ArrayLike, candidate_rate: ArrayLike, write_budget: ArrayLike) -> np.ndarray:
    """Share of each class admitted when classes are taken by falling score until the budget is full [-].

    score           rank of the class, shape (classes,)+A: value per byte, or its prefix length when the rule
                    is a minimum length
    candidate_rate  bytes per second each class asks to write, shape (classes,)+A   [B/s]
    write_budget    bytes per second allowed, shape A                               [B/s]
    Returns (classes,)+A: ones, one part share at the threshold, zeros. With value per byte as the score no
    other rule within the budget is worth more (fractional knapsack, Dantzig 1957). The sum never exceeds it.
    """
    score, rate, budget = np.broadcast_arrays(score, np.asarray(candidate_rate, float), write_budget)
    order = np.argsort(np.negative(score), axis=0, kind="stable")
    sorted_rate = np.take_along_axis(rate, order, axis=0)
    room = budget - (np.cumsum(sorted_rate, axis=0) - sorted_rate)
    taken = np.clip(room, 0.0, sorted_rate)
    share = np.divide(taken, sorted_rate, out=np.ones_like(room), where=sorted_rate > 0)
    return np.take_along_axis(share, np.argsort(order, axis=0, kind="stable"), axis=0)


def characteristic_time_valid(size: ArrayLike, capacity: ArrayLike) -> np.ndarray:
    """True where a characteristic time is good to 0.001 in hit ratio: no object above 1 % of the capacity.

    size shape (objects,)+A [B], capacity shape A [B]. That also makes the cache hold more than 100 objects.
    Source: nine Zipf cells against simulation, at most 0.0003 off; -0.0017 at 5 of 100 objects and -0.0052
    at 2 of 10.
    """
    return np.max(np.atleast_1d(size), axis=0) <= 0.01 * np.asarray(capacity)


def cachelib_base_probability(item_bytes: ArrayLike, base_bytes: ArrayLike, size_decay: ArrayLike = 0.3) -> np.ndarray:
    """Size-dependent part of CacheLib's dynamic random admission [-] = (bits(base)/bits(item))^decay.

    item_bytes, base_bytes   whole bytes, one or more   [B];   size_decay [-]
    bits() is the bit length, so this is a ratio of logarithms, far flatter than 1/size. It favours small
    items, while the value of KV per byte grows with the prefix. Admission probability is min(1, base *
    factor), see `cachelib_factor`. Source: CacheLib, DynamicRandomAP in its public source.
    """
    bits = np.frexp(np.asarray(base_bytes, float))[1] / np.frexp(np.asarray(item_bytes, float))[1]
    return bits ** np.asarray(size_decay)


def cachelib_target_rate(
    configured_rate: ArrayLike, elapsed: ArrayLike, bytes_written: ArrayLike, max_rate: ArrayLike = 160 * 2.0**20
) -> np.ndarray:
    """Write rate the controller aims at for the next day [B/s] = min(max, (rate (elapsed + 1 d) - written) /
    1 d).

    configured_rate [B/s], elapsed since start [s], bytes_written since start [B], max_rate [B/s] (160 MiB/s
    there). Zero when more has been written than a day ahead allows. Source: as `cachelib_base_probability`,
    whose code cuts rates to whole numbers.
    """
    ahead = np.multiply(configured_rate, np.add(elapsed, DAY)) - bytes_written
    return np.clip(ahead / DAY, 0.0, max_rate)


def cachelib_factor(
    factor: ArrayLike,
    target_rate: ArrayLike,
    observed_rate: ArrayLike,
    change_window: ArrayLike = 0.25,
    least: float = 0.001,
    most: float = 10.0,
) -> np.ndarray:
    """Factor of the controller after an interval [-] = clip(factor * clip(target/observed, 1-w, 1+w), least,
    most).

    factor before [-], target_rate and observed_rate [B/s], change_window w [-].
    A slow controller: a flow four times too high needs five intervals. Source: as
    `cachelib_base_probability`.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.fmin(np.divide(target_rate, observed_rate), np.add(1.0, change_window))
    return np.clip(factor * np.maximum(ratio, np.subtract(1.0, change_window)), least, most)


def _filled(
    occupancy: Callable[[np.ndarray], np.ndarray],
    request_rate: ArrayLike,
    size: ArrayLike,
    capacity: ArrayLike,
    latest: ArrayLike,
) -> tuple[np.ndarray, np.ndarray]:
    """Hit probabilities and the time T that fills the capacity: sum_i s_i occupancy(lambda_i T) = C.

    Bisection in ln T between C / sum s lambda (no occupancy exceeds lambda T) and latest / min lambda (all
    is in).
    """
    rate, size = np.broadcast_arrays(np.asarray(request_rate, float), np.asarray(size, float))
    capacity = np.asarray(capacity, float) + 0 * np.sum(occupancy(rate), axis=0)
    low = np.log(np.maximum(capacity, LEAST_PROBABILITY) / np.sum(size * rate, axis=0))
    high = np.log(latest / np.min(rate, axis=0)) + 0 * low
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        short = np.sum(size * occupancy(rate * np.exp(middle)), axis=0) < capacity
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    fits = np.sum(size, axis=0) <= capacity
    time = np.where(fits, np.inf, np.exp(low))
    return np.where(fits, 1.0, occupancy(rate * np.exp(low))), time


def _steady_state(
    request_rate: ArrayLike, size: ArrayLike, hit: np.ndarray, time: np.ndarray, inserts: np.ndarray
) -> AdmittedCache:
    """Totals over objects from what happens to a request for each."""
    rate = np.asarray(request_rate, float)
    total = np.sum(rate + 0 * hit, axis=0)
    hits, inserted = np.sum(rate * hit, axis=0), np.sum(rate * inserts, axis=0)
    return AdmittedCache(hit, hits / total, time, inserted / total, np.sum(rate * size * inserts, axis=0))
