"""How far a curve from sampled sessions may be from the curve of the whole trace.

Two errors, told apart. The spread over which sessions were drawn: delete-a-group jackknife over the
sample's sessions. The bias of scaling: a few sessions in a small cache are not a small copy of many in a
large one (contexts are large, so hits fall). It is seen by halving the sample once more; a bias that goes
as 1/size then follows as that change times (1 - share). Where either is large the sample is too small for
that capacity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvmodel.traces.columns import Trace
from kvmodel.traces.hit_curve import lru_curve
from kvmodel.traces.prefix_tree import run_stream
from kvmodel.traces.sampling import COMMON_HEAD_SHARE
from kvmodel.traces.stack_distance import stack_distances

GROUPS = 8


@dataclass(frozen=True)
class SamplingError:
    """Per capacity: standard error and estimated bias (sample minus whole) of the LRU block hit ratio."""

    standard_error: np.ndarray
    scaling_bias: np.ndarray


def sampling_error(trace: Trace, share: float, capacity_blocks: np.ndarray) -> SamplingError:
    """Errors of a sample holding `share` of the sessions, at these capacities [blocks] of the whole trace."""
    groups = session_groups(trace, GROUPS)
    everything = np.arange(trace.requests)

    def ratios(rows: np.ndarray, part: float) -> np.ndarray:
        stream = run_stream(trace.take(rows))
        sizes = (capacity_blocks * share * part).astype(np.int64)
        return lru_curve(stream, stack_distances(stream)).ratio_at(sizes)

    left_out = np.array([ratios(np.setdiff1d(everything, rows), 1 - 1 / GROUPS) for rows in groups])
    halves = [np.sort(np.concatenate(groups[start::2])) for start in (0, 1)]
    change = np.mean([ratios(rows, 0.5) for rows in halves], axis=0) - ratios(everything, 1.0)
    return SamplingError(
        standard_error=np.sqrt((GROUPS - 1) * np.var(left_out, axis=0)), scaling_bias=change * (1 - share)
    )


def session_groups(trace: Trace, groups: int) -> list[np.ndarray]:
    """Rows of each of `groups` disjoint parts of the trace, every session in one of them.

    A session is named by the trace or else by its first blocks, as in sampling; the spread of a result
    over the parts gives the standard error of the result on the whole sample.
    """
    key = np.where(trace.session >= 0, trace.session, _branch(trace))
    part = (key.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)) % np.uint64(groups)
    return [np.flatnonzero(part == number) for number in range(groups)]


def _branch(trace: Trace) -> np.ndarray:
    """The block after the most common first one, for requests that start with it; else the first block."""
    has = np.diff(trace.range_offset) > 0
    branch = np.arange(trace.requests)
    at = trace.range_offset[:-1][has]
    first = trace.range_start[at]
    values, count = np.unique(first, return_counts=True)
    common = values[count > COMMON_HEAD_SHARE * max(trace.requests, 1)]
    second = np.where(
        trace.range_count[at] > 1,
        first + 1,
        trace.range_start[np.minimum(at + 1, len(trace.range_start) - 1)],
    )
    branch[has] = np.where(np.isin(first, common), second, first)
    return branch
