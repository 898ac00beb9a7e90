"""The result table as text for a terminal: verdict first, then what it rests on. Nothing is worked out here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kvmodel.results.shown import cases, cell, names, one
from kvmodel.results.table import Row, Table
from kvmodel.results.verdict import verdicts


def summary_text(table: Table) -> str:
    """Verdict, tables and notes of a plan."""
    lines = [str(table.about.get("name", "")), ""]
    lines += [f"* {sentence}" for sentence in verdicts(table)]
    if table.axes:
        sizes = [(len(axis.values), "draws" if axis.is_draws else f"of {axis.name}") for axis in table.axes]
        over = " x ".join(f"{size:,} {what}" for size, what in sizes)
        many = f"All numbers are medians over {over}; in brackets the range of 5 to 95 % of the points."
        lines += ["", many if any(size > 1 for size, _ in sizes) else "All numbers are those of one draw."]
    for case in cases(table):
        rows = table.select(case=case)
        if len(cases(table)) > 1:
            lines += ["", f"=== {case} ==="]
        for block in (
            _arms(rows),
            _tiers(rows),
            _chain(rows),
            _knees(table, rows),
            _windows(rows),
            _verified(rows),
            _targets(rows),
            _notes(rows),
        ):
            if block:
                lines += ["", *block]
    return "\n".join(lines) + "\n"


def at_stated_values(table: Table) -> list[str]:
    """A line that says which swept or uncertain numbers a result holds at their stated value."""
    varied = table.about.get("varied", [])
    return ["", f"At stated values; not varied here: {', '.join(varied)}."] if varied else []


def _shown(rows: Table, quantity: str, **where: str) -> str:
    """Text of one quantity, with its 5 to 95 % range where it varies."""
    found = cell(one(rows, quantity, **where))
    return f"{found.text} ({found.small})" if found.small else found.text


def grid(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """Columns aligned, the first to the left."""
    widths = [max(len(row[i]) for row in (head, *body)) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return [line(head), "  ".join("-" * w for w in widths), *(line(row) for row in body)]


def _arms(rows: Table) -> list[str]:
    arms = names(rows, "arm", "reuse.timely")
    if not arms:
        return []
    columns = [
        ("effective reuse", "reuse.timely"),
        ("prefill use", "latency.prefill_utilisation"),
        ("TTFT mean", "latency.ttft_mean"),
        ("turns in TTFT", "latency.ttft_in_time"),
        ("largest rate", "goodput.largest_session_rate"),
        ("qualified", "goodput.qualified_sessions_per_second"),
        ("cost", "cost.rate"),
        ("per qualified session", "cost.per_qualified_session"),
    ]
    body = [[arm, *(_shown(rows, quantity, arm=arm) for _, quantity in columns)] for arm in arms]
    return [
        "Arms, on the same GPUs and limits (reuse as share of prompt tokens; rates in sessions)",
        *grid(["arm", *(title for title, _ in columns)], body),
    ]


def _tiers(rows: Table) -> list[str]:
    tiers = names(rows, "tier", "capacity.bytes")
    arms = names(rows, "arm", "reuse.timely")
    arm = arms[-1] if arms else ""
    head = [
        "tier",
        "capacity",
        "holds",
        "found here",
        "served in time",
        "fetch",
        "recompute",
        "worth from",
        "use",
        "writes/day",
        "lifetime",
    ]
    body = []
    for tier in tiers:
        slow = bool(rows.select(quantity="time.fetch", tier=tier).rows)
        body.append(
            [
                tier,
                _shown(rows, "capacity.bytes", tier=tier),
                _shown(rows, "capacity.tokens", tier=tier),
                _shown(rows, "reuse.resident", arm=arm, tier=tier),
                _shown(rows, "reuse.timely", arm=arm, tier=tier),
                _shown(rows, "time.fetch", tier=tier),
                _shown(rows, "time.recompute") if slow else "-",
                _shown(rows, "breakeven.tokens", tier=tier),
                _shown(rows, "load.tier_utilisation", tier=tier),
                _shown(rows, "endurance.daily_writes", tier=tier),
                _shown(rows, "endurance.lifetime", tier=tier),
            ]
        )
    prefix = _shown(rows, "time.typical_prefix")
    return [f"Tiers (fetch and recompute of the typical prefix, {prefix})", *grid(head, body)]


def _chain(rows: Table) -> list[str]:
    arms = names(rows, "arm", "reuse.timely")
    if not arms:
        return []
    arm = arms[-1]
    body = [["all", *(_shown(rows, q, arm=arm) for q in ("reuse.ceiling", "reuse.resident", "reuse.timely")), "-"]]
    for name in names(rows, "population", "reuse.ceiling"):
        body.append(
            [
                name,
                *(
                    _shown(rows, q, arm=arm, population=name)
                    for q in ("reuse.ceiling", "reuse.resident", "reuse.timely", "reuse.kept")
                ),
            ]
        )
    return [
        f"Reuse of {arm}, share of all prompt tokens: computed before > found in some tier > consumable in time",
        *grid(["population", "ceiling", "resident", "timely", "kept of its own"], body),
    ]


def _knees(table: Table, rows: Table) -> list[str]:
    lines = []
    if not table.curves or not rows.rows or rows.rows[0].case != table.rows[0].case:
        return []
    for name, curve in table.curves.items():
        kind, _, tier = name.partition(":")
        if kind != "capacity":
            continue
        knee = one(curve, "knee.capacity", tier=tier)
        found, low, high, here = (
            _shown(curve, quantity, tier=tier)
            for quantity in ("knee.capacity", "knee.low", "knee.high", "capacity.here")
        )
        text = "; ".join(knee.flags) or f"{found} (between {low} and {high} with the rent 20 % off)"
        cliff = (
            f"; the working set starts to fit at {_shown(curve, 'knee.cliff', tier=tier)}"
            if one(curve, "knee.cliff", tier=tier)
            else ""
        )
        lines.append(f"  {tier}: {text}{cliff}; the study has {here}")
    title = "Knee: capacity beyond which another byte does not earn its rent, at the study's rate and stated values"
    return [title, *lines] if lines else []


def _windows(rows: Table) -> list[str]:
    tiers = names(rows, "tier", "retention.window")
    body = [
        [name, *(_shown(rows, "retention.window", population=name, tier=tier) for tier in tiers)]
        for name in names(rows, "population", "retention.window")
    ]
    title = "Retention: how long a paused context is worth its rent in each tier (0: drop it; ∞: never drop it)"
    return [title, *grid(["population", *tiers], body)] if body else []


def _verified(rows: Table) -> list[str]:
    lines = []
    for arm in names(rows, "arm", "verify.closed_form"):
        told = [rows.select(quantity=f"verify.{name}", arm=arm).rows for name in _VERIFIED]
        body = [
            [_verified_name(parts[0]), *(_verified_value(part) for part in parts)] for parts in zip(*told, strict=True)
        ]
        lines += ["", *grid([arm, *(name.replace("_", " ") for name in _VERIFIED)], body)]
    title = "Closed forms against an event simulation of the same sessions, tiers and GPUs, at stated values"
    return [title, *lines] if lines else []


_VERIFIED = ("closed_form", "simulated", "standard_error")


def _verified_name(row: Row) -> str:
    what = row.definition.split(",")[0].removeprefix("share of the ")
    return f"{row.population}: {what.replace('this tier', row.tier)}" if row.tier else what


def _verified_value(row: Row) -> str:
    if np.isnan(row.value):
        return "–"
    return f"{float(row.value):.4f}{' ' + row.unit if row.unit else ''}" if np.isfinite(row.value) else "∞"


def _targets(rows: Table) -> list[str]:
    body = [
        f"  {row.definition}{' (' + (row.tier or row.arm) + ')' if row.tier or row.arm else ''}: {row.flags[0]}"
        for row in rows.select(quantity="target.met")
    ]
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
