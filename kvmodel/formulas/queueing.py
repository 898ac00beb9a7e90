"""How long does a fetch or a prefill wait for its link, device or GPU?

Each law states what traffic it is for and has a companion `..._valid` that is False where it must not be
believed. A utilisation of 1 or more has no steady state: waits are inf there, and the companion says so.
Quantiles are the smallest t with P(W <= t) >= q.

Symbols: rho utilisation, S service time, c servers, Ca2 and Cs2 squared coefficients of variation (SCV) of
arrivals and service, Wq mean wait before service.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincc, gammaln, lambertw, xlogy

__all__ = [
    "BalkingQueue",
    "allen_cunneen_mean_wait",
    "allen_cunneen_valid",
    "balking_queue",
    "batch_mean_wait",
    "burst_mean_seconds",
    "burst_seconds",
    "closed_mean_sojourn",
    "deterministic_max_utilisation",
    "deterministic_wait_exceedance",
    "deterministic_wait_quantile",
    "drain_seconds",
    "others_delay_seconds",
    "pooled_mean_wait",
    "pooled_wait_quantile",
    "priority_mean_wait",
    "priority_valid",
    "shared_sojourn_seconds",
    "shortest_first_mean_seconds",
    "single_server_mean_wait",
    "slowed_mean_sojourn",
    "stable",
    "tail_exceedance",
    "tail_quantile",
    "tail_valid",
    "wait_probability",
]

LEAST_RESIDUAL = 1e-12  # [s], stands for none
SERIES_SERVICES = 12.0  # beyond so many service times the dominant pole of M/D/1 is exact to 1e-9 and the series is not


def stable(utilisation: ArrayLike) -> NDArray:
    """Where a queue has a steady state: 0 <= rho < 1 (the companion of every law here that has no other)."""
    rho = np.asarray(utilisation, float)
    return (rho >= 0) & (rho < 1)


def _idle_share(utilisation: ArrayLike) -> NDArray:
    """1 - rho, and 0 at and beyond saturation so that a wait divided by it is inf."""
    return np.maximum(1.0 - np.asarray(utilisation, float), 0.0)


def _per_idle(numerator: ArrayLike, utilisation: ArrayLike) -> NDArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(utilisation) < 1, numerator / _idle_share(utilisation), np.inf)


def single_server_mean_wait(utilisation: ArrayLike, mean_service: ArrayLike, service_scv: ArrayLike) -> NDArray:
    """Mean wait of one FCFS server with Poisson arrivals, M/G/1: rho (1 + Cs2) / (2 (1 - rho)) S [s].

    utilisation [0-1], mean_service [s], service_scv [1] (0 fixed size, 1 exponential). Zero load waits 0; rho
    >= 1 inf. Exact mean (Pollaczek-Khinchine); valid where `stable`, for Poisson arrivals of independent
    jobs.
    """
    rho = np.asarray(utilisation, float)
    return _per_idle(rho * (1.0 + np.asarray(service_scv, float)) / 2.0 * mean_service, rho)


class BalkingQueue(NamedTuple):
    """A queue that whoever finds it too long leaves alone; kinds of jobs on axis 0, shape (kinds,) + A."""

    joining: NDArray  # share of the jobs of each kind that find little enough work before them [0-1]
    wait: NDArray  # mean wait of those of each kind that join [s]
    mean_wait: NDArray  # mean work found, whoever looks, shape A [s]
    utilisation: NDArray  # of the server by those who join, shape A [0-1]


def balking_queue(offered: ArrayLike, residual: ArrayLike, patience: ArrayLike) -> BalkingQueue:
    """One FCFS server whose jobs look at the work before them and go elsewhere if it exceeds their patience.

        f(w) = P0 r(0)/m exp( int_0^w (r(u) - 1)/m du ),   r(w) = sum_i offered_i 1(patience_i > w)

    is the density of the work found, P0 the probability of none. "Fetch if sooner" is such a queue: a fetch is made if
    its wait is shorter than what it saves. Offers beyond 1 are no trouble: the queue stops growing where the last
    patience ends.

    offered   lambda_i E[S_i], utilisation each kind would add, (kinds,) + A [0-1 and beyond]
    residual  m = E[S^2] / (2 E[S]) over all jobs, shape A [s]
    patience  (kinds,) + A, finite [s]; a kind with 0 or less never joins
    Exact for exponential service (level crossing: f' = (lambda(w) - 1/m) f); otherwise the exponential shape with the
    right mean where patience has no end, M/G/1. No offers wait 0. Source: derived here; Baccelli, Boyer and Hebuterne,
    Single-server queues with impatient customers, Advances in Applied Probability 16 (1984), for one patience.
    """
    offered, patience = np.broadcast_arrays(np.asarray(offered, float), np.asarray(patience, float))
    m = np.maximum(np.asarray(residual, float), LEAST_RESIDUAL)
    patience = np.maximum(patience, 0.0)
    order = np.argsort(patience, axis=0)
    ends = np.take_along_axis(patience, order, axis=0)
    each = np.take_along_axis(np.where(patience > 0, offered, 0.0), order, axis=0)
    begins = np.concatenate([np.zeros_like(ends[:1]), ends[:-1]])
    length = ends - begins
    staying = np.cumsum(each[::-1], axis=0)[::-1]  # r on the stretch that ends at this patience
    climb = (staying - 1.0) / m * length
    after = np.cumsum(climb, axis=0)
    before = np.concatenate([np.zeros_like(after[:1]), after[:-1]])
    top = np.max(np.maximum(after, 0.0), axis=0)  # taken out of all exponents, so that nothing overflows
    whole, first = _ramp(-np.abs(climb))
    scale = staying[0] / m * length * np.exp(np.maximum(before, after) - top)
    mass = scale * whole
    moment = begins * mass + length * scale * np.where(climb > 0, whole - first, first)
    empty, beyond = np.exp(-top), np.exp(after[-1] - top) * staying[0]  # past the last patience it drains at rate 1/m
    total = empty + np.sum(mass, axis=0) + beyond
    back = np.argsort(order, axis=0)
    found, work = (np.take_along_axis(np.cumsum(part, axis=0), back, axis=0) for part in (mass, moment))
    joining = np.where(patience > 0, (empty + found) / total, 0.0)
    wait = np.where(patience > 0, work / np.maximum(empty + found, 1e-300), 0.0)
    mean = (np.sum(moment, axis=0) + beyond * (ends[-1] + m)) / total
    return BalkingQueue(joining, wait, mean, np.sum(offered * joining, axis=0))


def _ramp(x: NDArray) -> tuple[NDArray, NDArray]:
    """Integrals of exp(x u) and of u exp(x u) over u from 0 to 1, for x <= 0: (e^x - 1)/x and (e^x (x-1) + 1)/x^2."""
    small = x > -1e-3
    safe = np.where(small, -1.0, x)
    whole = np.where(small, 1.0 + x / 2.0, np.expm1(safe) / safe)
    return whole, np.where(small, 0.5 + x / 3.0, (np.exp(safe) * (safe - 1.0) + 1.0) / safe**2)


def wait_probability(servers: ArrayLike, utilisation: ArrayLike) -> NDArray:
    """Probability that an arrival finds all c servers busy, M/M/c (Erlang C) [0-1].

        C = B / (1 - rho (1 - B)),  B = (a^c / c!) / sum_{j<=c} a^j / j!,  a = c rho

    servers c [1], utilisation rho per server [0-1]. The sum is a Poisson distribution function, so large c
    does not overflow. rho >= 1 gives 1. Exact; source: Erlang 1917.
    """
    c, rho = np.asarray(servers, float), np.minimum(np.asarray(utilisation, float), 1.0)
    a = c * rho
    blocked = np.exp(xlogy(c, a) - a - gammaln(c + 1.0)) / gammaincc(c + 1.0, a)
    return blocked / (1.0 - rho * (1.0 - blocked))


def pooled_mean_wait(servers: ArrayLike, utilisation: ArrayLike, mean_service: ArrayLike) -> NDArray:
    """Mean wait in front of c servers, M/M/c: C S / (c (1 - rho)) [s].

    Arguments as `wait_probability`; mean_service [s]. Valid where `stable`; exact for exponential service.
    """
    return _per_idle(wait_probability(servers, utilisation) * mean_service / servers, utilisation)


def pooled_wait_quantile(
    quantile: ArrayLike, *, servers: ArrayLike, utilisation: ArrayLike, mean_service: ArrayLike
) -> NDArray:
    """Quantile of the M/M/c wait, from P(W > t) = C exp(-c (1 - rho) t / S) [s].

    0 when fewer than 1 - q wait at all; arguments as `pooled_mean_wait`.
    """
    with np.errstate(divide="ignore"):
        decades = np.log(wait_probability(servers, utilisation) / (1.0 - np.asarray(quantile, float)))
    return _per_idle(np.maximum(decades, 0.0) * mean_service / servers, utilisation)


def allen_cunneen_mean_wait(
    servers: ArrayLike,
    utilisation: ArrayLike,
    mean_service: ArrayLike,
    *,
    arrival_scv: ArrayLike,
    service_scv: ArrayLike,
) -> NDArray:
    """Approximate mean wait of a G/G/c queue: (Ca2 + Cs2) / 2 times the M/M/c wait [s].

    Arguments as `pooled_mean_wait`; arrival_scv Ca2, service_scv Cs2 [1]. Exact for M/M/c and M/G/1; c = 1 is
    Kingman's bound for heavy traffic. Believe it only where `allen_cunneen_valid`. Source: A. O. Allen,
    Probability, Statistics, and Queueing Theory, 2nd ed. 1990.
    """
    spread = (np.asarray(arrival_scv, float) + service_scv) / 2.0
    return spread * pooled_mean_wait(servers, utilisation, mean_service)


def allen_cunneen_valid(utilisation: ArrayLike, *, arrival_scv: ArrayLike) -> NDArray:
    """Where Allen-Cunneen is within about 10 %: stable, and 0.5 <= Ca2 <= 2.

    Against event simulation it is within 8 % at Ca2 = 1; far from that it errs either way, by 30 % with Erlang-4
    arrivals and lognormal service at eight servers.
    """
    ca2 = np.asarray(arrival_scv, float)
    return stable(utilisation) & (ca2 >= 0.5) & (ca2 <= 2.0)


def tail_exceedance(seconds: ArrayLike, *, utilisation: ArrayLike, mean_wait: ArrayLike) -> NDArray:
    """Probability of waiting longer, by the exponential tail with the right mean: rho exp(-rho t / Wq) [0-1].

    seconds t [s]: before the arrival (t < 0) the answer is 1. utilisation rho [0-1]; mean_wait Wq [s]. Wq = 0
    means no wait; rho >= 1 or an infinite Wq gives 1. Exact for M/M/1; p99 errs by +6 % for M/D/1 at rho 0.8,
    +17 % at 0.5, and -20 % for lognormal service of SCV 2: see `tail_valid`. Source:
    the M/M/1 tail with the mean replaced; errors against the exact M/D/1 law and simulation.
    """
    t, rho, wait = (np.asarray(x, float) for x in (seconds, utilisation, mean_wait))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        tail = np.where(wait > 0, rho * np.exp(-rho * t / wait), 0.0)
    endless = (rho >= 1) | np.isinf(wait)
    return np.where((t < 0) | endless, 1.0, np.minimum(tail, 1.0))


def tail_quantile(quantile: ArrayLike, *, utilisation: ArrayLike, mean_wait: ArrayLike) -> NDArray:
    """Quantile of the exponential tail, the inverse of `tail_exceedance`: Wq/rho ln(rho / (1 - q)) [s]."""
    rho, wait = np.asarray(utilisation, float), np.asarray(mean_wait, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(rho > 0, np.maximum(np.log(rho / (1.0 - np.asarray(quantile, float))), 0.0) * wait / rho, 0.0)
    return np.where(rho >= 1, np.inf, t)


def tail_valid(utilisation: ArrayLike, *, service_scv: ArrayLike) -> NDArray:
    """Where the exponential tail is within about 10 % at p99.

    Stable, and Cs2 in [0.5, 1.2], or rho >= 0.7 and Cs2 < 0.5.
    """
    rho, scv = np.asarray(utilisation, float), np.asarray(service_scv, float)
    return stable(rho) & (scv <= 1.2) & ((scv >= 0.5) | (rho >= 0.7))


def _decay(utilisation: ArrayLike) -> NDArray:
    """Decay rate theta of the M/D/1 wait per service time: the positive root of rho (e^theta - 1) = theta."""
    rho = np.asarray(utilisation, float)
    return -rho - lambertw(-rho * np.exp(-rho), k=-1).real


def deterministic_wait_exceedance(seconds: ArrayLike, *, utilisation: ArrayLike, service: ArrayLike) -> NDArray:
    """Probability of waiting longer than t when every job takes the same time, M/D/1, exact [0-1].

        P(W <= t) = (1 - rho) sum_{j=0}^{floor(t/S)} (-x_j)^j e^{x_j} / j!,   x_j = rho (t/S - j)     (Erlang
        1909)

    The terms alternate and grow like e^{rho t/S}, so beyond 12 service times the dominant pole takes over, (1
    - rho) / (rho e^theta - 1) e^{-theta t/S} with rho (e^theta - 1) = theta; either is within 1e-9 (absolute)
    there. seconds t, service S [s]; utilisation rho [0-1]. t < 0 or rho >= 1 gives 1; rho = 0 gives 0 for t
    >= 0.
    """
    rho = np.clip(np.asarray(utilisation, float), 1e-300, 1.0 - 1e-12)
    t = np.asarray(seconds, float) / service
    j = np.arange(SERIES_SERVICES + 1.0).reshape((-1,) + (1,) * np.broadcast(t, rho).ndim)
    x = rho * np.clip(t - j, 0.0, SERIES_SERVICES)
    terms = np.where(j <= t, (-1.0) ** j * np.exp(xlogy(j, x) + x - gammaln(j + 1.0)), 0.0)
    series = 1.0 - (1.0 - rho) * np.sum(terms, axis=0)
    theta = _decay(rho)
    pole = (1.0 - rho) * np.exp(-theta * np.maximum(t, 0.0)) / (rho * np.exp(theta) - 1.0)
    late = np.where(t > SERIES_SERVICES, pole, np.clip(series, 0.0, 1.0))
    return np.where((t < 0) | (np.asarray(utilisation) >= 1), 1.0, late)


def deterministic_wait_quantile(quantile: ArrayLike, *, utilisation: ArrayLike, service: ArrayLike) -> NDArray:
    """Quantile of the exact M/D/1 wait [s], by bisection below Lundberg's bound P(W > t) <= e^{-theta t/S}.

    quantile in [0, 1), the rest as `deterministic_wait_exceedance`. 0 when fewer than 1 - q wait; rho >= 1
    gives inf.
    """
    q, rho = np.asarray(quantile, float), np.clip(np.asarray(utilisation, float), 1e-9, 1.0 - 1e-9)
    high = -np.log1p(-q) / _decay(rho)
    low, high = np.zeros_like(high), high
    for _ in range(60):
        middle = (low + high) / 2.0
        enough = deterministic_wait_exceedance(middle, utilisation=rho, service=1.0) <= 1.0 - q
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    waits = np.where(np.asarray(utilisation) <= 1.0 - q, 0.0, high)
    return np.where(np.asarray(utilisation) < 1, waits, np.inf) * service


def deterministic_max_utilisation(seconds: ArrayLike, *, quantile: ArrayLike, service: ArrayLike) -> NDArray:
    """Largest utilisation at which the given quantile of the M/D/1 wait stays within `seconds` [0-1].

    The inverse of `deterministic_wait_quantile` in the load: divide by the service time for the largest rate.
    seconds: the wait allowed (limit minus service) [s]. A negative allowance gives 0; tends to 1 as it grows.
    """
    t, q, service = (np.asarray(x, float) for x in (seconds, quantile, service))
    low = np.zeros(np.broadcast(t, q, service).shape)
    high = np.ones_like(low)
    for _ in range(60):
        middle = (low + high) / 2.0
        enough = deterministic_wait_exceedance(t, utilisation=middle, service=service) <= 1.0 - q
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    return low


def batch_mean_wait(
    batch_rate: ArrayLike,
    *,
    mean_batch: ArrayLike,
    batch_scv: ArrayLike,
    mean_service: ArrayLike,
    service_scv: ArrayLike,
) -> NDArray:
    """Mean wait per job when jobs come in Poisson batches, M^X/G/1 [s].

        Wq = lambda E[X] E[S^2] / (2 (1 - rho)) + (E[X^2] - E[X]) E[S] / (2 E[X] (1 - rho)),   rho = lambda
        E[X] E[S]

    A request restores tens of blocks at once: the second term is then most of the wait. batch_rate lambda
    [1/s]; mean_batch E[X] [jobs]; batch_scv of X (0 fixed size, 1 - 1/E[X] geometric from one) [1];
    mean_service E[S] [s]; service_scv [1]. Batches of one give M/G/1. rho >= 1 gives inf. Exact; source:
    Burke, Delays in single-server queues with batch input, Operations Research 23 (1975).
    """
    X, S = np.asarray(mean_batch, float), np.asarray(mean_service, float)
    rho = batch_rate * X * S
    alone = rho * S * (1.0 + np.asarray(service_scv, float)) / 2.0
    own_batch = (X * (1.0 + np.asarray(batch_scv, float)) - 1.0) * S / 2.0
    return _per_idle(alone + own_batch, rho)


def shared_sojourn_seconds(service: ArrayLike, utilisation: ArrayLike) -> NDArray:
    """Mean time on a fairly shared link of a job that takes x = `service` alone: x / (1 - rho) [s].

    M/G/1-PS, insensitive to the service law; a mean only, no percentile follows. rho >= 1 gives inf. Source:
    Kleinrock, Queueing Systems II, 1976, section 4.4.
    """
    return _per_idle(np.asarray(service, float), utilisation)


def burst_seconds(jobs: ArrayLike, service: ArrayLike) -> NDArray:
    """When the last of n equal simultaneous jobs ends, and under fair sharing every one: n S [s]."""
    return np.asarray(jobs, float) * service


def burst_mean_seconds(jobs: ArrayLike, service: ArrayLike) -> NDArray:
    """Mean finish of n equal simultaneous jobs served in turn: (n + 1)/2 S [s]; service S [s]."""
    return (np.asarray(jobs, float) + 1.0) / 2.0 * service


def closed_mean_sojourn(
    customers: ArrayLike, service: ArrayLike, think: ArrayLike, service_scv: ArrayLike = 1.0
) -> NDArray:
    """Mean time from request to end of service when a fixed number of customers take turns [s].

        R_n = S (1 + Q_{n-1} - U_{n-1} (1 - Cs2) / 2),  Q_n = n R_n / (R_n + Z),  U_n = n S / (R_n + Z)

    A benchmark at fixed concurrency is closed: each of its N customers prefills for S, then decodes for Z
    before it asks again. customers N, whole [1]; service S [s]; think Z [s]; service_scv Cs2 [1]. N = 1 gives S; Z = 0
    gives N S for Cs2 = 1; Z = inf gives S. Mean value analysis: exact for exponential service (Cs2 = 1) and any think
    time; for other services the job found in service has (1 + Cs2)/2 of S left, which is 11 % low for three customers
    with constant S = 1 and exponential think time of 2. Source: Reiser and Lavenberg, J. ACM 27 (1980) 313-322; Reiser,
    IEEE Trans. Commun. 27 (1979) 1199-1209 for Cs2.
    """
    N, S, Z, scv = np.broadcast_arrays(*(np.asarray(x, float) for x in (customers, service, think, service_scv)))
    queue, busy, sojourn = np.zeros(N.shape), np.zeros(N.shape), np.zeros(N.shape)
    for n in range(1, int(np.max(N, initial=0)) + 1):
        sojourn = np.where(n <= N, S * (1.0 + queue - busy * (1.0 - scv) / 2.0), sojourn)
        with np.errstate(invalid="ignore"):
            cycles = np.where(sojourn > 0, n / (sojourn + Z), 0.0)
        queue, busy = np.where(n <= N, cycles * sojourn, queue), np.where(n <= N, np.minimum(cycles * S, 1.0), busy)
    return sojourn


def slowed_mean_sojourn(
    customers: ArrayLike, service: ArrayLike, think: ArrayLike, service_scv: ArrayLike = 0.0
) -> NDArray:
    """As `closed_mean_sojourn` where thinking only gets the time that service leaves [s].

        Z' = Z / (1 - u),   u = N S / (R(Z') + Z')

    An engine decodes (thinks) in the same steps in which it prefills (serves), so a decode of Z alone takes Z' beside
    the others' prefills. Arguments as there; Z = 0 gives the sojourn without think time; N = 1 gives S. A mean field:
    decode slows down evenly. Where it stood still during every prefill, nobody would come during one and the sojourn
    would be S. Solved for the utilisation u in [0, 1) by bisection: throughput falls as u rises.
    Derived here.
    """
    N, S, Z, scv = np.broadcast_arrays(*(np.asarray(x, float) for x in (customers, service, think, service_scv)))
    low, high = np.zeros(N.shape), np.ones(N.shape)
    for _ in range(40):
        u = (low + high) / 2.0
        stretched = Z / (1.0 - u)
        more = u * (closed_mean_sojourn(N, S, stretched, scv) + stretched) < N * S
        low, high = np.where(more, u, low), np.where(more, high, u)
    return closed_mean_sojourn(N, S, Z / (1.0 - low), scv)


def drain_seconds(services: ArrayLike, *, largest_share: ArrayLike = 1.0) -> NDArray:
    """Finish times of unequal simultaneous jobs on a fairly shared link, smallest first [s].

        t_k = t_{k-1} + (x_k - x_{k-1}) / r_k,   r_k = min(1/(n - k + 1), largest_share)

    services x: time each needs alone on the whole link, one leading axis, one entry per job [s];
    largest_share: cap of one job's rate as a share of the link [0-1]. Returns the times sorted along that
    axis. Source: processor sharing between two departures, derived here.
    """
    x = np.sort(np.asarray(services, float), axis=0)
    left = np.arange(x.shape[0], 0, -1.0).reshape((-1,) + (1,) * (x.ndim - 1))
    steps = np.diff(x, axis=0, prepend=np.zeros_like(x[:1]))
    return np.cumsum(steps / np.minimum(1.0 / left, largest_share), axis=0)


def shortest_first_mean_seconds(services: ArrayLike) -> NDArray:
    """Mean finish of simultaneous jobs served one by one, shortest first: the least any order reaches [s].

    services [s] with one leading axis, one entry per job.
    """
    return np.mean(np.cumsum(np.sort(np.asarray(services, float), axis=0), axis=0), axis=0)


def priority_mean_wait(rates: ArrayLike, mean_service: ArrayLike, service_scv: ArrayLike) -> NDArray:
    """Mean wait per class when the highest waiting class is served next, without interruption [s].

        W_k = R / ((1 - s_{k-1}) (1 - s_k)),   R = sum_i lambda_i E[S_i^2] / 2,   s_k = rho_1 + ... + rho_k

    Demand fetches above prefetch above write-back. rates lambda [1/s], mean_service [s], service_scv [1]
    carry one leading axis, highest class first. A class with s_k >= 1 waits inf, those above it still do not,
    with their residual then that of a server that is always busy below them: flagged by `priority_valid`.
    Source: Cobham 1954.
    """
    S = np.asarray(mean_service, float)
    load = rates * S
    residual = np.sum(load * S * (1.0 + np.asarray(service_scv, float)) / 2.0, axis=0)
    upto = np.cumsum(load, axis=0)
    return _per_idle(_per_idle(residual, upto - load), upto)


def priority_valid(rates: ArrayLike, mean_service: ArrayLike) -> NDArray:
    """Where Cobham's law holds for all classes: total utilisation below 1; leading axis is the class."""
    return stable(np.sum(np.asarray(rates, float) * mean_service, axis=0))


def others_delay_seconds(work: ArrayLike, *, rate: ArrayLike, utilisation: ArrayLike, mean_wait: ArrayLike) -> NDArray:
    """Delay that one more job of `work` seconds causes to all who come later, summed over them [s].

        lambda (x Wq + x^2 / 2) / (1 - rho)

    Why "fetch if faster" misjudges a busy GPU: a recompute also holds up everyone behind it. work x [s]; rate
    lambda of arrivals [1/s]; utilisation [0-1]; mean_wait Wq [s]. No arrivals, no delay; rho >= 1 gives inf.
    Exact mean for FCFS and Poisson arrivals. Derived here: the layer dx on top of a backlog v delays every
    arrival by dx until v has drained, which takes v / (1 - rho); integrate v from the backlog found (mean Wq)
    to Wq + x.
    """
    x = np.asarray(work, float)
    return _per_idle(rate * (x * mean_wait + x * x / 2.0), utilisation)
