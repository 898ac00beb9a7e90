"""Pieces the charts are made of: points of a table as records, axes in readable units, marked positions, bars."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from kvmodel import units
from kvmodel.results.shown import number, spread
from kvmodel.results.table import Row, Table

TIER_COLORS = ("#0072B2", "#56B4E9", "#009E73", "#E69F00", "#CC79A7", "#D55E00")
ARM_COLORS = ("#999999", "#E69F00", "#0072B2")
GREY, INK = "#808080", "#222222"
HEIGHT, BAR = 280, 34
TOP_LEGEND = {"orient": "top", "title": None, "labelLimit": 0, "symbolOpacity": 1}
LINE_LEGEND = {**TOP_LEGEND, "symbolType": "stroke", "symbolStrokeWidth": 3, "symbolSize": 300}
CONFIG = {
    "font": "system-ui, sans-serif",
    "background": "white",
    "view": {"stroke": None},
    "axis": {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelColor": INK,
        "titleColor": INK,
        "gridColor": "#e6e6e6",
        "domainColor": GREY,
        "tickColor": GREY,
        "labelLimit": 0,
    },
    "legend": {"labelFontSize": 12},
    "text": {"fontSize": 12, "color": INK},
}
BYTES_LABEL = (
    "datum.value >= 1099511627776 ? format(datum.value/1099511627776,'~g')+' TiB' : "
    "datum.value >= 1073741824 ? format(datum.value/1073741824,'~g')+' GiB' : format(datum.value/1048576,'~g')+' MiB'"
)
SECONDS_LABEL = (
    "datum.value >= 0.999 ? format(datum.value,'~r')+' s' : "
    "datum.value >= 0.000999 ? format(datum.value*1e3,'~r')+' ms' : format(datum.value*1e6,'~r')+' us'"
)
TOKENS_LABEL = (
    "datum.value >= 1e6 ? format(datum.value/1e6,'~g')+'M' : "
    "datum.value >= 1e3 ? format(datum.value/1e3,'~g')+'k' : datum.value"
)


@dataclass(frozen=True)
class Figure:
    """One finding: its title in words and numbers, what else is to be said, and one or more charts side by side."""

    name: str
    title: str
    caption: str
    specs: tuple[Mapping[str, Any], ...]
    curve: Table | None = None
    """The curve it draws, whose numbers stand nowhere else."""


def spec(chart: Any, height: int = HEIGHT, described: str = "") -> dict[str, Any]:
    """The chart as plain data, as wide as the page gives it."""
    made = chart.properties(
        width="container",
        height=height,
        description=described,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
    ).configure(**CONFIG)
    data = made.to_dict(validate=False)  # half the time of a page, and the shape does not depend on the numbers
    data.pop("$schema", None)  # an address nobody needs; the page says what language the specification is in
    return data


def data(records: Iterator[Mapping[str, Any]] | Sequence[Mapping[str, Any]]) -> alt.Data:
    """Records as chart data."""
    return alt.Data(values=list(records))


def points(x: np.ndarray, y: Any, **labels: str) -> Iterator[dict[str, Any]]:
    """One record per finite point of a curve."""
    for at, value in zip(x, np.broadcast_to(np.asarray(y, float), np.shape(x)), strict=True):
        if np.isfinite(value):
            yield {"x": float(at), "y": float(value), **labels}


def powers(low: float, high: float, base: float, most: int = 7) -> list[float]:
    """Powers of `base` from `low` to `high`, thinned until at most `most` are left."""
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    step = max(1, math.ceil((last - first + 1) / most))
    return [float(base**k) for k in range(first, last + 1, step)]


def bytes_axis(values: np.ndarray, title: str) -> alt.X:
    """Capacity on a scale of powers of two."""
    low, high = float(values.min()), float(values.max())
    return alt.X(
        "x:Q",
        scale=alt.Scale(type="log", base=2, domain=[low, high], nice=False),
        axis=alt.Axis(title=title, values=powers(low, high, 2.0), labelExpr=BYTES_LABEL),
    )


def share_axis() -> alt.X:
    """Stacked shares of the prompt tokens."""
    return alt.X(
        "y:Q",
        stack="zero",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(title="share of prompt tokens", format="%", tickCount=5),
    )


def marked(
    x: float,
    text: str,
    domain: tuple[float, float],
    line: int = 0,
    leftwards: bool = False,
    dash: Sequence[int] = (),
    color: str = INK,
) -> list[Any]:
    """A vertical line with its name at the foot of the chart, on line 0, 1, ... from below; haloed, never rotated.

    The name stands on the side asked for unless the edge of the chart is too near.
    """
    if not (np.isfinite(x) and domain[0] <= x <= domain[1]):
        return []
    where = (math.log(x) - math.log(domain[0])) / (math.log(domain[1]) - math.log(domain[0]))
    leftwards = where > 0.3 if leftwards else where > 0.7
    side = {"align": "right", "dx": -5} if leftwards else {"align": "left", "dx": 5}
    base = alt.Chart(data([{"x": x, "text": text}])).encode(x="x:Q")
    foot = base.encode(y=alt.value(HEIGHT - 12 - 17 * line), text="text:N")
    return [
        base.mark_rule(color=color, strokeDash=list(dash)),
        foot.mark_text(stroke="white", strokeWidth=4, **side),
        foot.mark_text(color=color, **side),
    ]


def bars(rows: Mapping[str, Row], title: str, colors: Sequence[str], factor: float = 1.0, reach: float = 0.0) -> Any:
    """One horizontal bar per name at the median, a line from p05 to p95 where it varies, and the value in words.

    factor: base units per unit of the axis; reach: what else, in base units, must have room on the axis.
    """
    records = []
    for name, row in rows.items():
        median, low, high = spread(row.value)
        if np.isfinite(median):
            high = high if np.isfinite(high) else median
            records.append(
                {
                    "name": name,
                    "y": median / factor,
                    "low": low / factor,
                    "high": high / factor,
                    "text": number(median, row.unit, row.quantity),
                }
            )
        else:
            records.append({"name": name, "y": 0.0, "low": 0.0, "high": 0.0, "text": "none: limits kept at no rate"})
    top = max(reach / factor, *(r["high"] for r in records)) or 1.0
    order = list(rows)
    base = alt.Chart(data(records)).encode(y=alt.Y("name:N", sort=order, axis=alt.Axis(title=None)))
    across = alt.X("y:Q", scale=alt.Scale(domain=[0, 1.35 * top], nice=False), axis=alt.Axis(title=title, tickCount=5))
    layers = [
        base.mark_bar(height=18).encode(
            x=across, color=alt.Color("name:N", scale=alt.Scale(domain=order, range=list(colors)), legend=None)
        )
    ]
    if any(r["low"] < r["high"] for r in records):
        layers.append(base.mark_rule(color=INK, strokeWidth=2).encode(x="low:Q", x2="high:Q"))
    layers.append(base.mark_text(align="left", dx=6).encode(x="high:Q", text="text:N"))
    return alt.layer(*layers)


def arm_colors(arms: Sequence[str]) -> list[str]:
    """Colours of arms in their order; the last one, which the report is about, always has the same."""
    return list(ARM_COLORS[-len(arms) :])


def bar_height(count: int) -> int:
    """Height of a chart of `count` bars."""
    return BAR * max(count, 1)


def readable_scale(value: float, dimension: str) -> tuple[float, str]:
    """Factor and unit in which values up to this one read best."""
    factor, unit = units.scale(value, dimension)
    return factor, unit or "1"
