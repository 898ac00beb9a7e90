"""The charts of a report, each titled with what it shows; all numbers come from the result table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import numpy as np

from kvmodel.report import marks
from kvmodel.report.curve_charts import STEPS, over_capacity, over_prefix, over_sweep
from kvmodel.report.marks import Figure
from kvmodel.report.time_charts import over_pause, over_warm_up
from kvmodel.results.shown import cases, names, number, one, spread
from kvmodel.results.table import Table, central
from kvmodel.results.verdict import COST, GOODPUT

OUTCOMES = {
    "timely": "#0072B2",
    "found, but too late or slower than recomputing": "#E69F00",
    "computed before, no longer held": "#c4c4c4",
}


def figures(table: Table) -> list[Figure]:
    """All charts the table has numbers for; those of one case are of its first."""
    found = cases(table)
    rows = table.select(case=found[0]) if found else table
    arms = list(table.about.get("arms", [])) or names(rows, "arm", COST)
    return [
        *_arms(rows, arms),
        *over_capacity(table),
        *over_prefix(table, rows),
        *over_pause(table),
        *over_warm_up(table),
        *_chain(rows, arms),
        *_writes(rows),
        *over_sweep(table, rows, arms),
        *_cases(table, arms),
    ]


def _chain(rows: Table, arms: list[str]) -> Iterator[Figure]:
    arm = arms[-1] if arms else ""
    shares = [one(rows, f"reuse.{step}", arm=arm) for step in STEPS]
    if any(row is None for row in shares) or np.isnan(central(shares[0].value)):
        return
    # losses are differences of the percentages as printed, so that what stands on the page adds up
    ceiling, resident, timely = (round(100 * central(row.value), 1) for row in shares)
    title = (
        f"{ceiling:.1f} % of prompt tokens were computed before; {resident:.1f} % are still held, {timely:.1f} % "
        "arrive in time"
    )
    caption = (
        f"Shares of all prompt tokens, {arm}. {ceiling - resident:.1f} points are lost because no tier holds "
        f"them any more, {resident - timely:.1f} because fetching is too late or slower than recomputing."
    )
    yield Figure("chain", title, caption, (_outcome_chart(rows, arm), _tier_chart(rows, arm)))


def _outcome_chart(rows: Table, arm: str) -> dict[str, Any]:
    populations = ["", *names(rows.select(arm=arm), "population", "reuse.ceiling")]
    records = []
    for name in populations:
        found = [one(rows, f"reuse.{step}", arm=arm, population=name) for step in STEPS]
        ceiling, resident, timely = (central(row.value) if row is not None else 0.0 for row in found)
        for k, part in enumerate((timely, resident - timely, ceiling - resident)):
            records.append({"name": name or "all", "y": max(part, 0.0), "k": k, "what": list(OUTCOMES)[k]})
    chart = (
        alt.Chart(marks.data(records))
        .mark_bar(height=20)
        .encode(
            y=alt.Y("name:N", sort=[name or "all" for name in populations], axis=alt.Axis(title=None)),
            x=marks.share_axis(),
            color=alt.Color(
                "what:N",
                scale=alt.Scale(domain=list(OUTCOMES), range=list(OUTCOMES.values())),
                legend=alt.Legend(**marks.TOP_LEGEND, columns=1),
            ),
            order="k:O",
            tooltip=["name:N", "what:N", alt.Tooltip("y:Q", format=".1%")],
        )
    )
    return marks.spec(chart, marks.bar_height(len(populations)), "What becomes of reusable tokens, by population")


def _tier_chart(rows: Table, arm: str) -> dict[str, Any]:
    tiers = names(rows.select(arm=arm), "tier", "reuse.timely")
    records, totals = [], []
    for step in STEPS:
        total = one(rows, f"reuse.{step}", arm=arm)
        share = central(total.value)
        totals.append({"name": step, "y": share, "text": number(share, "", total.quantity)})
        parts = (
            [("any", share)]
            if step == "ceiling"
            else [
                (tier, central(found.value))
                for tier in tiers
                if (found := one(rows, f"reuse.{step}", arm=arm, tier=tier))
            ]
        )
        records += [{"name": step, "y": part, "tier": tier, "k": k} for k, (tier, part) in enumerate(parts)]
    order = alt.Y("name:N", sort=list(STEPS), axis=alt.Axis(title=None))
    stack = (
        alt.Chart(marks.data(records))
        .mark_bar(height=20)
        .encode(
            y=order,
            x=marks.share_axis(),
            order="k:O",
            tooltip=["name:N", "tier:N", alt.Tooltip("y:Q", format=".1%")],
            color=alt.Color(
                "tier:N",
                legend=alt.Legend(**{**marks.TOP_LEGEND, "values": tiers}),
                scale=alt.Scale(domain=["any", *tiers], range=[marks.GREY, *marks.TIER_COLORS[: len(tiers)]]),
            ),
        )
    )
    text = alt.Chart(marks.data(totals)).mark_text(align="left", dx=5).encode(y=order, x="y:Q", text="text:N")
    return marks.spec(alt.layer(stack, text), marks.bar_height(len(STEPS)), "Reuse chain by tier")


def _writes(rows: Table) -> Iterator[Figure]:
    tiers = [
        tier
        for tier in names(rows, "tier", "endurance.write_rate")
        if not np.isnan(central(one(rows, "endurance.write_rate", tier=tier).value))
    ]
    if not tiers:
        return
    found = {tier: one(rows, "endurance.write_rate", tier=tier) for tier in tiers}
    budgets = {tier: central(one(rows, "endurance.write_budget", tier=tier).value) for tier in tiers}
    finite = [v for tier in tiers for v in (budgets[tier], spread(found[tier].value).high) if np.isfinite(v)]
    factor, unit = marks.readable_scale(max(finite, default=1.0), "B/s")
    records = [
        {"name": tier, "y": value / factor, "text": f"budget {number(value, 'B/s')}"}
        for tier, value in budgets.items()
        if np.isfinite(value)
    ]
    chart = marks.bars(found, f"written, {unit}", marks.TIER_COLORS, factor, max(finite, default=1.0))
    ticks = alt.Chart(marks.data(records)).encode(y=alt.Y("name:N", sort=tiers), x="y:Q")
    layers = [
        ticks.mark_tick(color="#D55E00", thickness=3, size=30, opacity=1),
        ticks.mark_text(align="left", dx=6, dy=-12, color="#D55E00").encode(text="text:N"),
    ]
    sentence = "; ".join(
        f"{tier} takes {number(central(found[tier].value), 'B/s')} of a write budget of {number(budgets[tier], 'B/s')} "
        f"and lasts {number(central(one(rows, 'endurance.lifetime', tier=tier).value), 's')}"
        for tier in tiers
    )
    caption = "Host bytes written, all drives of a tier; the budget is what reaches the wanted lifetime."
    yield Figure(
        "writes",
        sentence,
        caption,
        (marks.spec(alt.layer(chart, *layers), 52 * len(tiers), "Writes against the write budget"),),
    )


def _arms(rows: Table, arms: list[str]) -> Iterator[Figure]:
    rates, costs = ({arm: row for arm in arms if (row := one(rows, quantity, arm=arm))} for quantity in (GOODPUT, COST))
    if not rates or not costs or all(np.isnan(central(row.value)) for row in rates.values()):
        return
    least = min(costs, key=lambda arm: central(costs[arm].value))
    title = "No arm keeps the limits at any rate of sessions"
    if np.isfinite(central(costs[least].value)):
        title = (
            f"{least} is cheapest: {number(central(costs[least].value), 'USD')} per qualified session at "
            f"{number(central(rates[least].value), '/s')}"
        )
    varies = any(spread(row.value).low < spread(row.value).high for row in (*rates.values(), *costs.values()))
    caption = "Each arm at its own best rate of sessions, on the same GPUs and limits." + (
        " Bars are medians, lines span 5 to 95 % of all points." if varies else ""
    )
    colors = marks.arm_colors(arms)
    yield Figure(
        "arms",
        title,
        caption,
        tuple(
            marks.spec(marks.bars(found, axis, colors), marks.bar_height(len(found)), f"{axis} by arm")
            for found, axis in ((rates, "qualified sessions per second"), (costs, "USD per qualified session"))
        ),
    )


def _cases(table: Table, arms: list[str]) -> Iterator[Figure]:
    found = cases(table)
    if len(found) < 2:
        return
    records = []
    for case in found:
        for arm in arms:
            row = one(table.select(case=case), COST, arm=arm)
            if row is not None and np.isfinite(central(row.value)):
                records.append(
                    {"case": case, "arm": arm, "y": central(row.value), "text": number(central(row.value), "USD")}
                )
    if not records:
        return
    cheapest = [
        min((r for r in records if r["case"] == case), key=lambda r: r["y"])["arm"]
        for case in found
        if any(r["case"] == case for r in records)
    ]
    winner = max(dict.fromkeys(cheapest), key=cheapest.count)
    title = f"{winner} is cheapest per qualified session in {cheapest.count(winner)} of {len(cheapest)} cases"
    across = alt.Scale(domain=[0, 1.3 * max(r["y"] for r in records)], nice=False)
    base = alt.Chart(marks.data(records)).encode(
        y=alt.Y("case:N", sort=found, axis=alt.Axis(title=None)), yOffset=alt.YOffset("arm:N", sort=arms)
    )
    bar = base.mark_bar().encode(
        x=alt.X("y:Q", scale=across, axis=alt.Axis(title="USD per qualified session", tickCount=6)),
        color=alt.Color(
            "arm:N", scale=alt.Scale(domain=arms, range=marks.arm_colors(arms)), legend=alt.Legend(**marks.TOP_LEGEND)
        ),
    )
    text = base.mark_text(align="left", dx=4).encode(x="y:Q", text="text:N")
    caption = "Medians where numbers are drawn or swept; a bar is absent where the limits are kept at no rate."
    height = 20 * len(arms) * len(found) + 20
    yield Figure("cases", title, caption, (marks.spec(alt.layer(bar, text), height, "Cost by case and arm"),))
