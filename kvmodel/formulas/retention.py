"""How long is the KV of a waiting session worth keeping, and where?

Keeping costs rent for every second; not having it costs a recompute (or a slower fetch) when the session
returns. The rules run from the five-minute rule (Gray and Putzolu 1987: at which interval of reuse is
keeping as dear as fetching again) over the best window for a known law of return time to the ski-rental
default for an unknown one.

Symbols: X return time [s], F its law (`formulas.laws`), s rent of the bytes held [USD/s], m cost of
returning in vain [USD], p probability of returning at all, T window [s]. Study axes trail; tiers and plans
lead. Assumed throughout: rent is linear in bytes and time; one return per stay; the miss cost does not
depend on how long ago the KV was dropped. Any unit of money will do as long as it is one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from kvmodel.formulas.laws import Law
from kvmodel.units import HOUR

__all__ = [
    "RANDOMISED_COMPETITIVE_RATIO",
    "SKI_RENTAL_COMPETITIVE_RATIO",
    "RetentionWindow",
    "break_even_residency",
    "demotion_order_valid",
    "demotion_windows",
    "holding_rent",
    "never_returning_probability",
    "optimal_window",
    "pinning_gain",
    "prefetch_gain",
    "price_plan_break_even",
    "price_plan_cost",
    "retention_cost",
    "schedule_cost",
    "session_hour_price",
    "ski_rental_randomised_window",
    "ski_rental_window",
    "value_of_keeping",
]

SKI_RENTAL_COMPETITIVE_RATIO = 2.0  # of `ski_rental_window` to knowing the return time; Karlin et al. 1988
RANDOMISED_COMPETITIVE_RATIO = math.e / (math.e - 1)  # of `ski_rental_randomised_window`; Karlin et al. 1990

GRID = 257  # points of the first search, even in the log-odds of having returned
ZOOMS = 10  # each narrows the bracket eightfold


def holding_rent(nbytes: ArrayLike, price_per_byte: ArrayLike, service_life: ArrayLike) -> np.ndarray:
    """Rent of bytes held in bought capacity [USD/s] = bytes * price / life.

    nbytes held, copies and padding included [B]; price_per_byte bought [USD/B]; service_life it is written
    off over [s].
    """
    return np.multiply(nbytes, price_per_byte) / service_life


def break_even_residency(saved_cost: ArrayLike, rent: ArrayLike) -> np.ndarray:
    """Interval of reuse at which keeping costs what it saves [s] = saved cost / rent (five-minute rule).

    saved_cost  money one reuse saves: the fetch or recompute avoided, less the fetch and the write  [USD]
    rent        price of holding the bytes for a second, see `holding_rent`  [USD/s]
    Zero when nothing is saved, infinite when holding is free. Keep what is reused more often than that. As
    printed by Gray and Putzolu: (price of an access per second) / (price of a page of memory), service lives
    cancelling; 400 s in 1987, 266 s in Gray and Graefe 1997, about 15 minutes between RAM and flash in
    Graefe 2007.
    """
    saved = np.maximum(saved_cost, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(saved > 0, np.divide(saved, rent), 0.0)


def retention_cost(
    window: ArrayLike, law: Law, rent: ArrayLike, miss_cost: ArrayLike, return_probability: ArrayLike = 1.0
) -> np.ndarray:
    """Expected cost of one stay dropped after T [USD] = s (p E[min(X,T)] + (1-p) T) + m p P(X > T).

    window              T, shape (n,)+A or A; zero drops at once, infinity never   [s]
    law                 law of the return time of those that return                [s]
    rent                s                                                          [USD/s]
    miss_cost           m, recompute (less fetch) when it returns in vain          [USD]
    return_probability  p                                                          [-]
    m p at T = 0; infinite at T = infinity when some never return or the mean is infinite, and rent is not
    free.
    """
    window = np.asarray(window, float)
    gone = np.subtract(1.0, return_probability)
    with np.errstate(invalid="ignore"):
        idle = np.where(gone > 0, gone * window, 0.0)
        returning = return_probability * law.restricted_mean(window)
        held = np.where(np.equal(return_probability, 0), 0.0, returning) + idle
        paid = np.where(np.equal(rent, 0), 0.0, rent * held)
    return paid + np.multiply(miss_cost, return_probability) * law.survival(window)


class RetentionWindow(NamedTuple):
    """Best time to keep, and what it costs."""

    window: np.ndarray  # zero: never keep; infinite: keep until it returns [s]
    cost: np.ndarray  # expected cost per stay [USD]
    hit_probability: np.ndarray  # returns within the window, of those that return [-]


def optimal_window(
    law: Law, rent: ArrayLike, miss_cost: ArrayLike, return_probability: ArrayLike = 1.0
) -> RetentionWindow:
    """Window that minimises `retention_cost`.

    An interior optimum T* stands where the hazard p f(T)/(1 - p F(T)) falls through s/m. So: constant hazard
    (exponential) means for ever or never; falling hazard (Lomax T* = order m/s - scale, hyperexponential)
    one window; lognormal a window or never; rising hazard (constant think time) all or nothing, since a
    window below the mode pays rent and still misses.
    law [s], rent [USD/s], miss_cost [USD], return_probability [-], each of study shape A, as in
    `retention_cost`. Found by comparing never, for ever and a grid of quantiles, then zooming: no assumption
    on the shape of the hazard, and atoms are hit. Windows are good to 1e-7, costs to rounding. Free rent:
    for ever. Nothing to lose: zero. Ties go to the extreme. Source: optimal stopping; closed forms for
    exponential and Lomax derived here.
    """

    def cost(window: ArrayLike) -> np.ndarray:
        return retention_cost(window, law, rent, miss_cost, return_probability)

    never, always = cost(0.0), cost(np.inf)
    odds = np.linspace(-25.0, 32.0, GRID).reshape((-1,) + (1,) * never.ndim)
    windows = law.quantile(expit(odds)) + 0 * never
    for _ in range(ZOOMS):
        best = np.argmin(cost(windows), axis=0)[None]
        left, middle, right = (
            np.take_along_axis(windows, np.clip(best + step, 0, len(windows) - 1), axis=0) for step in (-1, 0, 1)
        )
        part = np.linspace(0.0, 1.0, 9).reshape((-1,) + (1,) * never.ndim)
        windows = np.concatenate([left + part[:-1] * (middle - left), middle + part * (right - middle)])
    costs = cost(windows)
    best = np.argmin(costs, axis=0)[None]
    interior, least = (np.take_along_axis(a, best, axis=0)[0] for a in (windows, costs))
    tie = 1 + 1e-12
    window = np.where(always <= least * tie, np.inf, interior)
    window = np.where(never <= np.minimum(least, always) * tie, 0.0, window)
    return RetentionWindow(window, np.minimum(np.minimum(never, always), least), law.cdf(window) + 0 * never)


def never_returning_probability(elapsed: ArrayLike, law: Law, return_probability: ArrayLike) -> np.ndarray:
    """Probability that a session silent for so long never returns [-] = (1-p) / (1 - p F(t)).

    elapsed time since it went silent [s], law of the return time [s], return_probability p at the start [-].
    1 - p at once, one in the end; one throughout for p = 0. Source: Bayes' rule.
    """
    gone = np.subtract(1.0, return_probability)
    waiting = gone + return_probability * law.survival(elapsed)
    return np.divide(gone, waiting, out=np.ones(np.shape(waiting)), where=waiting > 0)


def ski_rental_window(rent: ArrayLike, miss_cost: ArrayLike) -> np.ndarray:
    """Window for an unknown law [s] = m/s: hold until the rent paid equals the miss it avoids.

    rent [USD/s], miss_cost [USD]. Costs at most twice (`SKI_RENTAL_COMPETITIVE_RATIO`) what knowing the
    return time would. Infinite when holding is free. Source: Karlin, Manasse, Rudolph, Sleator 1988.
    """
    return break_even_residency(miss_cost, rent)


def ski_rental_randomised_window(uniform: ArrayLike, rent: ArrayLike, miss_cost: ArrayLike) -> np.ndarray:
    """Random window for an unknown law [s] = (m/s) ln(1 + u (e-1)), u uniform on 0 to 1.

    uniform u [-], rent [USD/s], miss_cost [USD]. Costs at most e/(e-1) (`RANDOMISED_COMPETITIVE_RATIO`) in
    expectation: density exp(t s/m) s/(m (e-1)). Source: Karlin, Manasse, McGeoch, Owicki 1990.
    """
    return ski_rental_window(rent, miss_cost) * np.log1p(np.multiply(uniform, math.e - 1))


def demotion_windows(
    law: Law, rent: ArrayLike, return_cost: ArrayLike, move_cost: ArrayLike, return_probability: ArrayLike = 1.0
) -> RetentionWindow:
    """Age at which to demote from each tier to the next one down.

    rent         of the session's bytes in each place, fastest first, shape (places,)+A; the last may be
                 "dropped" with rent zero  [USD/s]
    return_cost  cost of a return found in each place (fetch, or recompute when dropped), (places,)+A  [USD]
    move_cost    one-off cost of moving into the next place, wear included, shape (places-1,)+A; zero for
                 dropping  [USD]
    Returns a RetentionWindow with leading axis places-1; its `cost` is the part of each cut, not the total.
    Each cut is an optimal window with rent s_j - s_{j+1} and miss cost m_{j+1} - m_j + move_j, since a move
    is paid only by sessions still waiting then. Those that never return pay it whatever the age, unless the age
    is infinite, which no positive rent allows them.
    The cuts are independent as long as they come out in order (`demotion_order_valid`); a place whose cut
    comes before its predecessor's should be left out. Source: separation of the stopping problem, derived
    here.
    """
    rents, costs = np.asarray(rent, float), np.asarray(return_cost, float)
    waiting = costs[1:] - costs[:-1] + np.asarray(move_cost, float)
    return optimal_window(law, rents[:-1] - rents[1:], waiting, return_probability)


def schedule_cost(
    windows: ArrayLike,
    law: Law,
    rent: ArrayLike,
    return_cost: ArrayLike,
    move_cost: ArrayLike,
    return_probability: ArrayLike = 1.0,
) -> np.ndarray:
    """Expected cost of one stay under a schedule of demotions [USD]: rent, the return from wherever it is found, moves.

    p m_0 + sum_j [(s_j - s_{j+1}) H(T_j) + (m_{j+1} - m_j) p P(X > T_j) + move_j P(waiting at T_j)], with
    H(T) = p E[min(X,T)] + (1-p) T; the last place has no rent ("dropped") or the sum is endless.
    windows T_j in rising order, shape (places-1,)+A [s]; the rest as in `demotion_windows`.
    Source: rent summed by parts, derived here.
    """
    windows, rents, costs = (np.asarray(a, float) for a in (windows, rent, return_cost))
    p = np.asarray(return_probability, float)
    cuts = retention_cost(windows, law, rents[:-1] - rents[1:], costs[1:] - costs[:-1], p)
    waiting = p * law.survival(windows) + np.where(np.isfinite(windows), 1 - p, 0.0)
    return p * costs[0] + np.sum(cuts + move_cost * waiting, axis=0)


def demotion_order_valid(windows: ArrayLike) -> np.ndarray:
    """True where demotion ages do not fall from tier to tier; windows shape (places-1,)+A [s]."""
    windows = np.asarray(windows, float)
    return np.all(windows[1:] >= windows[:-1], axis=0)


def value_of_keeping(
    reuse_probability: ArrayLike,
    recompute_cost: ArrayLike,
    fetch_cost: ArrayLike,
    write_cost: ArrayLike,
    rent: ArrayLike,
    held_time: ArrayLike,
    displaced_value: ArrayLike = 0.0,
) -> np.ndarray:
    """Net value of keeping something once [USD] = P (recompute - fetch) - write - (s + displaced) E[held].

    reuse_probability  P of a return while it is kept                              [-]
    recompute_cost, fetch_cost   of a return without and with it                   [USD]
    write_cost         of storing it, wear included                                [USD]
    rent               of its bytes, zero when the capacity is there anyway        [USD/s]
    held_time          expected time held, E[min(X,T)] plus T of those that never return    [s]
    displaced_value    what the same bytes would earn with what they push out      [USD/s]
    Negative: do not keep. Charge rent or displaced value, the larger, when one market sets both. Source:
    derived here.
    """
    saved = np.multiply(reuse_probability, np.subtract(recompute_cost, fetch_cost))
    return saved - write_cost - np.add(rent, displaced_value) * held_time


def pinning_gain(
    request_rate: ArrayLike,
    miss_cost: ArrayLike,
    unpinned_hit_probability: ArrayLike,
    nbytes: ArrayLike,
    marginal_value: ArrayLike,
) -> np.ndarray:
    """What pinning a prefix wins per second [USD/s] = lambda m (1 - h) - bytes * marginal value of a byte.

    request_rate [1/s]; miss_cost of one request without it [USD]; unpinned_hit_probability h it has under
    the eviction rule anyway, 1 - exp(-lambda T) under LRU [-]; nbytes it would take for good [B];
    marginal_value of a byte of the cache to the others, the slope of their reuse curve times what a hit is
    worth [USD/s/B]. Negative for a prefix so hot that it stays anyway (h -> 1), and for one so cold that
    others use its bytes better: pinning pays in between. First order: the prefix must be small against the
    cache. Source: derived here.
    """
    spared = np.multiply(nbytes, unpinned_hit_probability)  # bytes it holds on average without a pin
    won = np.multiply(request_rate, miss_cost) * np.subtract(1.0, unpinned_hit_probability)
    return won - np.subtract(nbytes, spared) * marginal_value


def prefetch_gain(
    start: ArrayLike,
    stop: ArrayLike,
    law: Law,
    rent: ArrayLike,
    fetch_cost: ArrayLike,
    return_probability: ArrayLike = 1.0,
) -> np.ndarray:
    """What moving a waiting session up at one age and down again at a later one wins per stay [USD].

    p (F(stop) - F(start)) m - s (H(stop) - H(start)), H(T) = p E[min(X,T)] + (1-p) T.
    start, stop   ages between which it stands in the fast place, start <= stop < infinity   [s]
    law           of the return time [s];  rent s of its bytes in the fast place [USD/s]
    fetch_cost    m, of a return that finds it in the slow place instead   [USD]
    return_probability  p [-]
    Zero when start = stop. Negative where few return in between: a prefetch pays only when the time of return is
    known better than the fetch is dear. Source: derived here; difference of two `retention_cost`.
    """
    return retention_cost(start, law, rent, fetch_cost, return_probability) - retention_cost(
        stop, law, rent, fetch_cost, return_probability
    )


def session_hour_price(nbytes: ArrayLike, rent_per_byte: ArrayLike, fixed_rent: ArrayLike = 0.0) -> np.ndarray:
    """Price of holding one session for an hour in a tier [USD/h] = 3600 (bytes * rent per byte + fixed).

    nbytes of the session in this tier, its layout and copies included [B]; rent_per_byte [USD/B/s];
    fixed_rent of what an active session takes beside bytes, its share of a GPU [USD/s]. For a waiting
    session the bill of one stay is this price times `retention_cost`'s held time; for an active one times
    its active time.
    """
    return HOUR * (np.multiply(nbytes, rent_per_byte) + fixed_rent)


def price_plan_cost(
    hit_probability: ArrayLike, write_multiplier: ArrayLike, read_multiplier: ArrayLike, requests: ArrayLike = np.inf
) -> np.ndarray:
    """Mean price of a cached prefix token under a provider's plan, over the plain input price [-].

    (w + (n-1) (r h + w (1-h))) / n: the first request writes, each later one reads when it comes within the
    lifetime and writes again otherwise.
    hit_probability   h, the next request comes within the plan's lifetime: F(L) of the return-time law when
    a read renews
                      the lifetime   [-]
    write_multiplier  w, price of a cached-write token over a plain one   [-]
    read_multiplier   r, price of a cached-read token over a plain one    [-]
    requests          n, requests of the session that share the prefix; infinite for the long run   [-]
    Below one the plan pays; put plans with their own w and L on a leading axis and take the least, with 1
    for none.
    """
    again = np.multiply(write_multiplier, np.subtract(1.0, hit_probability))
    later = np.multiply(read_multiplier, hit_probability) + again
    first = 1 / np.asarray(requests, float)
    return first * write_multiplier + (1 - first) * later


def price_plan_break_even(write_multiplier: ArrayLike, read_multiplier: ArrayLike) -> np.ndarray:
    """Hit probability above which a plan pays in the long run [-] = (w-1)/(w-r); zero when writing costs no
    extra.

    write_multiplier w, read_multiplier r < min(1, w) [-]. Above one when it never pays. Source:
    `price_plan_cost` = 1.
    """
    extra = np.maximum(np.subtract(write_multiplier, 1.0), 0.0)
    return extra / np.subtract(write_multiplier, read_multiplier)
