"""The comparison of arms in one sentence each: who wins, by how much, what binds, how sure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kvmodel import units
from kvmodel.results.table import Table, central

GOODPUT = "goodput.qualified_sessions_per_second"
COST = "cost.per_qualified_session"
REUSE_ERROR = 0.015


def verdicts(table: Table) -> Iterator[str]:
    """One sentence per case and comparison of the last arm with each other one."""
    arms = list(table.about.get("arms", []))
    for case in dict.fromkeys(row.case for row in table):
        rows = table.select(case=case)
        prefix = "" if case == "base" else f"[{case}] "
        infeasible = [flag for row in rows.select(quantity="capacity.hbm_pool") for flag in row.flags]
        if infeasible:
            yield prefix + infeasible[0] + "."
        if not rows.select(quantity=GOODPUT).rows:
            continue
        for other in arms[:-1]:
            yield prefix + _sentence(rows, arms[-1], other)


def _sentence(rows: Table, arm: str, other: str) -> str:
    rate, rate_other = rows.value(GOODPUT, arm=arm), rows.value(GOODPUT, arm=other)
    cost, cost_other = rows.value(COST, arm=arm), rows.value(COST, arm=other)
    a, b, c, d = (central(v) for v in (rate, rate_other, cost, cost_other))
    if a == 0 and b == 0:
        return (f"Neither {arm} nor {other} keeps the limits at any rate of sessions ({_bound(rows, arm)}): no cost per "
                "qualified session can be given.")
    if a == 0 or b == 0:
        winner, loser = (other, arm) if a == 0 else (arm, other)
        return (f"{winner} wins against {loser}: {_rate(max(a, b))} qualified sessions at "
                f"{_money(min(c, d))} each, while {loser} keeps the limits at no rate ({_bound(rows, loser)}).")
    wins = c < d
    return (f"{arm} {'wins' if wins else 'loses'} against {other}: {a / b:.2f}x the qualified sessions "
            f"({_rate(a)} against {_rate(b)}) at {c / d:.2f}x the cost of one ({_money(c)} against {_money(d)}); "
            f"{arm} is bound by the {_bound(rows, arm)}, {other} by the {_bound(rows, other)}. {_sure(cost, cost_other, wins)}")


def _bound(rows: Table, arm: str) -> str:
    row, = rows.select(quantity="goodput.largest_session_rate", arm=arm).rows
    return row.flags[0].removeprefix("bound by: ") if row.flags else "nothing"


def _sure(cost: np.ndarray, cost_other: np.ndarray, wins: bool) -> str:
    better = np.less(cost, cost_other) if wins else np.greater_equal(cost, cost_other)
    if np.size(better) > 1:
        return f"That holds at {np.mean(better):.0%} of {np.size(better):,} points."
    return f"One point, nothing drawn; the closed form of reuse errs by up to {REUSE_ERROR}."


def _rate(value: float) -> str:
    return f"{value:.3g} /s"


def _money(value: float) -> str:
    return units.text(value, "USD")
