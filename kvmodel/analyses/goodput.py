"""The most sessions an arm can serve within its limits, and how many of them qualify.

Question answered: on the same GPUs and under the same limits, which arm serves more qualified sessions?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.analyses.serving import Load, least_utilisation, load_of
from kvmodel.analyses.timing import prefill_terms
from kvmodel.analyses.traffic import traffic_of
from kvmodel.system.case import Case
from kvmodel.workloads.sessions import Sessions

# Shares of the rate at which prefill alone would saturate with every opportunity found.
LOADS = np.concatenate([np.geomspace(0.01, 0.2, 6)[:-1], np.linspace(0.2, 0.98, 14)])
LIMITS = ("TTFT limit", "TPOT limit", "end-to-end limit", "KV room for active sessions")


@dataclass(frozen=True)
class Goodput:
    """The best an arm can do within its limits; arrays over the study's axes."""

    largest_rate: Any
    """Largest rate of sessions at which the stated shares of turns keep their limits [1/s]; 0 when none does."""
    qualified_rate: Any
    """Most qualified sessions per second at any rate up to that [1/s]."""
    operating_rate: Any
    """Rate of sessions at which that is reached [1/s]."""
    binding: Any
    """Index into LIMITS of the limit that ends the largest rate; -1 when none does before saturation."""


def scaled(case: Case, factor: Any) -> Case:
    """The case with every session rate times `factor`, whose own axes lead."""
    workload = {name: p.scaled(factor) if isinstance(p, Sessions) else p for name, p in case.workload.items()}
    return case.changed(workload=workload)


def goodput_of(case: Case, tiers: Sequence[str], granularity: Any) -> Goodput:
    """Walk the rate of sessions up to saturation and note where the limits end."""
    traffic = traffic_of(case, granularity)
    least = least_utilisation(case, traffic, prefill_terms(case), bool(tiers))
    loads = LOADS.reshape((-1,) + (1,) * case.axes)
    factor = loads / np.maximum(least, 1e-300)
    faster = scaled(case, factor)
    load = load_of(faster, tiers, traffic_of(faster, granularity))
    return _best(case, load, factor * case.arrivals)


def _best(case: Case, load: Load, rate: Any) -> Goodput:
    excess = _excess(case, load)
    rate = np.broadcast_to(rate, excess.shape[1:])
    within = np.cumprod(np.all(excess <= 0, axis=0), axis=0).astype(bool)
    largest, binding = _crossing(excess, rate, within)
    share = np.broadcast_to(load.qualified, rate.shape)
    # the rates within the limits, and the largest itself with the share of sessions between its neighbours'
    rates = np.concatenate([rate, largest[None]])
    shares = np.concatenate([np.where(within, share, 0.0), _between(rate, share, within, largest)[None]])
    best = np.argmax(rates * shares, axis=0)[None]
    most = np.take_along_axis(rates * shares, best, 0)[0]
    return Goodput(largest, most, np.where(most > 0, np.take_along_axis(rates, best, 0)[0], 0.0), binding)


def _between(rate: Any, share: Any, within: np.ndarray, largest: Any) -> Any:
    """Share at the largest rate, on the straight line between the rates on either side of it; 0 where there is none."""
    after = np.minimum(within.sum(axis=0), within.shape[0] - 1)[None]
    before = np.maximum(after - 1, 0)
    (low, high), (left, right) = ([np.take_along_axis(v, i, 0)[0] for i in (before, after)] for v in (rate, share))
    part = np.clip((largest - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    return np.where(largest > 0, left + part * (right - left), 0.0)


def _excess(case: Case, load: Load) -> np.ndarray:
    """How far each limit is overstepped, (limits, rates) + A; at most 0 where it is kept."""
    slo = case.slo
    parts = [
        np.asarray(-1.0) if limit is None else exceedance - (1 - limit.share)
        for limit, exceedance in (
            (slo.ttft, load.ttft_exceedance),
            (slo.tpot, load.tpot_exceedance),
            (slo.end_to_end, load.end_to_end_exceedance),
        )
    ]
    return np.stack(np.broadcast_arrays(*parts, np.where(load.room, -1.0, 1.0)))


def _crossing(excess: np.ndarray, rate: Any, within: np.ndarray) -> tuple[Any, Any]:
    """First rate at which a limit breaks, interpolated in the logarithm of the rate, and the limit's index."""
    steps = within.shape[0]
    first = within.sum(axis=0)  # index of the first rate that breaks a limit
    after = np.minimum(first, steps - 1)[None]
    before = np.maximum(after - 1, 0)
    high = np.take_along_axis(excess, after[None], axis=1)[:, 0]
    low = np.take_along_axis(excess, before[None], axis=1)[:, 0]
    rate_low, rate_high = (np.take_along_axis(rate, index, 0)[0] for index in (before, after))
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(high > 0, -low / (high - low), np.inf)
    binding = np.argmin(part, axis=0)
    share = np.clip(np.min(part, axis=0), 0.0, 1.0)
    crossed = rate_low * (rate_high / rate_low) ** share
    largest = np.where(first == 0, 0.0, np.where(first >= steps, rate[-1], crossed))
    at_once = np.argmax(excess[:, 0], axis=0)
    return largest, np.where(first == 0, at_once, np.where(first >= steps, -1, binding))
