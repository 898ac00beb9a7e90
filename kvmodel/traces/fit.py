"""From a trace to the workload section of a study, so that real traffic can be scaled and changed.

Sizes and pauses become lognormal laws, turns a geometric law, a head that many requests share a shared
prefix. How far the laws, and how far the recorded contexts and pauses themselves, are from the trace's
exact curve stands beside them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvmodel.formulas import laws
from kvmodel.traces.columns import Trace
from kvmodel.traces.distribution import distribution
from kvmodel.traces.errors import TraceError
from kvmodel.traces.fit_comparison import compared_with_exact
from kvmodel.traces.fitted_laws import FittedLaws, fitted_laws
from kvmodel.traces.prefix_tree import run_stream
from kvmodel.traces.session_records import SessionRecords, session_records


def fit_workload(trace: Trace) -> dict[str, Any]:
    """{"workload": section of a study, "evidence": what it rests on, "comparison": closed form against
    exact curve, "notes": what the section leaves out}. Raises TraceError for a trace without block ids.
    """
    if not trace.has_blocks:
        raise TraceError(f"{trace.name}: without block ids sessions cannot be recovered; arrivals and lengths only")
    stream = run_stream(trace)
    records = session_records(trace, stream)
    if not np.any(~records.starts):
        raise TraceError(f"{trace.name}: no request continues another, so there are no sessions to fit")
    fitted = fitted_laws(trace, records)
    notes = []
    if not trace.common_clock or trace.duration_us is None:
        notes.append("when sessions start is not recorded: arrivals is missing and must be given")
    else:
        notes.append("sessions cut off by the start or end of the trace count as whole: turns are a lower estimate")
    return {
        "workload": _workload(fitted),
        "evidence": _evidence(trace, records),
        "comparison": compared_with_exact(trace, stream, fitted),
        "notes": notes,
    }


def _workload(fitted: FittedLaws) -> dict[str, Any]:
    agents: dict[str, Any] = {"kind": "sessions"}
    if fitted.arrivals is not None:
        agents["arrivals"] = f"{_figure(fitted.arrivals)} /s"
    agents["first_tokens"] = _written(fitted.first_tokens, "tokens")
    agents["new_tokens"] = _written(fitted.new_tokens, "tokens")
    agents["output_tokens"] = _written(fitted.output_tokens, "tokens")
    agents["turns"] = {"geometric": {"mean": float(_figure(fitted.mean_turns))}}
    agents["pauses"] = {
        kind: {"share": float(_figure(share))} | _pause_written(law) for kind, (share, law) in fitted.pauses.items()
    }
    workload = {"agents": agents}
    if fitted.head_tokens:
        tokens = f"{_figure(fitted.head_tokens)} tokens"
        workload["head"] = {"kind": "shared_prefix", "tokens": tokens, "variants": 1}
    return workload


def _written(law: laws.Law, unit: str) -> Any:
    """The law as a study states it: a plain value, or lognormal by mean and sigma."""
    mean = f"{_figure(float(law.mean))} {unit}"
    if isinstance(law, laws.Constant):
        return mean
    sigma = float(np.sqrt(np.log1p(law.variance / law.mean**2)))
    return {"lognormal": {"mean": mean, "sigma": float(_figure(sigma))}}


def _pause_written(law: laws.Law) -> dict[str, Any]:
    written = _written(law, "s")
    return written if isinstance(written, dict) else {"constant": written}


def _figure(value: float) -> str:
    """Four significant digits, never in powers of ten."""
    return f"{float(f'{value:.4g}'):.10f}".rstrip("0").rstrip(".")


def _evidence(trace: Trace, records: SessionRecords) -> dict[str, Any]:
    later = ~records.starts
    paused = records.pause_s[later & np.isfinite(records.pause_s)]
    return {
        "requests": trace.requests,
        "sessions": int(records.starts.sum()),
        "turns": distribution(records.turns),
        "first_tokens": distribution(trace.input_tokens[records.starts]),
        "new_tokens": distribution(records.new_tokens[later]),
        "turns_without_new_tokens": round(float(np.mean(records.new_tokens[later] == 0)), 6),
        "head_tokens_mean": round(float(np.mean(records.head_tokens)), 3),
        "pause_s": distribution(paused),
    }
