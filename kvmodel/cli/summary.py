"""The result table as text for a terminal: verdict first, then what it rests on. Nothing is worked out here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kvmodel import units
from kvmodel.results.table import Row, Table
from kvmodel.results.verdict import verdicts


def summary_text(table: Table) -> str:
    """Verdict, tables and notes of a plan."""
    lines = [str(table.about.get("name", "")), ""]
    lines += [f"* {sentence}" for sentence in verdicts(table)]
    for case in dict.fromkeys(row.case for row in table):
        rows = table.select(case=case)
        if len(dict.fromkeys(row.case for row in table)) > 1:
            lines += ["", f"=== {case} ==="]
        for block in (_arms(rows), _tiers(rows), _chain(rows), _knees(table, rows), _targets(rows), _notes(rows)):
            if block:
                lines += ["", *block]
    return "\n".join(lines) + "\n"


def shown(rows: Table, quantity: str, **where: str) -> str:
    """Text of one quantity, with its 5 to 95 % range where it varies; '-' where the table does not have it."""
    found = rows.select(quantity=quantity, **where).rows
    return _text(found[0]) if len(found) == 1 else "-"


def _text(row: Row) -> str:
    value = np.asarray(row.value, float)
    value = value[~np.isnan(value)]
    if not value.size:
        return "infeasible"
    middle, low, high = np.quantile(value, (0.5, 0.05, 0.95), method="inverted_cdf")
    text = _percent(middle) if _is_share(row) else units.text(float(middle), row.unit)
    if low == high:
        return text
    if _is_share(row):
        return f"{text} ({100 * low:.1f} to {_percent(high)})"
    factor, unit = units.scale(float(middle), row.unit)
    ends = " to ".join(units.number(float(end) / factor) for end in (low, high))
    return f"{units.number(float(middle) / factor)} ({ends}) {unit}".strip()


SHARES = ("reuse.ceiling", "reuse.resident", "reuse.timely", "reuse.kept", "latency.prefill_utilisation",
          "latency.ttft_in_time", "latency.tpot_in_time", "latency.qualified", "load.tier_utilisation")


def _is_share(row: Row) -> bool:
    return row.quantity in SHARES


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _grid(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """Columns aligned, the first to the left."""
    widths = [max(len(row[i]) for row in (head, *body)) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return [line(head), "  ".join("-" * w for w in widths), *(line(row) for row in body)]


def _names(rows: Table, column: str, quantity: str) -> list[str]:
    return [name for name in dict.fromkeys(getattr(r, column) for r in rows.select(quantity=quantity)) if name]


def _arms(rows: Table) -> list[str]:
    arms = _names(rows, "arm", "reuse.timely")
    if not arms:
        return []
    columns = [("effective reuse", "reuse.timely"), ("prefill use", "latency.prefill_utilisation"),
               ("TTFT mean", "latency.ttft_mean"), ("turns in TTFT", "latency.ttft_in_time"),
               ("largest rate", "goodput.largest_session_rate"),
               ("qualified", "goodput.qualified_sessions_per_second"),
               ("cost", "cost.rate"), ("per qualified session", "cost.per_qualified_session")]
    body = [[arm, *(shown(rows, quantity, arm=arm, tier="", population="") for _, quantity in columns)] for arm in arms]
    return ["Arms, on the same GPUs and limits (reuse as share of prompt tokens; rates in sessions)",
            *_grid(["arm", *(title for title, _ in columns)], body)]


def _tiers(rows: Table) -> list[str]:
    tiers = _names(rows, "tier", "capacity.bytes")
    arms = _names(rows, "arm", "reuse.timely")
    arm = arms[-1] if arms else ""
    head = ["tier", "capacity", "holds", "found here", "served in time", "fetch", "recompute", "worth from", "use",
            "writes/day", "lifetime"]
    body = []
    for tier in tiers:
        slow = bool(rows.select(quantity="time.fetch", tier=tier).rows)
        body.append([
            tier, shown(rows, "capacity.bytes", tier=tier), shown(rows, "capacity.tokens", tier=tier),
            shown(rows, "reuse.resident", arm=arm, tier=tier), shown(rows, "reuse.timely", arm=arm, tier=tier),
            shown(rows, "time.fetch", tier=tier), shown(rows, "time.recompute") if slow else "-",
            shown(rows, "breakeven.tokens", tier=tier), shown(rows, "load.tier_utilisation", tier=tier),
            shown(rows, "endurance.daily_writes", tier=tier), shown(rows, "endurance.lifetime", tier=tier)])
    prefix = shown(rows, "time.typical_prefix")
    return [f"Tiers (fetch and recompute of the typical prefix, {prefix})", *_grid(head, body)]


def _chain(rows: Table) -> list[str]:
    arms = _names(rows, "arm", "reuse.timely")
    if not arms:
        return []
    arm = arms[-1]
    body = [["all", *(shown(rows, q, arm=arm, population="", tier="")
                      for q in ("reuse.ceiling", "reuse.resident", "reuse.timely")), "-"]]
    for name in _names(rows, "population", "reuse.ceiling"):
        body.append([name, *(shown(rows, q, arm=arm, population=name)
                             for q in ("reuse.ceiling", "reuse.resident", "reuse.timely", "reuse.kept"))])
    return [f"Reuse of {arm}, share of all prompt tokens: computed before > found in some tier > consumable in time",
            *_grid(["population", "ceiling", "resident", "timely", "kept of its own"], body)]


def _knees(table: Table, rows: Table) -> list[str]:
    lines = []
    if not table.curves or not rows.rows or rows.rows[0].case != table.rows[0].case:
        return []
    for name, curve in table.curves.items():
        if not name.startswith("capacity:"):
            continue
        knee, = curve.select(quantity="knee.capacity").rows
        here = shown(curve, "capacity.here")
        text = "; ".join(knee.flags) if knee.flags else (
            f"{_text(knee)} (between {shown(curve, 'knee.low')} and {shown(curve, 'knee.high')} with the rent 20 % off)")
        lines.append(f"  {name.removeprefix('capacity:')}: {text}; the study has {here}")
    return ["Knee: capacity beyond which another byte does not earn its rent", *lines] if lines else []


def _targets(rows: Table) -> list[str]:
    body = [f"  {row.definition}{' (' + (row.tier or row.arm) + ')' if row.tier or row.arm else ''}: {row.flags[0]}"
            for row in rows.select(quantity="target.met")]
    return ["Targets", *body] if body else []


def _notes(rows: Table) -> list[str]:
    return ["Notes", *(f"  {line}" for line in notes(rows))] if list(notes(rows)) else []


def notes(rows: Table) -> Iterator[str]:
    """Every flag of the table once, with what it is about."""
    seen: set[str] = set()
    for row in rows:
        for flag in row.flags:
            if flag in seen or row.quantity == "target.met" or flag.startswith("bound by"):
                continue
            seen.add(flag)
            where = " ".join(part for part in (row.arm, row.population, row.tier) if part)
            yield f"{row.quantity}{' [' + where + ']' if where else ''}: {flag}"
