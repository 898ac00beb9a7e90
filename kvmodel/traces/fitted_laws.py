"""Laws of the sessions of a trace: one for each number a workload record asks for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvmodel.formulas import laws
from kvmodel.traces.columns import MICROSECONDS, PAUSE_KINDS, Trace
from kvmodel.traces.session_records import SessionRecords

Z90 = 1.2815515655446004  # standard normal quantile of 0.9
_SHORTEST_PAUSE_S = 1e-3


@dataclass(frozen=True)
class FittedLaws:
    """The laws of the workload section, in seconds and tokens; `arrivals` [1/s] is None without a common
    clock.
    """

    arrivals: float | None
    first_tokens: laws.Law
    new_tokens: laws.Law
    output_tokens: laws.Law
    mean_turns: float
    pauses: dict[str, tuple[float, laws.Law]]
    head_tokens: float


def fitted_laws(trace: Trace, records: SessionRecords) -> FittedLaws:
    """One law for each number of the sessions."""
    later = ~records.starts
    head = float(np.mean(records.head_tokens))
    seconds = trace.duration_us / MICROSECONDS if trace.common_clock and trace.duration_us else None
    return FittedLaws(
        arrivals=float(records.starts.sum() / seconds) if seconds else None,
        first_tokens=_lognormal(trace.input_tokens[records.starts]),
        new_tokens=_lognormal(records.new_tokens[later]),
        output_tokens=_lognormal(np.maximum(trace.output_tokens, 0)),
        mean_turns=float(records.turns.mean()),
        pauses=_pauses(records),
        head_tokens=head if head >= 1 else 0.0,
    )


def _pauses(records: SessionRecords) -> dict[str, tuple[float, laws.Law]]:
    """Share and law of every recorded kind of pause."""
    known = ~records.starts & np.isfinite(records.pause_s)
    kinds = np.unique(records.pause_kind[known])
    if len(kinds) > 1:  # pauses after a stop nobody recorded follow no kind of their own
        kinds = kinds[kinds != PAUSE_KINDS.index("unknown")]
    counted = {kind: known & (records.pause_kind == kind) for kind in kinds.tolist()}
    total = sum(int(rows.sum()) for rows in counted.values())
    return {
        PAUSE_KINDS[kind].replace("unknown", "all"): (
            float(rows.sum() / total),
            _lognormal(np.maximum(records.pause_s[rows], _SHORTEST_PAUSE_S)),
        )
        for kind, rows in counted.items()
    }


def _lognormal(value: np.ndarray) -> laws.Law:
    """Law with the mean of the values and the spread between their median and p90.

    The mean sets how many bytes and seconds there are in all; the spread near the middle is what a cache
    of useful size sees. Spread from the standard deviation would follow a few giants.
    """
    positive = value[value > 0]
    if len(positive) == 0:
        return laws.Constant(0.0)
    median, p90 = np.percentile(positive, [50, 90])
    if p90 <= median:
        return laws.Constant(float(value.mean()))
    return laws.Lognormal.from_mean_sigma(float(value.mean()), float(np.log(p90 / median) / Z90))
