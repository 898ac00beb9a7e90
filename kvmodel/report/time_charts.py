"""Charts over time: what is left of a paused context, and how an emptied cache warms up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt

from kvmodel import units
from kvmodel.report import marks
from kvmodel.report.marks import Figure
from kvmodel.results.table import Table, central

LONG_LABEL = (
    "datum.value >= 86399 ? format(datum.value/86400,'~g')+' d' : datum.value >= 3599 ? "
    "format(datum.value/3600,'~g')+' h' : datum.value >= 59 ? format(datum.value/60,'~g')+' min' : "
    "format(datum.value,'~g')+' s'"
)
TICKS = [1, 10, 60, 600, 3600, 36_000, 86_400, 604_800, 2_592_000]  # [s]


def over_pause(table: Table) -> Iterator[Figure]:
    """Share of a paused context still held, down to each tier."""
    curve = table.curves.get("survival")
    if curve is None:
        return
    records = [
        record
        for row in curve
        for record in marks.points(curve.axes[0].values, row.value, what=f"{row.population}, down to {row.tier}")
    ]
    halves, several = [], len({row.population for row in curve}) > 1
    for row in curve:
        below = row.value < 0.5
        half = f"{units.text(float(curve.axes[0].values[below.argmax()]), 's')}" if below.any() else "more than a week"
        halves.append(f"{row.population + ' in ' if several else ''}{row.tier} {half}")
    caption = "Share of a waiting context that is still found in a tier or one above it, by the length of its pause."
    chart = _lines(records, "length of the pause", "share still held")
    yield Figure("survival", f"Half of a paused context is left after: {', '.join(halves)}", caption, (chart,), curve)


def over_warm_up(table: Table) -> Iterator[Figure]:
    """Reuse found after all tiers were emptied."""
    curve = table.curves.get("warm_up")
    if curve is None:
        return
    found, warm = curve.value("reuse.since_emptied"), curve.select(quantity="reuse.warm_up").rows[0]
    records = list(marks.points(curve.axes[0].values, found, what="reuse found"))
    title = f"An emptied cache is warm again after {units.text(central(warm.value), 's')}"
    caption = f"{warm.definition[:1].upper()}{warm.definition[1:]}; queueing while it warms up is not counted."
    chart = _lines(records, "time since it was emptied", "share of the reuse offered")
    yield Figure("warm_up", title, caption, (chart,), curve)


def _lines(records: list[dict[str, Any]], across: str, up: str) -> dict[str, Any]:
    order = list(dict.fromkeys(record["what"] for record in records))
    low, high = (end(record["x"] for record in records) for end in (min, max))
    lines = (
        alt.Chart(marks.data(records))
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X(
                "x:Q",
                scale=alt.Scale(type="log", domain=[low, high], nice=False),
                axis=alt.Axis(
                    title=across, values=[tick for tick in TICKS if low <= tick <= high], labelExpr=LONG_LABEL
                ),
            ),
            y=alt.Y("y:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(title=up, format="%")),
            color=alt.Color(
                "what:N",
                scale=alt.Scale(domain=order, range=list(marks.TIER_COLORS[: len(order)])),
                legend=alt.Legend(**marks.LINE_LEGEND) if len(order) > 1 else None,
            ),
            tooltip=[
                alt.Tooltip("what:N"),
                alt.Tooltip("x:Q", format=",.0f", title="seconds"),
                alt.Tooltip("y:Q", format=".1%"),
            ],
        )
    )
    return marks.spec(alt.layer(lines), described=f"{up} over {across}")
