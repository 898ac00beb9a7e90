"""From which prefix length, bandwidth, load or queue on is fetching KV faster than computing it again?

Fetching a prefix of p tokens costs `fixed + per_token p`; recomputing it costs `linear p + attention p^2`
more than finding it cached (:func:`kvmodel.formulas.prefill.saved_seconds`; neither the prompt behind the
prefix nor the prefill constant enters, both are paid either way). A tie is no win: fetching must be strictly
faster.

Symbols: F fixed [s], c per fetched token [s/token], l linear [s/token], a attention [s/token^2], p prefix
[tokens].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "break_even_bandwidth",
    "break_even_position",
    "break_even_queue_seconds",
    "break_even_tokens",
    "break_even_utilisation",
    "break_even_where",
    "compute_then_fetch_split",
    "fetch_or_recompute_seconds",
    "fetch_wins",
    "linear_parallel_split",
    "parallel_split",
]


def fetch_wins(fetch_seconds: ArrayLike, recompute_seconds: ArrayLike) -> NDArray:
    """Whether fetching is strictly faster than recomputing; both [s], including their queues.

    Both infinite (neither can be done) is no win.
    """
    return np.asarray(fetch_seconds, float) < np.asarray(recompute_seconds, float)


def break_even_tokens(*, fixed: ArrayLike, per_token: ArrayLike, linear: ArrayLike, attention: ArrayLike) -> NDArray:
    """Prefix length above which fetching is faster for every longer prefix [tokens].

        a p^2 + (l - c) p - F = 0,   p* = the larger root, or 0 when that is negative or absent

    The gain g(p) = a p^2 + (l - c) p - F is convex, and starts at -F <= 0, so exactly one root is positive:
    the larger one. It is written so that no two close numbers are subtracted: 2F / (b + D) when b = l - c >=
    0, (D - b) / 2a when b < 0, with D = sqrt(b^2 + 4 a F).

    fixed: look-up, queue, latency of a fetch [s]; per_token: bytes per token over bandwidth, copies,
    conversion [s]; linear [s/token] and attention [s/token^2] of prefill. Returns 0 when fetching always wins
    (F = 0, l > c), inf when it never does (a = 0 and l <= c; or F, c infinite). A negative F (a queue before
    the GPU longer than the one before the tier) is allowed: short prefixes win as well. Source: derived here.
    With a = 0 it is the linear rule p* = F / (l - c).
    """
    a, F = np.asarray(attention, float), np.asarray(fixed, float)
    b = np.asarray(linear, float) - per_token
    D = np.sqrt(np.maximum(b * b + 4.0 * a * F, 0.0))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        root = np.where(b > 0, 2.0 * F / (b + D), (D - b) / (2.0 * a))
        never = ((a == 0) & (b <= 0)) | ~np.isfinite(F) | ~np.isfinite(b)
        absent = b * b + 4.0 * a * F < 0
    return np.where(never, np.inf, np.where(absent, 0.0, np.maximum(root, 0.0)))


def break_even_bandwidth(nbytes: ArrayLike, *, saved: ArrayLike, fixed: ArrayLike = 0.0) -> NDArray:
    """Smallest bandwidth that makes a fetch as fast as recomputing: bytes / (saved - fixed) [B/s].

    nbytes [bytes]; saved: prefill time a hit saves [s]; fixed: latency, look-up, queue of the fetch [s].
    inf when the fixed part alone is as long as the recompute; 0 when there is nothing to move.
    Source: fixed + bytes / B = saved solved for B, derived here.
    """
    size, slack = np.asarray(nbytes, float), np.asarray(saved, float) - fixed
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(slack > 0, size / slack, np.inf)


def break_even_queue_seconds(*, fetch: ArrayLike, saved: ArrayLike) -> NDArray:
    """Longest wait before a fetch at which it still pays: max(saved - fetch, 0) [s].

    fetch: unloaded fetch time [s]; saved: recompute it avoids, with its own wait [s]. Divide by the time of
    one fetch for the number of fetches ahead.
    """
    return np.maximum(np.asarray(saved, float) - fetch, 0.0)


def break_even_utilisation(*, fetch: ArrayLike, service: ArrayLike, saved: ArrayLike, scv: ArrayLike = 0.0) -> NDArray:
    """Link utilisation at which the mean M/G/1 wait uses up the advantage of a fetch [0-1].

        rho* = 2 y / (1 + scv + 2 y),   y = (saved - fetch) / service

    fetch: unloaded fetch time [s]; service: time one fetch occupies the link [s]; saved: recompute avoided
    [s]; scv: squared coefficient of variation of the service (0: M/D/1) [1]. 0 when an idle link loses
    already; tends to 1 as the slack grows. Source: the Pollaczek-Khinchine mean wait
    (Kleinrock, Queueing Systems I, 1975, section 5.6) set equal to saved - fetch, derived here.
    """
    slack = 2.0 * np.maximum(np.asarray(saved, float) - fetch, 0.0)
    occupied = (1.0 + np.asarray(scv, float)) * service
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(slack == 0, 0.0, 1.0 / (1.0 + occupied / slack))


def break_even_position(*, per_token: ArrayLike, linear: ArrayLike, attention: ArrayLike) -> NDArray:
    """Prompt position from which a token is dearer to compute than to fetch: (c - l) / 2a [tokens].

    A token at position x costs l + 2 a x to compute and c to fetch. 0 when l >= c (every token is worth
    fetching, fixed cost apart); inf when a = 0 and l < c. Units as `break_even_tokens`. Source: derivative of
    the prefill law.
    """
    excess = np.maximum(np.asarray(per_token, float) - linear, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(excess == 0, 0.0, excess / (2.0 * np.asarray(attention, float)))


def break_even_where(
    gain: Callable[[NDArray], NDArray], like: ArrayLike, *, longest: float = 2.0**30, halvings: int = 80
) -> NDArray:
    """Prefix length above which any convex gain stays positive, where no closed form gives the root [tokens].

    For gains that count more than `break_even_tokens` does, such as what a recompute costs those queued behind it
    (`queueing.others_delay_seconds`). gain: function of an array of prefix lengths [tokens] that gives the seconds a
    fetch saves, convex and at most 0 at 0; like: any array of the shape of the answer; longest: prefix beyond which
    nobody asks [tokens]. Returns inf where the gain is not positive even there (inf - inf counts as no gain), 0 where
    it is positive from the first token on. Resolution longest / 2^halvings. Bisection; derived here.
    """
    low = np.zeros(np.shape(like))
    high = np.full(np.shape(like), longest)
    never = ~(gain(high) > 0)
    for _ in range(halvings):
        middle = (low + high) / 2.0
        wins = gain(middle) > 0
        low, high = np.where(wins, low, middle), np.where(wins, middle, high)
    return np.where(never, np.inf, np.where(high < 1e-9, 0.0, high))


def fetch_or_recompute_seconds(
    tokens: ArrayLike,
    available_tokens: ArrayLike,
    *,
    fixed: ArrayLike,
    per_token: ArrayLike,
    constant: ArrayLike,
    linear: ArrayLike,
    attention: ArrayLike,
) -> NDArray:
    """Shortest time to a full KV when the fetched prefix comes first and the rest is computed after it [s].

        min( T(n, 0),  F + c p + T(n, p) ),   T the prefill law

    Splitting the prefix never helps: the time is concave in the fetched length (its only curved part is -a
    p^2), so the optimum is at an end, none or all. tokens: prompt n; available_tokens: p <= n that the tier
    holds [tokens]; fixed, constant [s]; per_token, linear [s/token]; attention [s/token^2]. Source: derived
    here.
    """
    n, p = np.asarray(tokens, float), np.asarray(available_tokens, float)
    gain = p * (np.asarray(linear, float) - per_token + attention * p) - fixed
    return constant + n * (linear + attention * n) - np.maximum(np.where(p > 0, gain, 0.0), 0.0)


def parallel_split(
    tokens: ArrayLike,
    *,
    fixed: ArrayLike,
    per_token: ArrayLike,
    constant: ArrayLike,
    linear: ArrayLike,
    attention: ArrayLike,
) -> tuple[NDArray, NDArray]:
    """Computed head [tokens] and time [s] when the head is computed while the tail is fetched.

        K + l q + a q^2 = F + c (n - q)

    The GPU works from the first token on, the tier from the last (bidirectional, Cake, arXiv 2410.03065): the
    fetched tail needs no compute, the computed head no later KV. Returns (q, seconds): q = n when fetching
    cannot help, q = 0 when the fetch is done before the first token would be. tokens n [tokens], constant K
    [s]; the rest as `break_even_tokens`. Infinite F or c gives the pure recompute. Never slower than either
    alone.
    """
    n, a, K = np.asarray(tokens, float), np.asarray(attention, float), np.asarray(constant, float)
    b = np.asarray(linear, float) + per_token
    missing = np.asarray(fixed, float) + per_token * n - K  # what the fetch of everything takes beyond the constant
    with np.errstate(divide="ignore", invalid="ignore"):
        root = 2.0 * missing / (b + np.sqrt(np.maximum(b * b + 4.0 * a * missing, 0.0)))
        q = np.where(missing <= 0, 0.0, np.where(np.isfinite(root), np.minimum(root, n), n))
    computed = K + q * (np.asarray(linear, float) + a * q)
    with np.errstate(invalid="ignore"):
        return q, np.where(q > 0, computed, np.asarray(fixed, float) + per_token * n)


def linear_parallel_split(*, recompute: ArrayLike, fetch: ArrayLike) -> tuple[NDArray, NDArray]:
    """Fetched share and time of the parallel split when both costs are linear in tokens.

        share = t_c / (t_c + t_l),   t = t_c t_l / (t_c + t_l)

    recompute t_c, fetch t_l: of the whole prefix alone [s]. A lower bound on the time, since attention is
    superlinear (Cake, arXiv 2410.03065). An infinite fetch gives share 0 and t_c; a free one share 1 and 0.
    """
    rate_c, rate_l = _rate(recompute), _rate(fetch)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(np.isinf(rate_l), 1.0, rate_l / (rate_c + rate_l))
        return np.where(rate_l == 0, 0.0, share), 1.0 / (rate_c + rate_l)


def _rate(seconds: ArrayLike) -> NDArray:
    with np.errstate(divide="ignore"):
        return 1.0 / np.asarray(seconds, float)


def compute_then_fetch_split(
    tokens: ArrayLike, *, per_token: ArrayLike, linear: ArrayLike, attention: ArrayLike
) -> NDArray:
    """Head to compute, one after the other, before the tail is fetched: min(n, (c - l) / 2a) [tokens].

    The early tokens are cheap to compute and as dear to fetch as any; the convex cost has its minimum where
    one more token costs the same both ways. Worth it only if the fixed cost of the fetch is then still
    covered: compare l q + a q^2 + F + c (n - q) with l n + a n^2. Units as `break_even_tokens`. Source:
    derived here.
    """
    return np.minimum(tokens, break_even_position(per_token=per_token, linear=linear, attention=attention))
