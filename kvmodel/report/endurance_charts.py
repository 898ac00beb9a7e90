"""Writes and reuse over the rule of admission, and the cost of a stay over the retention window, as pictures."""

from __future__ import annotations

import altair as alt
import numpy as np

from kvmodel.report.marks import ARM_COLORS, SECONDS_LABEL, TIER_COLORS
from kvmodel.results.table import Table
from kvmodel.units import YEAR

AXES = {
    "probability": "share of contexts admitted",
    "uses": "uses before a block is written",
    "minimum_tokens": "shortest context written [tokens]",
}


def admission_chart(table: Table) -> alt.VConcatChart:
    """Per tier and rule: lifetime above, effective reuse below, over the threshold."""
    rows = []
    for name, curve in table.curves.items():
        axis, tier = curve.axes[0], name.split(":")[1]
        life, reuse = (
            np.broadcast_to(curve.value(q), axis.values.shape) for q in ("endurance.lifetime", "reuse.timely")
        )
        records = [
            {"x": float(x), "life": min(float(a) / YEAR, 1e3), "reuse": float(r)}
            for x, a, r in zip(axis.values, life, reuse, strict=True)
        ]
        rows.append((AXES[axis.name], tier, records))
    target = float(table.about["target_lifetime"]) / YEAR
    return alt.vconcat(*(_pair(said, tier, records, target) for said, tier, records in rows)).configure_view(
        stroke=None
    )


def _pair(said: str, tier: str, records: list[dict[str, float]], target: float) -> alt.HConcatChart:
    log = alt.Scale(type="log") if said.endswith("[tokens]") else alt.Scale()
    x = alt.X("x:Q", title=said, scale=log, axis=alt.Axis(format="~s"))
    base = alt.Chart(alt.Data(values=records))
    life = base.mark_line(point=True, color=TIER_COLORS[0]).encode(
        x=x, y=alt.Y("life:Q", scale=alt.Scale(type="log"), title="lifetime [years]", axis=alt.Axis(format="~r"))
    )
    wanted = alt.Chart(alt.Data(values=[{"life": target}])).mark_rule(color=ARM_COLORS[1]).encode(y="life:Q")
    reuse = base.mark_line(point=True, color=TIER_COLORS[2]).encode(
        x=x, y=alt.Y("reuse:Q", title="effective reuse", axis=alt.Axis(format="%"), scale=alt.Scale(zero=False))
    )
    size = {"width": 340, "height": 200}
    return alt.hconcat(
        alt.layer(life, wanted).properties(title=f"{tier}: life", **size),
        reuse.properties(title=f"{tier}: what is left of the hits", **size),
    )


def window_chart(table: Table) -> alt.HConcatChart:
    """Per population: expected cost of a stay over the window, one line per tier."""
    charts = []
    for name, curve in table.curves.items():
        axis = curve.axes[0]
        tiers = [row.tier for row in curve if row.tier]
        records = [
            {"window": float(x), "cost": float(y), "tier": row.tier}
            for row in curve
            if row.tier
            for x, y in zip(axis.values, np.broadcast_to(row.value, axis.values.shape), strict=True)
            if x > 0 and y > 0 and np.isfinite(y)
        ]
        charts.append(
            alt.Chart(alt.Data(values=records))
            .mark_line()
            .encode(
                x=alt.X(
                    "window:Q",
                    scale=alt.Scale(type="log"),
                    title="kept for at most",
                    axis=alt.Axis(labelExpr=SECONDS_LABEL),
                ),
                y=alt.Y(
                    "cost:Q",
                    scale=alt.Scale(type="log"),
                    title="expected cost of a stay [USD]",
                    axis=alt.Axis(format="~g"),
                ),
                color=alt.Color(
                    "tier:N",
                    title=None,
                    sort=tiers,
                    scale=alt.Scale(domain=tiers, range=[TIER_COLORS[i % len(TIER_COLORS)] for i in range(len(tiers))]),
                ),
            )
            .properties(width=420, height=300, title=name.split(":")[1])
        )
    return alt.hconcat(*charts).configure_view(stroke=None)
