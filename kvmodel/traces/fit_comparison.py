"""Closed forms fitted to a trace against the trace's own exact curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kvmodel.formulas import laws
from kvmodel.formulas.reuse import SessionStream, SharedPrefix, hit_tokens
from kvmodel.traces.columns import MICROSECONDS, Trace
from kvmodel.traces.fitted_laws import FittedKind, FittedWorkload
from kvmodel.traces.hit_curve import lru_curve, prefix_hits_last_to_first
from kvmodel.traces.prefix_tree import RunStream
from kvmodel.traces.recorded_curve import recorded_hit_ratio
from kvmodel.traces.stack_distance import stack_distances

PERIODS = 4
_CURVE_POINTS = 41
_LAW_POINTS = 13


def compared_with_exact(trace: Trace, stream: RunStream, fitted: FittedWorkload) -> dict[str, Any] | None:
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


def _laws(trace: Trace, stream: RunStream, fitted: FittedWorkload) -> dict[str, Any]:
    depth = stack_distances(stream, last_to_first=True).depth
    grid = np.unique(np.geomspace(max(1, stream.unique_blocks / 1000), stream.unique_blocks, _LAW_POINTS).astype(int))
    hits = [prefix_hits_last_to_first(stream, trace, depth, int(capacity))[1] for capacity in grid]
    prompts = max(int(trace.input_tokens.sum()), 1)
    exact = np.array(hits) / prompts
    seconds = (trace.duration_us or 1) / MICROSECONDS
    mixed, average = (
        fitted_tokens_found(fitted, grid * float(trace.block_tokens or 1), trace.block_tokens or 1, levels)
        * (seconds / prompts)
        for levels in (fitted.levels, (1.0,))
    )
    stationary = _errors(average, exact)
    return {
        "what": "prefix token hit ratio (tails evicted before heads) of the workload section alone, against the "
        "exact curve",
        **_table(grid, exact, mixed),
        "largest_error_if_stationary": stationary["largest_error"],
        "mean_error_if_stationary": stationary["mean_error"],
    }


def fitted_tokens_found(
    fitted: FittedWorkload, capacity_tokens: np.ndarray, block_tokens: int, levels: Sequence[float]
) -> np.ndarray:
    """Prefix tokens found per second in an LRU cache of this size [tokens], from the laws alone.

    As in a trace, the KV of an answer enters the cache with the next prompt that contains it, and the partial block at
    the end of a prompt is lost when the context grows: half a block on average. Rates are mixed over the levels.
    """
    head = SharedPrefix.uniform(fitted.head_tokens, 1) if fitted.head_tokens else None
    streams = [_stream(kind, head, block_tokens / 2) for kind in fitted.kinds]
    rate = np.asarray(levels).reshape((-1, 1))
    hits = hit_tokens(
        [replace(stream, arrival_rate=rate * stream.arrival_rate) for stream in streams],
        np.asarray(capacity_tokens, float),
    )
    each = np.array([stream.arrival_rate for stream in streams]).reshape((-1, 1, 1))
    return (each * rate * (hits.private + hits.prefix)).sum(axis=0).mean(axis=0)


def _stream(kind: FittedKind, head: SharedPrefix | None, lost: float) -> SessionStream:
    first = _shifted(kind.first_tokens, lost)
    return SessionStream(kind.arrivals or 0.0, first, kind.growth_tokens, kind.turns_law, kind.pause_law, prefix=head)


def _shifted(law: laws.Law, tokens: float) -> laws.Law:
    """The law of what is left after some tokens are taken off."""
    if isinstance(law, laws.Empirical):
        return laws.Empirical(np.maximum(np.asarray(law.knots) - tokens, 0.0))
    return laws.Constant(max(float(law.mean) - tokens, 0.0))


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
