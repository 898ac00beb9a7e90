"""The second-order characteristic time with recorded contexts and pauses in place of laws.

An access returns after a pause t to a context of S blocks that was touched as a whole, and hits an LRU cache
of C blocks when S + W(t) <= C, W(t) being what the others touched in between. W is a sum over contexts, with
cumulants

    kappa_j(t) = (1 / D) sum_k S_k^j min(G_k, t)        (G_k: until the context's next use)

over a trace of duration D, and is taken as gamma with these two. Only contexts, pauses and the rate enter,
never the trace's own stack distances; what a curve from these misses is shape (gamma, contexts
independent), and non-stationarity (kappa is an average over the trace). Averaging over shorter periods
instead, and mixing over the accesses of each, tells the two apart. The returning session is counted among
the others, which is right for many sessions and pessimistic for one or two. Equation: growing sessions
under a characteristic time, derived in `formulas.reuse`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc

from kvmodel.traces.columns import MICROSECONDS, Trace
from kvmodel.traces.prefix_tree import RunStream
from kvmodel.traces.reuse_time import next_rows

_TIME_NODES = 80
_SMALLEST = 1e-9


@dataclass(frozen=True)
class _Contexts:
    """Per run access: when [s], time to its next use [s], blocks, and size [blocks] of the request it is
    part of.
    """

    time: np.ndarray
    next_use: np.ndarray
    blocks: np.ndarray
    size: np.ndarray


def recorded_hit_ratio(
    trace: Trace, stream: RunStream, previous: np.ndarray, capacity_blocks: np.ndarray, *, periods: int = 1
) -> np.ndarray:
    """LRU block hit ratio at these capacities [blocks] that the recorded contexts and pauses imply, with
    demand averaged over each of `periods` equal parts of the trace. Needs a clock and a duration above
    zero.
    """
    assert trace.time_us is not None
    clock = (trace.time_us - trace.time_us[0]) / MICROSECONDS
    following = next_rows(previous)
    time = clock[stream.request]
    next_use = np.where(following >= 0, time[following] - time, np.inf)
    contexts = _Contexts(time, next_use, stream.blocks, trace.blocks[stream.request].astype(float))

    again = previous >= 0
    pause = time[again] - time[previous[again]]
    own = contexts.size[previous[again]]
    weight = stream.blocks[again]
    edges = np.linspace(0.0, clock[-1], periods + 1)
    period = np.clip(np.searchsorted(edges, time[again], side="right") - 1, 0, periods - 1)
    mean, variance = np.zeros(len(pause)), np.zeros(len(pause))
    nodes = _time_nodes(pause, clock[-1])
    for number in range(periods):
        inside = period == number
        cumulants = _cumulants(contexts, nodes, edges[number], edges[number + 1])
        mean[inside], variance[inside] = (np.interp(pause[inside], nodes, kappa) for kappa in cumulants)
    hits = [weight @ _fits(capacity - own, mean, variance) for capacity in np.asarray(capacity_blocks, float)]
    return np.array(hits) / max(stream.block_accesses, 1)


def _time_nodes(pause: np.ndarray, duration: float) -> np.ndarray:
    shortest = np.min(pause[pause > 0], initial=duration)
    return np.concatenate([[0.0], np.geomspace(shortest, duration, _TIME_NODES)])


def _cumulants(contexts: _Contexts, windows: np.ndarray, start: float, end: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance [blocks, blocks^2] of what is in use within each window, averaged from start to
    end [s].
    """
    kappa = np.empty((2, len(windows)))
    for k, window in enumerate(windows):
        leaves = np.minimum(contexts.time + np.minimum(contexts.next_use, window), end)
        held = np.maximum(leaves - np.maximum(contexts.time, start), 0.0) * contexts.blocks
        kappa[:, k] = held.sum(), held @ contexts.size
    return kappa[0] / (end - start), kappa[1] / (end - start)


def _fits(room: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """P(W <= room) for gamma W; certain when W is certain to be zero, impossible when there is no room."""
    spread = np.maximum(variance, _SMALLEST)
    shape = np.maximum(mean**2 / spread, _SMALLEST)
    certain = mean <= _SMALLEST
    probability = gammainc(shape, np.maximum(room, 0.0) * mean / spread)
    return np.where(certain, 1.0, probability) * (room >= 0)
