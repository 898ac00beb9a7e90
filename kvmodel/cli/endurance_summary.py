"""Endurance as text for a terminal. Nothing is worked out here."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kvmodel.cli.summary import _shown as shown
from kvmodel.cli.summary import at_stated_values, grid, notes
from kvmodel.results.table import Table, central
from kvmodel.units import number, text

DEVICE = (
    ("stated", "endurance.amplification"),
    ("inside the rating", "endurance.rated_amplification"),
    ("mixed, freed at random", "endurance.amplification_one_stream"),
    ("mixed, least recently used freed", "endurance.amplification_least_recently_used"),
    ("apart, spare by size", "endurance.amplification_separate_streams_by_size"),
    ("apart, best split", "endurance.amplification_separate_streams"),
    ("in log order", "endurance.amplification_in_log_order"),
)
RULES = (
    ("everything", ""),
    ("coin", "probability"),
    ("uses", "uses"),
    ("shortest context", "minimum_tokens"),
    ("value per byte", "value_per_byte"),
)


def summary_text(table: Table) -> str:
    """A sentence per tier, then the tables."""
    lines = [str(table.about["name"]), *at_stated_values(table), ""]
    cases = dict.fromkeys(row.case for row in table)
    for case in cases:
        rows = table.select(case=case)
        lines += [f"=== {case} ==="] * (len(cases) > 1)
        tiers = list(dict.fromkeys(row.tier for row in rows))
        lines += [f"* {_verdict(rows, tier, table)}" for tier in tiers]
        for block in (_flow(rows, tiers), _device(rows, tiers), *(_rules(rows, tier) for tier in tiers)):
            lines += ["", *block]
        found = [f"  {line}" for line in notes(rows)]
        lines += ["", "Notes", *found] if found else []
    for name, curve in table.curves.items():
        lines += ["", *_curve(name, curve)]
    return "\n".join(lines) + "\n"


def _verdict(rows: Table, tier: str, table: Table) -> str:
    life, target = central(rows.value("endurance.lifetime", tier=tier)), float(table.about["target_lifetime"])
    said = (
        f"{tier}: {shown(rows, 'endurance.daily_writes', tier=tier)} a day, "
        f"{shown(rows, 'endurance.drive_writes_per_day', tier=tier)} drive writes; the rated wear is used up in "
        f"{text(life, 's')}"
    )
    if life >= target:
        return f"{said}, longer than the {text(target, 's')} wanted."
    return (
        f"{said}, short of the {text(target, 's')} wanted: the budget is "
        f"{shown(rows, 'endurance.write_budget', tier=tier)}, or {shown(rows, 'endurance.drives_needed', tier=tier)} "
        f"drives of this kind, or a rating of {shown(rows, 'endurance.rating_needed', tier=tier)} drive writes per day."
    )


def _flow(rows: Table, tiers: list[str]) -> list[str]:
    head = ["tier", "writes", "a day", "busy day", "budget", "used", "lifetime", "wear", "read per write", "worth from"]
    body = [
        [
            tier,
            *(
                shown(rows, f"endurance.{q}", tier=tier)
                for q in (
                    "write_rate",
                    "daily_writes",
                    "daily_writes_p99",
                    "write_budget",
                    "budget_used",
                    "lifetime",
                    "wear_cost",
                    "reads_per_write",
                    "breakeven_tokens",
                )
            ),
        ]
        for tier in tiers
    ]
    parts = [
        [f"  {row.population}", text(central(row.value), row.unit), *[""] * 8]
        for row in rows.select(quantity="endurance.write_rate")
        if row.population
    ]
    return [
        "Writes (busy day: one in a hundred; worth from: shortest prefix with its wear)",
        *grid(head, [*body, *parts]),
    ]


def _device(rows: Table, tiers: list[str]) -> list[str]:
    body = [[label, *(shown(rows, quantity, tier=tier) for tier in tiers)] for label, quantity in DEVICE]
    return ["Flash bytes per host byte", *grid(["", *tiers], body)]


def _rules(rows: Table, tier: str) -> list[str]:
    body = []
    for label, rule in RULES:
        name = f"admission.{rule or 'everything'}"
        loss = rows.select(quantity=f"{name}.lost", tier=tier).rows
        body.append(
            [
                label,
                shown(rows, f"{name}.threshold", tier=tier) if rule else "-",
                shown(rows, f"{name}.write_rate", tier=tier),
                _percent(rows.value(f"{name}.timely", tier=tier)),
                _percent(loss[0].value) if loss else "-",
            ]
        )
    return [
        f"Rules of admission into {tier} that fit its budget",
        *grid(["rule", "threshold", "writes", "effective reuse", "lost"], body),
    ]


def _percent(value: object) -> str:
    return f"{100 * central(value):.1f} %"


def _curve(name: str, curve: Table) -> Iterator[str]:
    axis, tier = curve.axes[0], name.split(":")[1]
    rate, life, reuse = (
        np.broadcast_to(curve.value(q), axis.values.shape)
        for q in ("endurance.write_rate", "endurance.lifetime", "reuse.timely")
    )
    every = max(1, len(axis.values) // 9)
    body = [
        [text(x, axis.unit) if axis.unit else number(x), text(w, "B/s"), text(age, "s"), f"{100 * r:.1f} %"]
        for x, w, age, r in list(zip(axis.values, rate, life, reuse, strict=True))[::every]
    ]
    yield f"{tier} by {axis.name.replace('_', ' ')}"
    yield from grid([axis.name.replace("_", " "), "writes", "lifetime", "effective reuse"], body)
    yield from (flag for row in curve for flag in row.flags)
