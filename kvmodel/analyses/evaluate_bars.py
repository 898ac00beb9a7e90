"""Which of the project's own bars the predictions keep, on the cases at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.analyses.evaluate import Outcome


def _p90(errors: np.ndarray) -> float:
    return float(np.quantile(errors, 0.9))


# what, kind, family ("" for all), basis, statistic, bar
BARS: tuple[tuple[str, str, str, str, Callable[[np.ndarray], Any], float], ...] = (
    ("dense prefill, calibrated: median", "prefill", "dense", "calibrated", np.median, 0.02),
    ("dense prefill, calibrated: p90", "prefill", "dense", "calibrated", _p90, 0.06),
    ("dense prefill, cold: median", "prefill", "dense", "cold", np.median, 0.20),
    ("mixture of experts, calibrated: median", "prefill", "moe", "calibrated", np.median, 0.10),
    ("fetch, calibrated path: median", "fetch", "", "calibrated", np.median, 0.05),
    ("fetch, calibrated path: p90", "fetch", "", "calibrated", _p90, 0.20),
    ("small copies: mean", "bandwidth", "", "calibrated", np.mean, 0.05),
    ("hand-off: mean", "handoff", "", "calibrated", np.mean, 0.07),
    ("break-even thresholds and totals: largest", "breakeven", "", "analytic", np.max, 0.025),
)


@dataclass(frozen=True)
class Held:
    """One bar: the error allowed, the error reached and over how many cases."""

    what: str
    bar: float
    reached: float
    count: int


def bars(outcomes: Iterable[Outcome]) -> list[Held]:
    """Every bar that has cases."""
    outcomes = list(outcomes)
    held = []
    for what, kind, family, basis, statistic, bar in BARS:
        errors = np.array(
            [
                abs(o.error)
                for o in outcomes
                if o.kind == kind and o.basis == basis and family in ("", o.family) and o.error is not None
            ]
        )
        if errors.size:
            held.append(Held(what, bar, float(statistic(errors)), errors.size))
    return held
