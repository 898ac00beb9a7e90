"""One number of the table as text: shares in percent, the rest in the unit that reads best, with its range."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kvmodel import units
from kvmodel.results.table import Row, Table

SHARES = frozenset(
    {
        "reuse.ceiling",
        "reuse.resident",
        "reuse.timely",
        "reuse.kept",
        "reuse.hit_ratio_tokens",
        "reuse.hit_ratio_blocks",
        "reuse.hit_ratio_requests",
        "reuse.hit_ratio_reached",
        "reuse.requests_with_hit",
        "retention.returns_within",
        "latency.end_to_end_in_time",
        "latency.prefill_utilisation",
        "latency.ttft_in_time",
        "latency.tpot_in_time",
        "latency.qualified",
        "load.tier_utilisation",
    }
)
LENGTHS = frozenset({"breakeven.tokens", "breakeven.tokens_idle"})
"""Shortest prefixes worth fetching: below one token, any."""
MISSING = "–"


class Spread(NamedTuple):
    """Median and 5 to 95 % range over all points that have a value; nan where none has."""

    median: float
    low: float
    high: float


class Cell(NamedTuple):
    """What stands in one cell of a table, and smaller below it."""

    text: str
    small: str = ""


def spread(value: Any) -> Spread:
    """Median, 5th and 95th percentile over all axes; drawn values, so that infinite ones stay infinite."""
    known = np.asarray(value, float)
    known = known[~np.isnan(known)]
    if not known.size:
        return Spread(np.nan, np.nan, np.nan)
    return Spread(*(float(v) for v in np.quantile(known, (0.5, 0.05, 0.95), method="inverted_cdf")))


def number(value: float, unit: str, quantity: str = "") -> str:
    """Text of one value of a quantity."""
    if quantity in SHARES and np.isfinite(value):
        return f"{100 * value:.1f} %"
    if quantity in LENGTHS and value < 1:
        return "any"
    return units.text(value, unit)


def cell(row: Row | None) -> Cell:
    """The cell of a row: its median, with the range below it where the value varies."""
    if row is None:
        return Cell(MISSING)
    median, low, high = spread(row.value)
    if np.isnan(median):
        return Cell(units.text(median, row.unit))
    text = number(median, row.unit, row.quantity)
    return Cell(text, between(low, high, row.unit, row.quantity) if low != high else "")


def between(low: float, high: float, unit: str, quantity: str = "") -> str:
    """Text of a range, its unit once where both ends have the same."""
    ends = [number(end, unit, quantity) for end in (low, high)]
    (first, _, unit_low), (_, _, unit_high) = (end.partition(" ") for end in ends)
    return f"{first if unit_low == unit_high else ends[0]} to {ends[1]}"


def one(rows: Table, quantity: str, **where: str) -> Row | None:
    """The row of a quantity at one place, what is not said being empty; None where the table has no such row."""
    wanted = {"arm": "", "population": "", "tier": ""} | where
    found = rows.select(quantity=quantity, **wanted).rows
    return found[0] if found else None


def names(rows: Table, column: str, quantity: str) -> list[str]:
    """Names in a column of the rows of a quantity, in order, each once."""
    return list(dict.fromkeys(name for row in rows.select(quantity=quantity) if (name := getattr(row, column))))


def cases(table: Table) -> list[str]:
    """Cases of a table in order."""
    return list(dict.fromkeys(row.case for row in table))
