"""The comparison of arms in one sentence each: who wins, by how much, what binds, how sure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kvmodel import units
from kvmodel.formulas.reuse import STATED_ERROR
from kvmodel.results.table import Table, central

GOODPUT = "goodput.qualified_sessions_per_second"
COST = "cost.per_qualified_session"


def verdicts(table: Table) -> Iterator[str]:
    """One sentence per case and comparison of the last arm with each other one."""
    arms = list(table.about.get("arms", []))
    for case in dict.fromkeys(row.case for row in table):
        rows = table.select(case=case)
        prefix = "" if case == "base" else f"[{case}] "
        infeasible = [flag for row in rows.select(quantity="capacity.hbm_pool") for flag in row.flags]
        if infeasible:
            yield prefix + infeasible[0] + "."
        for other in arms[:-1]:
            if rows.select(quantity=GOODPUT).rows:
                yield prefix + _sentence(rows, arms[-1], other)
            elif rows.select(quantity="latency.ttft_mean").rows:
                yield prefix + _without_limits(rows, arms[-1], other)
        if fetches := list(_fetches(rows)):
            yield (
                prefix
                + f"The typical prefix of {_shown(rows, 'time.typical_prefix')} takes "
                + "; ".join(fetches)
                + "."
            )


def _sentence(rows: Table, arm: str, other: str) -> str:
    rate, rate_other = rows.value(GOODPUT, arm=arm), rows.value(GOODPUT, arm=other)
    cost, cost_other = rows.value(COST, arm=arm), rows.value(COST, arm=other)
    a, b, c, d = (central(v) for v in (rate, rate_other, cost, cost_other))
    if np.isnan([a, b]).any():
        return f"{arm} against {other}: no point of the study tells both."
    if a == 0 and b == 0:
        return (
            f"Neither {arm} nor {other} keeps the limits at any rate of sessions ({_bound(rows, arm)}): no cost per "
            "qualified session can be given."
        )
    if a == 0 or b == 0:
        winner, loser = (other, arm) if a == 0 else (arm, other)
        return (
            f"{winner} wins against {loser}: {_rate(max(a, b))} qualified sessions at "
            f"{_money(min(c, d))} each, while {loser} keeps the limits at no rate ({_bound(rows, loser)})."
        )
    wins = c < d
    word = "wins against" if wins else "is level with" if c == d else "loses against"
    return (
        f"{arm} {word} {other}: {a / b:.2f}x the qualified sessions "
        f"({_rate(a)} against {_rate(b)}) at {c / d:.2f}x the cost of one ({_money(c)} against {_money(d)}); "
        f"{arm} is bound by the {_bound(rows, arm)}, {other} by the {_bound(rows, other)}. "
        f"{_sure(cost, cost_other, wins)}"
    )


def _without_limits(rows: Table, arm: str, other: str) -> str:
    """Without limits and prices no arm can win; what a turn waits can still be compared."""
    reuse, wait, wait_other = (
        central(rows.value(q, arm=a, tier="", population=""))
        for q, a in (("reuse.timely", arm), ("latency.ttft_mean", arm), ("latency.ttft_mean", other))
    )
    return (
        f"{arm} against {other}: effective reuse {reuse:.1%} of prompt tokens, mean TTFT "
        f"{units.text(wait, 's')} against {units.text(wait_other, 's')}; no limits (slo) are given, so no session "
        "can qualify."
    )


def _fetches(rows: Table) -> Iterator[str]:
    """Per storage tier: fetch against recompute of the typical prefix, idle path."""
    for row in rows.select(quantity="time.fetch"):
        fetch, recompute = central(row.value), central(rows.value("time.recompute"))
        verdict = (
            "a win" if fetch < recompute else f"a loss below {_shown(rows, 'breakeven.tokens_idle', tier=row.tier)}"
        )
        yield (
            f"{units.text(fetch, 's')} to fetch from {row.tier} against {units.text(recompute, 's')} to recompute, "
            f"{verdict}"
        )


def _shown(rows: Table, quantity: str, **where: str) -> str:
    (row,) = rows.select(quantity=quantity, **where).rows
    return units.text(central(row.value), row.unit)


def _bound(rows: Table, arm: str) -> str:
    (row,) = rows.select(quantity="goodput.largest_session_rate", arm=arm).rows
    return row.flags[0].removeprefix("bound by: ") if row.flags else "nothing"


def _sure(cost: np.ndarray, cost_other: np.ndarray, wins: bool) -> str:
    better = np.less(cost, cost_other) if wins else np.greater_equal(cost, cost_other)
    if np.size(better) > 1:
        return f"That holds at {np.mean(better):.0%} of {np.size(better):,} points."
    return f"One point, nothing drawn; the closed form of reuse errs by up to {STATED_ERROR}."


def _rate(value: float) -> str:
    return f"{value:.3g} /s"


def _money(value: float) -> str:
    return units.text(value, "USD")
