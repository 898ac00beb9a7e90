"""From a trace to the workload section of a study, so that real traffic can be scaled and changed.

How far the section, and how far the recorded contexts and pauses themselves, are from the trace's exact curve stands
beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvmodel.formulas import laws
from kvmodel.traces.columns import Trace
from kvmodel.traces.distribution import distribution
from kvmodel.traces.errors import TraceError
from kvmodel.traces.fit_comparison import compared_with_exact
from kvmodel.traces.fitted_laws import FittedKind, FittedWorkload, fitted_workload
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
    fitted = fitted_workload(trace, records)
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


def _workload(fitted: FittedWorkload) -> dict[str, Any]:
    workload: dict[str, Any] = {kind.name: _sessions(kind, fitted.levels) for kind in fitted.kinds}
    if fitted.head_tokens:
        workload["head"] = {"kind": "shared_prefix", "tokens": _figure(fitted.head_tokens), "variants": 1}
    return workload


def _sessions(kind: FittedKind, levels: Sequence[float]) -> dict[str, Any]:
    """A population as a study states it, sizes in tokens and times in seconds. New tokens are what growth leaves
    after the answers."""
    own = max(float(kind.growth_tokens.mean - kind.output_tokens.mean), 0.0)
    sessions: dict[str, Any] = {"kind": "sessions"}
    if kind.arrivals is not None:
        sessions["arrivals"] = _figure(kind.arrivals)
    sessions["first_tokens"] = _written(kind.first_tokens)
    sessions["new_tokens"] = _written(kind.growth_tokens, own / max(float(kind.growth_tokens.mean), 1e-9))
    sessions["output_tokens"] = _written(kind.output_tokens)
    sessions["turns"] = {"equally_likely": list(kind.turns)} if len(kind.turns) > 1 else kind.turns[0]
    sessions["pauses"] = {name: {"share": _figure(share)} | _pause(law) for name, (share, law) in kind.pauses.items()}
    if len(levels) > 1 and kind.arrivals is not None:
        sessions["day"] = [{"share": _figure(1 / len(levels)), "factor": _figure(level)} for level in levels]
    return sessions


def _written(law: laws.Law, factor: float = 1.0) -> Any:
    """The law as a study states it: a plain value, or its quantiles."""
    if isinstance(law, laws.Empirical):
        return {"empirical": {"quantiles": [_figure(factor * knot) for knot in np.asarray(law.knots)]}}
    return _figure(factor * float(law.mean))


def _pause(law: laws.Law) -> dict[str, Any]:
    written = _written(law)
    return written if isinstance(written, dict) else {"constant": written}


def _figure(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")


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
