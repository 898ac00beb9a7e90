"""The break-even as a picture: recompute and fetch over prefix length, and the threshold over load."""

from __future__ import annotations

import altair as alt
import numpy as np

from kvmodel.results.table import Table

COLORS = ("#222222", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#CC79A7", "#D55E00")


def chart(table: Table) -> alt.HConcatChart:
    """Both panels."""
    return (
        alt.hconcat(_over_prefix(table), _over_load(table))
        .resolve_scale(color="shared", strokeDash="independent")
        .configure_view(stroke=None)
        .configure_axis(gridColor="#eeeeee")
    )


def _over_prefix(table: Table) -> alt.LayerChart:
    curve = table.curves["prefix"]
    x = curve.axes[0].values
    records = [
        {"prefix": float(p), "seconds": float(s), "what": row.tier or "recompute", "path": _state(row.quantity)}
        for row in curve
        if row.quantity.startswith(("time.recompute", "time.fetch"))
        for p, s in zip(x, np.broadcast_to(row.value, x.shape), strict=True)
        if s > 0 and np.isfinite(s)
    ]
    asked = float(table.rows[0].value)
    lines = (
        alt.Chart(alt.Data(values=records))
        .mark_line()
        .encode(
            x=alt.X("prefix:Q", scale=alt.Scale(type="log"), title="prefix [tokens]", axis=alt.Axis(format="~s")),
            y=alt.Y("seconds:Q", scale=alt.Scale(type="log"), title="time [s]", axis=alt.Axis(format="~g")),
            color=_color(curve),
            strokeDash=_dash("path", ["idle", "50 % busy", "90 % busy"], "path"),
        )
    )
    here = alt.Chart(alt.Data(values=[{"prefix": asked}])).mark_rule(color="#999999").encode(x="prefix:Q")
    return alt.layer(lines, here).properties(width=420, height=320, title="Fetch a prefix or compute it again")


def _state(quantity: str) -> str:
    return "idle" if "_at_" not in quantity else quantity.rsplit("_", 1)[1].replace("%", " % busy")


def _color(curve: Table) -> alt.Color:
    names = ["recompute", *dict.fromkeys(row.tier for row in curve if row.tier)]
    return alt.Color(
        "what:N",
        title=None,
        sort=names,
        scale=alt.Scale(domain=names, range=[COLORS[i % len(COLORS)] for i in range(len(names))]),
    )


def _dash(field: str, names: list[str], title: str) -> alt.StrokeDash:
    return alt.StrokeDash(
        f"{field}:N",
        title=title,
        sort=names,
        legend=alt.Legend(symbolType="stroke", symbolStrokeColor="#555555", symbolStrokeWidth=2),
        scale=alt.Scale(domain=names, range=[[1, 0], [6, 3], [2, 2]][: len(names)]),
    )


def _over_load(table: Table) -> alt.Chart:
    curve = table.curves["load"]
    labels = {"breakeven.tokens_busy_path": "path busy", "breakeven.tokens_all_counted": "GPUs busy, all counted"}
    records = [
        {"load": float(u), "tokens": max(float(p), 1.0), "what": row.tier, "case": labels[row.quantity]}
        for row in curve
        if row.quantity in labels
        for u, p in zip(curve.axes[0].values, row.value, strict=True)
        if np.isfinite(p)
    ]
    return (
        alt.Chart(alt.Data(values=records))
        .mark_line(point=True)
        .encode(
            x=alt.X("load:Q", title="share of time in use", axis=alt.Axis(format="%")),
            y=alt.Y(
                "tokens:Q",
                scale=alt.Scale(type="log"),
                title="shortest prefix worth fetching [tokens]",
                axis=alt.Axis(format="~s"),
            ),
            color=_color(table.curves["prefix"]),
            strokeDash=_dash("case", list(labels.values()), "what is busy"),
        )
        .properties(width=420, height=320, title="The threshold moves with load")
    )
