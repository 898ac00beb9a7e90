"""Laws of the sessions of a trace, by kind of session: one for each number a workload record asks for.

Sessions are sorted into kinds by how many turns they have and how long their first prompt is, because both go together
with everything else (who asks about a long document asks again); within a kind, laws are independent and read off the
data as quantiles. Contexts grow so that the tokens found again in an infinite cache are the trace's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvmodel.formulas import laws
from kvmodel.traces.columns import MICROSECONDS, PAUSE_KINDS, Trace
from kvmodel.traces.session_records import SessionRecords

TURNS = (1, 3, 8, 20)
"""Last number of turns of each kind but the longest."""
TURN_NAMES = ("once", "few", "several", "many", "long")
FIRST_SHARES = (0.5, 0.8, 0.95)
"""Shares of the sessions whose first prompt is shorter than that of the next kind."""
SIZE_NAMES = ("short", "middle", "large", "huge")
FEWEST_SESSIONS = 3
PIECES = 20
PERIODS = 4
STEADY = 0.1
"""Demand that stays this close to its mean in every period is taken as steady."""
_SHORTEST_PAUSE_S = 1e-3


@dataclass(frozen=True)
class FittedKind:
    """One kind of session, in seconds and tokens; `arrivals` [1/s] is None without a common clock."""

    name: str
    sessions: int
    arrivals: float | None
    first_tokens: laws.Law
    """Prompt of the first turn, without the shared head."""
    growth_tokens: laws.Law
    """What each later turn adds to the context: prompt and the answer before it."""
    output_tokens: laws.Law
    turns: tuple[int, ...]
    """Equally likely numbers of turns."""
    pauses: dict[str, tuple[float, laws.Law]]

    @property
    def turns_law(self) -> laws.TabulatedTurns:
        return laws.TabulatedTurns(np.bincount(self.turns)[1:].astype(float))

    @property
    def pause_law(self) -> laws.Law:
        shares, pauses = zip(*self.pauses.values(), strict=True)
        return pauses[0] if len(pauses) == 1 else laws.Mixture(shares, pauses)


@dataclass(frozen=True)
class FittedWorkload:
    """All kinds of session, the head they share (0: none), and how demand changed over the trace."""

    kinds: tuple[FittedKind, ...]
    head_tokens: float
    levels: tuple[float, ...]
    """Demand in equal parts of the trace over its mean; one level where it is steady."""


def fitted_workload(trace: Trace, records: SessionRecords) -> FittedWorkload:
    """Laws of every kind of session."""
    head = float(np.mean(records.head_tokens))
    head = head if head >= 1 else 0.0
    kind = _kinds(trace, records)
    seen = float(records.seen_tokens.sum()) - head * int(records.starts.sum())
    # what first turns find of older contexts counts with the returns
    share = seen / max(float(records.kept_tokens.sum()), 1.0)
    found = tuple(_fitted_kind(trace, records, kind == k, head, share, _name(k)) for k in np.unique(kind).tolist())
    return FittedWorkload(found, head, _levels(trace))


def _kinds(trace: Trace, records: SessionRecords) -> np.ndarray:
    """Kind of each session; kinds with next to no sessions join the one before."""
    first = trace.input_tokens[records.starts]
    size = np.searchsorted(np.quantile(first, FIRST_SHARES), first)
    kind = np.searchsorted(TURNS, records.turns) * (len(FIRST_SHARES) + 1) + size
    for k in np.unique(kind)[::-1]:
        present = np.unique(kind[kind < k])
        if (kind == k).sum() < FEWEST_SESSIONS and len(present):
            kind[kind == k] = present[-1]
    return kind


def _name(kind: int) -> str:
    turns, size = divmod(kind, len(FIRST_SHARES) + 1)
    return f"{TURN_NAMES[turns]}_{SIZE_NAMES[size]}"


def _fitted_kind(
    trace: Trace, records: SessionRecords, sessions: np.ndarray, head: float, share: float, name: str
) -> FittedKind:
    mine = sessions[records.session]
    starts, later = mine & records.starts, mine & ~records.starts
    turns = _equally_likely(records.turns[sessions])
    first = np.maximum(trace.input_tokens[starts] - head, 0.0)
    growth = np.maximum(trace.input_tokens[later] - trace.input_tokens[records.parent[later]], 0.0)
    wanted = (float(records.kept_tokens[later].sum()) * share - head * int(later.sum())) / len(first)
    first, growth = _with_contexts(first, growth, turns, wanted)
    seconds = trace.duration_us / MICROSECONDS if trace.common_clock and trace.duration_us else None
    return FittedKind(
        name=name,
        sessions=len(first),
        arrivals=len(first) / seconds if seconds else None,
        first_tokens=_law(first),
        growth_tokens=_law(growth),
        output_tokens=_law(np.maximum(trace.output_tokens[mine], 0)),
        turns=turns,
        pauses=_pauses(records, later),
    )


def _with_contexts(
    first: np.ndarray, growth: np.ndarray, turns: tuple[int, ...], wanted: float
) -> tuple[np.ndarray, np.ndarray]:
    """First contexts and growth, scaled so that a session finds `wanted` tokens again in all: E J first + E J(J-1)/2
    growth. Growth is scaled where that can do it, since contexts are cut and rewritten as they grow."""
    j1, j2 = (float(m) for m in laws.TabulatedTurns(np.bincount(turns)[1:].astype(float)).factorial_moments[:2])
    grown = 2.0 * (wanted - first.mean() * j1) / j2 if j2 > 0 else 0.0
    if j1 > 0 and grown <= 0.0:
        first = first * min(max(wanted, 0.0) / max(first.mean() * j1, 1e-9), 1.0)
    return first, growth * (max(grown, 0.0) / max(growth.mean(), 1e-9) if len(growth) and j2 > 0 else 1.0)


def _equally_likely(turns: np.ndarray) -> tuple[int, ...]:
    """Numbers of turns that stand for equal shares of the sessions."""
    parts = np.array_split(np.sort(turns), min(PIECES, len(turns)))
    values = tuple(max(1, round(float(part.mean()))) for part in parts)
    return values if len(set(values)) > 1 else values[:1]


def _pauses(records: SessionRecords, later: np.ndarray) -> dict[str, tuple[float, laws.Law]]:
    """Share and law of every recorded kind of pause; sessions of one turn have none."""
    known = later & np.isfinite(records.pause_s)
    kinds = np.unique(records.pause_kind[known])
    if len(kinds) > 1:  # pauses after a stop nobody recorded follow no kind of their own
        kinds = kinds[kinds != PAUSE_KINDS.index("unknown")]
    counted = {kind: known & (records.pause_kind == kind) for kind in kinds.tolist()}
    total = sum(int(rows.sum()) for rows in counted.values())
    if not total:
        return {"none": (1.0, laws.Constant(1.0))}
    return {
        PAUSE_KINDS[kind].replace("unknown", "all"): (
            float(rows.sum() / total),
            _law(np.maximum(records.pause_s[rows], _SHORTEST_PAUSE_S)),
        )
        for kind, rows in counted.items()
    }


def _law(value: np.ndarray) -> laws.Law:
    """The values as a law: their quantiles, or their mean where they hardly differ."""
    if len(value) == 0:
        return laws.Constant(0.0)
    if np.ptp(value) < 1e-6 * max(float(np.max(value)), 1e-9):
        return laws.Constant(float(value.mean()))
    return laws.Empirical.of(value, PIECES)


def _levels(trace: Trace) -> tuple[float, ...]:
    """Input tokens per second in equal parts of the trace, over their mean."""
    if trace.time_us is None or not trace.common_clock or not trace.duration_us:
        return (1.0,)
    part = (trace.time_us - trace.time_us.min()) * PERIODS // (trace.duration_us + 1)
    demand = np.bincount(part, weights=trace.input_tokens, minlength=PERIODS)
    level = demand / max(demand.mean(), 1e-300)
    return tuple(level.tolist()) if np.abs(level - 1.0).max() > STEADY else (1.0,)
