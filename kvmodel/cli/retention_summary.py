"""Retention as text for a terminal. Nothing is worked out here."""

from __future__ import annotations

import numpy as np

from kvmodel.cli.summary import at_stated_values, grid
from kvmodel.results.shown import cell
from kvmodel.results.table import Row, Table, central
from kvmodel.units import text

WINDOWS = ("1min", "10min", "1h", "8h", "1d", "7d")


def summary_text(table: Table) -> str:
    """Windows, schedule, prices, values, pins, prefetches and plans, per population."""
    lines = [str(table.about["name"]), *at_stated_values(table)]
    cases = dict.fromkeys(row.case for row in table)
    for case in cases:
        rows = table.select(case=case)
        lines += ["", f"=== {case} ==="] * (len(cases) > 1)
        for population in _names(rows, "population", "retention.window"):
            mine = rows.select(population=population)
            for block in (_windows(mine, population), _prices(mine, population), _plans(mine, population)):
                lines += ["", *block] if block else []
        for block in (_values(rows), _pins(rows)):
            lines += ["", *block] if block else []
    return "\n".join(lines) + "\n"


def _names(rows: Table, column: str, quantity: str) -> list[str]:
    return list(dict.fromkeys(getattr(row, column) for row in rows.select(quantity=quantity)))


def _shown(rows: Table, quantity: str, **where: str) -> str:
    found = rows.select(quantity=quantity, **where).rows
    return cell(found[0] if found else None).text


def _time(rows: Table, quantity: str, **where: str) -> str:
    found = rows.select(quantity=quantity, **where).rows
    return _age(found[0]) if found else "-"


def _age(row: Row) -> str:
    value = central(row.value)
    return "at once" if value == 0 else "for ever" if np.isinf(value) else "-" if np.isnan(value) else text(value, "s")


def _percent(rows: Table, quantity: str, **where: str) -> str:
    return f"{100 * central(rows.value(quantity, **where)):.1f} %"


def _windows(rows: Table, population: str) -> list[str]:
    tiers = _names(rows, "tier", "retention.window")
    body = [
        [
            tier,
            _time(rows, "retention.window", tier=tier),
            _percent(rows, "retention.returns_within", tier=tier),
            _shown(rows, "retention.cost_per_stay", tier=tier),
            _shown(rows, "retention.cost_if_dropped", tier=tier),
            _time(rows, "retention.window_unknown_law", tier=tier),
            _time(rows, "retention.break_even", tier=tier),
            _time(rows, "retention.leaves_at", tier=tier),
            _prefetch(rows, tier),
        ]
        for tier in tiers
    ]
    head = [
        "tier",
        "keep alone",
        "back by then",
        "cost of a stay",
        "if dropped",
        "law unknown",
        "break-even",
        "in the chain until",
        "prefetch",
    ]
    return [
        f"{population}: how long a waiting session is worth keeping; the chain costs "
        f"{_shown(rows, 'retention.schedule_cost')} a stay",
        *grid(head, body),
    ]


def _prefetch(rows: Table, tier: str) -> str:
    found = rows.select(quantity="prefetch.gain", tier=tier).rows
    if not found:
        return "-"
    if central(found[0].value) <= 0:
        return "does not pay"
    return f"{_time(rows, 'prefetch.from_age', tier=tier)} to {_time(rows, 'prefetch.to_age', tier=tier)}"


def _prices(rows: Table, population: str) -> list[str]:
    tiers = _names(rows, "tier", "price.recovery")
    body = [
        [
            f"{tiers[0]}, generating",
            "-",
            _shown(rows, "price.active_session_hour", tier=tiers[0]),
            *["-"] * len(WINDOWS),
        ]
    ]
    body += [
        [
            tier,
            _shown(rows, "price.recovery", tier=tier),
            _shown(rows, "price.waiting_session_hour", tier=tier),
            *(_shown(rows, f"price.{window}.session_hour", tier=tier) for window in WINDOWS),
        ]
        for tier in tiers
    ]
    back = ["back by then", "", "", *(_percent(rows, f"price.{window}.returns_within") for window in WINDOWS)]
    return [
        f"{population}: price of a session-hour by place, recovery time and longest wait",
        *grid(["place", "recovery", "rent", *WINDOWS], [*body, back]),
    ]


def _plans(rows: Table, population: str) -> list[str]:
    names = _names(rows, "tier", "price_plan.cost")
    if not names:
        return []
    body = [
        [
            name,
            _shown(rows, "price_plan.cost", tier=name),
            _percent(rows, "price_plan.returns_within", tier=name),
            _percent(rows, "price_plan.break_even", tier=name),
            _shown(rows, "price_plan.per_turn", tier=name),
        ]
        for name in names
    ]
    (best,) = rows.select(quantity="price_plan.best").rows
    return [
        f"{population}: a provider's prompt cache; {', '.join(best.flags)}",
        *grid(["plan", "of plain input price", "back in its lifetime", "pays from", "a turn"], body),
    ]


def _values(rows: Table) -> list[str]:
    found = sorted(rows.select(quantity="value.rank"), key=lambda row: (row.tier, central(row.value)))
    body = [
        [
            row.tier,
            row.population,
            f"{central(row.value):.0f}",
            *(_shown(rows, q, tier=row.tier, population=row.population) for q in ("value.per_byte", "value.per_stay")),
        ]
        for row in found
    ]
    return [
        "Value of keeping a waiting session, by tier",
        *grid(["tier", "population", "rank", "per byte", "per stay"], body),
    ]


def _pins(rows: Table) -> list[str]:
    body = [
        [
            row.population,
            row.tier,
            *(
                _shown(rows, q, tier=row.tier, population=row.population)
                for q in ("pin.variants", "pin.bytes", "pin.gain", "pin.displaced", "pin.gain_of_all")
            ),
        ]
        for row in rows.select(quantity="pin.variants")
    ]
    return (
        [
            "Pinning shared prefixes",
            *grid(["prefix", "tier", "variants that pay", "bytes", "gain", "others lose", "gain of pinning all"], body),
        ]
        if body
        else []
    )
