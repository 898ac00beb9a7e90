"""What do measured points say about the terms of the prefill and transfer laws?

Both laws are sums of non-negative terms, so they are fitted by non-negative least squares on *relative*
errors (a 20 ms point counts as much as a 20 s one), with weights that let go of single outliers such as a
cold start. Every fit returns its residuals and its leave-one-out errors: each point predicted by a fit that
did not see it.

Axes: one point per entry of the last axis; terms of a law lead. These functions fit one series of points at a
time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Fit",
    "PrefillFit",
    "RestoreFit",
    "TransferFit",
    "busy_factor",
    "concurrency_factor",
    "prefill_fit",
    "prefill_predicted",
    "relative_fit",
    "restore_fit",
    "transfer_fit",
]

NOISE = 0.003  # relative scatter that makes no outlier: the digits of a printed benchmark
TUKEY = 4.685  # biweight cut-off in standard deviations, 95 % efficient for Gaussian errors (Tukey 1974)
SHRINK = 0.05  # pseudo-points holding a busy factor at one: points scatter by 2 %, engines by 10 %, so (2/10)^2


class Fit(NamedTuple):
    """Coefficients of a sum of non-negative terms, and how well they do.

    coefficients: one per term; levels, busy: concurrency levels seen and the factor each multiplies the sum
    with; residuals: predicted / measured - 1; left_out: the same for fits without the point, nan when too few
    points remain; outliers: points the fit let go of.
    """

    coefficients: NDArray
    levels: NDArray
    busy: NDArray
    residuals: NDArray
    left_out: NDArray
    outliers: NDArray


class PrefillFit(NamedTuple):
    """Terms of the prefill law [s, s/token, s/token^2] and the fit they come from."""

    constant: NDArray
    linear: NDArray
    attention: NDArray
    fit: Fit


class TransferFit(NamedTuple):
    """Terms of the transfer law [s, s/copy, B/s] and the fit they come from."""

    latency: NDArray
    seconds_per_copy: NDArray
    bandwidth: NDArray
    fit: Fit


class RestoreFit(NamedTuple):
    """Prefill terms, and latency [s] and bandwidth [B/s] of the path the cached prefix came over."""

    constant: NDArray
    linear: NDArray
    attention: NDArray
    latency: NDArray
    bandwidth: NDArray
    fit: Fit


def concurrency_factor(concurrency: ArrayLike, tokens: ArrayLike, step_tokens: ArrayLike = 1.0) -> NDArray:
    """Mean completion of c equal prompts sent together, in units of one alone.

    The first is computed alone (it arrives first), the rest in steps of as many prompts as the engine's token
    budget per step holds; all prompts of a step finish together. With m = c - 1, k = max(1, floor(step / n)),
    q = floor(m / k):

        ( 1 + sum_{j=1}^{q} k (1 + j k) + (m - q k) c ) / c          (k = 1: first come first served, (c + 1)
        / 2)

    concurrency c [requests]; tokens n per prompt [tokens]; step_tokens: token budget of one engine step
    [tokens]. c = 1 gives 1. Derived here; checked against measured TTFT of c = 1 to 8 (QwQ-32B on two H20:
    median error 1 %).
    """
    c = np.asarray(concurrency, float)
    k = np.maximum(np.floor(step_tokens / np.asarray(tokens, float)), 1.0)
    full = np.floor((c - 1.0) / k)
    return (1.0 + k * full + k * k * full * (full + 1.0) / 2.0 + (c - 1.0 - full * k) * c) / c


def relative_fit(columns: ArrayLike, measured: ArrayLike, *, levels: ArrayLike | None = None) -> Fit:
    """Non-negative x that minimise the robust sum of (busy * x . columns / measured - 1)^2.

    columns: the law's terms, shape (terms, points); measured [any unit], positive, shape (points,); levels: a
    label per point, e.g. its concurrency; every level but the lowest has a factor `busy` of its own (what a
    busy engine costs beyond the law), held near one by a fraction of a point. Fewer points than terms: the
    fit is exact and says little.
    """
    columns, measured = np.asarray(columns, float), np.asarray(measured, float)
    group = np.zeros(len(measured)) if levels is None else np.asarray(levels, float)
    x, seen, busy, weights = _fit_once(columns, measured, group)
    predicted = _at_level(group, seen, busy) * (x @ columns)
    left_out = np.full(len(measured), np.nan)
    for i in range(len(measured)):  # refits, not a formula: as many as there are points
        rest = np.arange(len(measured)) != i
        if rest.sum() >= np.any(columns > 0, axis=1).sum():
            y, s, b, _ = _fit_once(columns[:, rest], measured[rest], group[rest])
            left_out[i] = _at_level(group[i], s, b) * (y @ columns[:, i]) / measured[i] - 1.0
    return Fit(x, seen, busy, predicted / measured - 1.0, left_out, weights < 0.01)


def _at_level(group: ArrayLike, levels: NDArray, busy: NDArray) -> NDArray:
    """Busy factor at a level: interpolated between, and held beyond, the levels seen."""
    return np.interp(group, levels, busy)


def _fit_once(columns: NDArray, measured: NDArray, group: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Alternate between the terms (robust, factors known) and the busy factors (terms known)."""
    levels, member = np.unique(group, return_inverse=True)
    busy = np.ones(len(levels))
    for _ in range(30 if len(levels) > 1 else 0):
        x, weights = _robust_terms(columns * busy[member] / measured)
        off = np.log(np.maximum(x @ columns / measured, 1e-300))
        total = np.bincount(member, weights=-weights * off, minlength=len(levels))
        counted = np.bincount(member, weights=weights, minlength=len(levels)) + SHRINK
        before, busy = busy, np.exp(total / counted)
        busy[0] = 1.0  # the lowest level defines the terms
        if np.allclose(busy, before, rtol=1e-3):
            break
    x, weights = _robust_terms(columns * busy[member] / measured)
    return x, levels, busy, weights


def _robust_terms(ratios: NDArray) -> tuple[NDArray, NDArray]:
    """Non-negative terms with x @ ratios near one for most points, and the weight each point ended with.

    Iteratively reweighted least squares with Tukey's biweight. It starts from the leave-one-out fit with the
    smallest median residual, since one far point can draw the plain fit onto itself.
    """
    points, terms = ratios.shape[1], np.any(ratios > 0, axis=1).sum()
    everything = np.ones(points)
    if points < terms + 2:
        return _terms(ratios, everything), everything
    starts = [_terms(ratios, everything - row) for row in np.eye(points)] + [_terms(ratios, everything)]
    x = min(starts, key=lambda y: np.median(np.abs(y @ ratios - 1.0)))
    for _ in range(20):
        off = np.abs(x @ ratios - 1.0)
        scale = 1.4826 * np.median(off) + NOISE
        weights = np.maximum(1.0 - (off / (TUKEY * scale)) ** 2, 0.0) ** 2
        x = _terms(ratios, weights)
    return x, weights


def _terms(ratios: NDArray, weights: NDArray) -> NDArray:
    from scipy.optimize import nnls

    root = np.sqrt(weights)
    size = np.maximum(np.abs(ratios).max(axis=1), 1e-300)  # terms differ by ten orders: scale them alike
    return nnls((ratios / size[:, None] * root).T, root)[0] / size


def prefill_fit(
    tokens: ArrayLike,
    cached_tokens: ArrayLike,
    seconds: ArrayLike,
    *,
    concurrency: ArrayLike = 1.0,
    step_tokens: ArrayLike = 8192.0,
) -> PrefillFit:
    """Constant, linear and attention term of the prefill law from measured points.

    tokens n, cached_tokens p [tokens], seconds: time to first token [s], concurrency: requests sent together
    [1], each of shape (points,) or one for all; step_tokens: token budget of an engine step
    (`concurrency_factor`) [tokens]. The constant is what no other prompt waits for (request handling, first decode
    step), so it is paid once at any concurrency. Needs three different lengths to tell three terms apart; five points
    for outliers to be noticed.
    """
    n, p, t, c = np.broadcast_arrays(*(np.asarray(v, float) for v in (tokens, cached_tokens, seconds, concurrency)))
    waiting = concurrency_factor(c, n, step_tokens)
    fit = relative_fit(np.stack([np.ones_like(n), waiting * (n - p), waiting * (n * n - p * p)]), t, levels=c)
    return PrefillFit(*fit.coefficients, fit)


def busy_factor(fit: Fit, concurrency: ArrayLike) -> NDArray:
    """Calibrated factor at a concurrency, interpolated between those measured and held beyond them [1]."""
    return _at_level(np.asarray(concurrency, float), fit.levels, fit.busy)


def prefill_predicted(
    fitted: PrefillFit,
    tokens: ArrayLike,
    cached_tokens: ArrayLike,
    *,
    concurrency: ArrayLike = 1.0,
    step_tokens: ArrayLike = 8192.0,
) -> NDArray:
    """Mean time to first token that a `PrefillFit` predicts [s]; arguments as `prefill_fit`."""
    n, p = np.asarray(tokens, float), np.asarray(cached_tokens, float)
    computed = fitted.linear * (n - p) + fitted.attention * (n * n - p * p)
    waiting = concurrency_factor(concurrency, n, step_tokens)
    return busy_factor(fitted.fit, concurrency) * (fitted.constant + waiting * computed)


def transfer_fit(nbytes: ArrayLike, seconds: ArrayLike, *, block_bytes: ArrayLike | None = None) -> TransferFit:
    """Latency, cost per copy and bandwidth of the transfer law from measured points.

    nbytes moved [bytes], seconds [s] and block_bytes: size of one copy [bytes], each of shape (points,) or
    one for all. Without block sizes there is no per-copy term; with a single one it cannot be told from the
    bandwidth and stays in it. A bandwidth of inf means that time did not grow with bytes.
    """
    size, t = np.broadcast_arrays(np.asarray(nbytes, float), np.asarray(seconds, float))
    terms = [np.ones_like(size), size]
    block = np.broadcast_to(np.inf if block_bytes is None else np.asarray(block_bytes, float), size.shape)
    if np.unique(block).size > 1:
        terms.append(size / block)
    fit = relative_fit(np.stack(terms), t)
    latency, per_byte, per_copy = np.append(fit.coefficients, 0.0)[:3]
    with np.errstate(divide="ignore"):
        return TransferFit(latency, per_copy, np.divide(1.0, per_byte), fit)


def restore_fit(
    tokens: ArrayLike,
    cached_tokens: ArrayLike,
    moved_bytes: ArrayLike,
    seconds: ArrayLike,
    *,
    concurrency: ArrayLike = 1.0,
    step_tokens: ArrayLike = 8192.0,
) -> RestoreFit:
    """Prefill and fetch terms together, from points with and without a fetched prefix.

        t = constant + f(c, n - p) (linear (n - p) + attention (n^2 - p^2)) + (c + 1)/2 (latency [p > 0] + bytes / B)

    the suffix is computed as in `prefill_fit`, the fetches come first come first served. tokens n,
    cached_tokens p [tokens]; moved_bytes: what the path carries for p [bytes]; seconds: mean time to first
    token [s]. Needs points with p = 0 or with several hit ratios; with whole hits only the compute terms stay
    0 and the latency takes the constant.
    """
    values = (tokens, cached_tokens, moved_bytes, seconds, concurrency)
    n, p, size, t, c = np.broadcast_arrays(*(np.asarray(v, float) for v in values))
    waiting = concurrency_factor(c, np.maximum(n - p, 1.0), step_tokens)
    compute = np.stack([np.ones_like(n), waiting * (n - p), waiting * (n * n - p * p)])
    moving = np.stack([(p > 0).astype(float), size]) * (c + 1.0) / 2.0
    if np.all(p >= n):
        compute = compute * 0.0
    fit = relative_fit(np.concatenate([compute, moving]), t, levels=c)
    *terms, per_byte = fit.coefficients
    with np.errstate(divide="ignore"):
        return RestoreFit(*terms, np.divide(1.0, per_byte), fit)
