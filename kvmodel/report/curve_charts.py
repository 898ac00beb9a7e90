"""Charts over an axis: reuse and cost over capacity, fetch against recompute over prefix length, cost over a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import numpy as np

from kvmodel import units
from kvmodel.report import marks
from kvmodel.report.marks import Figure
from kvmodel.results.shown import between, names, number, one, spread
from kvmodel.results.table import Axis, Table, central
from kvmodel.results.verdict import COST

STEPS = ("ceiling", "resident", "timely")


def over_capacity(table: Table) -> Iterator[Figure]:
    for name, curve in table.curves.items():
        if name.startswith("capacity:"):
            tier = name.removeprefix("capacity:")
            caption = [_reuse_sentence(curve), _cost_sentence(curve)]
            unknown = [row for row in curve.select(quantity="knee.capacity") if np.isnan(row.value)]
            caption += [f"{flag[:1].upper()}{flag[1:]}." for row in unknown for flag in row.flags]
            specs = (_reuse_chart(curve, tier), *_cost_chart(curve, tier))
            yield Figure(name, _knee_sentence(curve, tier), " ".join(filter(None, caption)), specs, curve)


def _scalar(curve: Table, quantity: str) -> float:
    found = curve.select(quantity=quantity).rows
    return central(found[0].value) if found else float("nan")


def _here(curve: Table) -> tuple[int, float]:
    """The grid point at the study's own capacity, and that capacity."""
    here = _scalar(curve, "capacity.here")
    return int(np.nanargmin(np.abs(curve.axes[0].values - here))) if np.isfinite(here) else -1, here


def _knee_sentence(curve: Table, tier: str) -> str:
    knee, (_, here) = _scalar(curve, "knee.capacity"), _here(curve)
    has = f"the study has {number(here, 'B')}"
    low, high = float(curve.axes[0].values.min()), float(curve.axes[0].values.max())
    if np.isnan(knee):
        return f"Effective reuse by capacity of {tier}; {has}"
    if knee <= low:
        return f"{tier} does not earn its rent even at {number(low, 'B')}, the smallest size looked at; {has}"
    if knee >= high:
        return f"{tier} earns its rent up to {number(high, 'B')} at least, the largest size looked at; {has}"
    return f"{tier} earns its rent up to {number(knee, 'B')}; {has}"


def _reuse_sentence(curve: Table) -> str:
    at, here = _here(curve)
    timely, ceiling = (curve.select(quantity=f"reuse.{step}").rows for step in ("timely", "ceiling"))
    if at < 0 or not timely or not ceiling:
        return ""
    shares = (float(np.broadcast_to(row.value, curve.axes[0].values.shape)[at]) for row in (timely[0], ceiling[0]))
    reached, most = (number(share, "", "reuse.timely") for share in shares)
    return f"At {number(here, 'B')} effective reuse is {reached} of prompt tokens, of a ceiling of {most}."


def _cost_sentence(curve: Table) -> str:
    found = curve.select(quantity=COST).rows
    if not found or not np.isfinite(found[0].value).any():
        return ""
    value, (at, here) = np.where(np.isnan(found[0].value), np.inf, found[0].value), _here(curve)
    least = int(np.argmin(value))
    cheapest, size = number(value[least], "USD"), number(curve.axes[0].values[least], "B")
    text = f"Served at the best rate of each size, a qualified session costs least at {size}: {cheapest}"
    return text + (f", against {number(value[at], 'USD')} at {number(here, 'B')}." if at >= 0 else ".")


def _reuse_chart(curve: Table, tier: str) -> dict[str, Any]:
    x = curve.axes[0].values
    records = [
        point
        for step in STEPS
        for row in curve.select(quantity=f"reuse.{step}")
        for point in marks.points(x, row.value, step=step)
    ]
    color = alt.Color(
        "step:N",
        legend=alt.Legend(**marks.LINE_LEGEND),
        scale=alt.Scale(domain=list(STEPS), range=[marks.GREY, marks.TIER_COLORS[3], marks.TIER_COLORS[0]]),
    )
    lines = alt.Chart(marks.data(records)).encode(
        x=marks.bytes_axis(x, f"capacity of {tier}, all devices"),
        y=alt.Y("y:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(title="share of prompt tokens", format="%")),
        color=color,
        tooltip=[alt.Tooltip("step:N"), alt.Tooltip("y:Q", format=".1%")],
    )
    layers = [
        lines.transform_filter(f"datum.step == '{step}'").mark_line(strokeWidth=width, strokeDash=dash)
        for step, width, dash in (("resident", 4, []), ("timely", 2, []), ("ceiling", 2, [6, 4]))
    ]
    return marks.spec(
        alt.layer(*_knee_band(curve), *layers, *_knee_marks(curve)), described=f"Effective reuse by capacity of {tier}"
    )


def _cost_chart(curve: Table, tier: str) -> Iterator[dict[str, Any]]:
    x = curve.axes[0].values
    records = [point for row in curve.select(quantity=COST) for point in marks.points(x, row.value)]
    if not records:
        return
    lines = alt.Chart(marks.data(records)).encode(
        x=marks.bytes_axis(x, f"capacity of {tier}, all devices"),
        y=alt.Y("y:Q", scale=alt.Scale(zero=True), axis=alt.Axis(title="USD per qualified session", tickCount=6)),
        tooltip=[alt.Tooltip("y:Q", format=".4~g", title="USD")],
    )
    least = (
        alt.Chart(marks.data([min(records, key=lambda record: record["y"])]))
        .mark_point(filled=True, size=70, color=marks.TIER_COLORS[0], opacity=1)
        .encode(x="x:Q", y="y:Q")
    )
    yield marks.spec(
        alt.layer(
            *_knee_band(curve), lines.mark_line(strokeWidth=2, color=marks.TIER_COLORS[0]), least, *_knee_marks(curve)
        ),
        described=f"Cost per qualified session by capacity of {tier}",
    )


def _domain(curve: Table) -> tuple[float, float]:
    return float(curve.axes[0].values.min()), float(curve.axes[0].values.max())


def _knee_band(curve: Table) -> list[Any]:
    """The range of the knee when the rent is 20 % off, behind everything."""
    low, high = _scalar(curve, "knee.low"), _scalar(curve, "knee.high")
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        return []
    return [
        alt.Chart(marks.data([{"low": low, "high": high}]))
        .mark_rect(color="#f0e9d2")
        .encode(x=alt.X("low:Q"), x2="high:Q", y=alt.value(0), y2=alt.value(marks.HEIGHT))
    ]


def _knee_marks(curve: Table) -> list[Any]:
    knee, here, domain = _scalar(curve, "knee.capacity"), _scalar(curve, "capacity.here"), _domain(curve)
    return [
        *marks.marked(here, f"study: {number(here, 'B')}", domain, line=0, leftwards=here < knee, dash=(4, 3)),
        *marks.marked(knee, f"knee: {number(knee, 'B')}", domain, line=1, leftwards=knee <= here, color="#8a5a00"),
    ]


def over_prefix(table: Table, rows: Table) -> Iterator[Figure]:
    curve = table.curves.get("prefix")
    if curve is None:
        return
    tiers = names(curve, "tier", "time.fetch")
    typical = one(rows, "time.typical_prefix")
    caption = "Idle paths, nothing hidden behind computation. A ring marks where fetching becomes the faster one."
    spec = _prefix_chart(curve, tiers, float("nan") if typical is None else central(typical.value))
    yield Figure("prefix", _prefix_sentence(curve, tiers), caption, (spec,), curve)


def _prefix_sentence(curve: Table, tiers: list[str]) -> str:
    parts = []
    for tier in tiers:
        found = one(curve, "breakeven.tokens", tier=tier)
        tokens = central(found.value) if found is not None else float("nan")
        if np.isnan(tokens):
            continue
        parts.append(
            f"{tier} never"
            if np.isinf(tokens)
            else f"{tier} at any length"
            if tokens < 1
            else f"{tier} from {units.text(tokens, 'token')}"
        )
    return "Fetching is faster than recomputing: " + ", ".join(parts) if parts else "Fetching against recomputing"


def _prefix_chart(curve: Table, tiers: list[str], typical: float) -> dict[str, Any]:
    x = curve.axes[0].values
    recompute = curve.value("time.recompute")
    records = list(marks.points(x, recompute, what="recompute"))
    crossings = []
    for tier in tiers:
        records += marks.points(x, curve.value("time.fetch", tier=tier), what=f"fetch from {tier}")
        found = one(curve, "breakeven.tokens", tier=tier)
        at = central(found.value) if found is not None else float("nan")
        if np.isfinite(at) and x[0] <= at <= x[-1]:
            seconds = np.exp(np.interp(np.log(at), np.log(x), np.log(recompute)))
            crossings.append(
                {
                    "x": at,
                    "y": float(seconds),
                    "what": f"fetch from {tier}",
                    "text": f"{tier}: {units.text(at, 'token')}",
                }
            )
    records = [record for record in records if record["y"] > 0]
    order = ["recompute", *(f"fetch from {tier}" for tier in tiers)]
    color = alt.Color(
        "what:N",
        scale=alt.Scale(domain=order, range=[marks.INK, *marks.TIER_COLORS[: len(tiers)]]),
        legend=alt.Legend(**marks.LINE_LEGEND),
    )
    seconds = [record["y"] for record in records]
    lines = (
        alt.Chart(marks.data(records))
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X(
                "x:Q",
                scale=alt.Scale(type="log", domain=[float(x[0]), float(x[-1])], nice=False),
                axis=alt.Axis(
                    title="prefix length, tokens", values=marks.powers(x[0], x[-1], 10.0), labelExpr=marks.TOKENS_LABEL
                ),
            ),
            y=alt.Y(
                "y:Q",
                scale=alt.Scale(type="log"),
                axis=alt.Axis(
                    title="time", values=marks.powers(min(seconds), max(seconds), 10.0), labelExpr=marks.SECONDS_LABEL
                ),
            ),
            color=color,
            tooltip=[
                alt.Tooltip("what:N"),
                alt.Tooltip("x:Q", format=",.0f", title="tokens"),
                alt.Tooltip("y:Q", format=".3~g", title="seconds"),
            ],
        )
    )
    rings = (
        alt.Chart(marks.data(crossings))
        .mark_point(size=110, strokeWidth=2.5, fill="white", opacity=1)
        .encode(x="x:Q", y="y:Q", color=color, tooltip=alt.Tooltip("text:N", title="break-even"))
    )
    label = f"typical prefix: {units.text(typical, 'token')}" if np.isfinite(typical) else ""
    mark = marks.marked(typical, label, (float(x[0]), float(x[-1])), dash=(4, 3))
    layers = [*mark, lines, rings] if crossings else [*mark, lines]
    return marks.spec(alt.layer(*layers), described="Fetch and recompute time by prefix length")


def over_sweep(table: Table, rows: Table, arms: list[str]) -> Iterator[Figure]:
    """Cost over the first swept path; over all other axes its median and 5 to 95 % range."""
    if not table.axes or table.axes[0].is_draws:
        return
    axis, shape = table.axes[0], tuple(len(a.values) for a in table.axes)
    records = []
    for arm in arms:
        row = one(rows, COST, arm=arm)
        if row is None:
            continue
        value = np.broadcast_to(np.asarray(row.value, float), shape).reshape(shape[0], -1)
        for x, along in zip(axis.values, value, strict=True):
            median, low, high = spread(along)
            if np.isfinite(median):
                records.append(
                    {"x": float(x), "y": median, "low": low, "high": high if np.isfinite(high) else median, "arm": arm}
                )
    if not records:
        return
    best = min(records, key=lambda record: record["y"])
    span = between(float(axis.values.min()), float(axis.values.max()), axis.unit)
    title = (
        f"Over {axis.name} from {span} a qualified session costs least with {best['arm']}: "
        f"{number(best['y'], 'USD')} at {number(best['x'], axis.unit)}"
    )
    others = [a.name for a in table.axes[1:]]
    caption = f"Lines are medians over {', '.join(others)}, bands 5 to 95 %." if others else ""
    yield Figure("sweep", title, caption, (_sweep_chart(records, axis, arms),))


def _sweep_chart(records: list[dict[str, Any]], axis: Axis, arms: list[str]) -> dict[str, Any]:
    name, unit, values = axis.name, axis.unit, axis.values
    if unit == "B" and values.min() > 0:
        x = marks.bytes_axis(values, name)
    else:
        wide = values.min() > 0 and values.max() > 20 * values.min()
        x = alt.X(
            "x:Q",
            scale=alt.Scale(type="log" if wide else "linear", zero=False, nice=False),
            axis=alt.Axis(title=f"{name}{f' [{unit}]' if unit else ''}", format="~s", tickCount=7),
        )
    base = alt.Chart(marks.data(records)).encode(
        x=x,
        color=alt.Color(
            "arm:N", scale=alt.Scale(domain=arms, range=marks.arm_colors(arms)), legend=alt.Legend(**marks.LINE_LEGEND)
        ),
    )
    band = base.mark_area(opacity=0.2).encode(y="low:Q", y2="high:Q")
    line = base.mark_line(strokeWidth=2, point=True).encode(
        y=alt.Y("y:Q", scale=alt.Scale(zero=True), axis=alt.Axis(title="USD per qualified session")),
        tooltip=[
            "arm:N",
            alt.Tooltip("x:Q", format=".4~s", title=name),
            alt.Tooltip("y:Q", format=".4~g", title="USD"),
        ],
    )
    return marks.spec(alt.layer(band, line), described=f"Cost per qualified session over {name}")
