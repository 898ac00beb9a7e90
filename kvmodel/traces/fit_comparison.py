"""Closed forms fitted to a trace against the trace's own exact curves."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvmodel.formulas import laws
from kvmodel.formulas.reuse import SessionStream, SharedPrefix, hit_tokens
from kvmodel.traces.columns import Trace
from kvmodel.traces.fitted_laws import FittedLaws
from kvmodel.traces.hit_curve import lru_curve, prefix_hits_last_to_first
from kvmodel.traces.prefix_tree import RunStream
from kvmodel.traces.recorded_curve import recorded_hit_ratio
from kvmodel.traces.stack_distance import stack_distances

PERIODS = 4
_CURVE_POINTS = 41
_LAW_POINTS = 13


def compared_with_exact(trace: Trace, stream: RunStream, fitted: FittedLaws) -> dict[str, Any] | None:
    """Errors of the recorded curve and of the fitted laws; None when the trace has no common clock or no
    reuse.
    """
    if not trace.common_clock or not trace.duration_us or stream.unique_blocks == stream.block_accesses:
        return None
    return {"records": _records(trace, stream), "laws": _laws(trace, stream, fitted)}


def _records(trace: Trace, stream: RunStream) -> dict[str, Any]:
    distances = stack_distances(stream)
    curve = lru_curve(stream, distances)
    grid = np.geomspace(curve.capacity_blocks[0], curve.capacity_blocks[-1], _CURVE_POINTS)
    grid = np.unique(grid.astype(np.int64))
    exact = curve.ratio_at(grid)
    mixed, average = (
        recorded_hit_ratio(trace, stream, distances.previous, grid, periods=periods) for periods in (PERIODS, 1)
    )
    stationary = _errors(average, exact)
    return {
        "what": "LRU block hit ratio from recorded contexts and pauses (gamma working set), "
        f"demand averaged over {PERIODS} periods and mixed, against the exact curve",
        **_table(grid, exact, mixed),
        "largest_error_if_stationary": stationary["largest_error"],
        "mean_error_if_stationary": stationary["mean_error"],
    }


def _laws(trace: Trace, stream: RunStream, fitted: FittedLaws) -> dict[str, Any]:
    depth = stack_distances(stream, last_to_first=True).depth
    grid = np.unique(np.geomspace(max(1, stream.unique_blocks / 1000), stream.unique_blocks, _LAW_POINTS).astype(int))
    hits = [prefix_hits_last_to_first(stream, trace, depth, int(capacity))[1] for capacity in grid]
    exact = np.array(hits) / max(int(trace.input_tokens.sum()), 1)
    found = fitted_token_hit_ratio(fitted, grid * float(trace.block_tokens or 1))
    return {
        "what": "prefix token hit ratio (tails evicted before heads) of the fitted laws, independent of each other "
        "and of one kind of session, against the exact curve",
        **_table(grid, exact, found),
    }


def fitted_token_hit_ratio(fitted: FittedLaws, capacity_tokens: np.ndarray) -> np.ndarray:
    """Prefix tokens found / prompt tokens in an LRU cache of this size [tokens], from the laws alone.

    As in a trace, the KV of an answer enters the cache with the next prompt that contains it.
    """
    shares, pauses = zip(*fitted.pauses.values(), strict=True)
    head = SharedPrefix.uniform(fitted.head_tokens, 1) if fitted.head_tokens else None
    own = float(fitted.first_tokens.mean) - fitted.head_tokens
    first = _scaled(fitted.first_tokens, max(own, 1.0))
    step = laws.Sum((fitted.new_tokens, fitted.output_tokens))
    turns = laws.GeometricTurns(fitted.mean_turns)
    pause = pauses[0] if len(pauses) == 1 else laws.Mixture(shares, pauses)
    stream = SessionStream(fitted.arrivals or 0.0, first, step, turns, pause, prefix=head)
    found = hit_tokens([stream], np.asarray(capacity_tokens, float))
    prompts = (first.mean + fitted.head_tokens) * turns.mean + step.mean * turns.factorial_moments[1] / 2
    return (found.private[0] + found.prefix[0]) / prompts


def _scaled(law: laws.Law, mean: float) -> laws.Law:
    """The law with another mean and the same relative spread."""
    if isinstance(law, laws.Lognormal):
        return laws.Lognormal.from_mean_sigma(mean, law.sigma)
    return laws.Constant(mean)


def _table(grid: np.ndarray, exact: np.ndarray, found: np.ndarray) -> dict[str, Any]:
    return {
        "capacity_blocks": grid.tolist(),
        "exact": exact.round(6).tolist(),
        "closed_form": found.round(6).tolist(),
        **_errors(found, exact),
    }


def _errors(found: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    off = np.abs(found - exact)
    return {"largest_error": round(float(off.max()), 6), "mean_error": round(float(off.mean()), 6)}
