"""Break-even as text for a terminal: the answer first, then the curves. Nothing is worked out here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kvmodel.cli.summary import at_stated_values, grid
from kvmodel.results.breakeven_verdict import sentences
from kvmodel.results.table import Row, Table, central
from kvmodel.units import number, text

NUMBERS = (
    ("fetch", "time.fetch"),
    ("recompute at most behind", "breakeven.queue_seconds"),
    ("shortest prefix", "breakeven.tokens_idle"),
    ("least bandwidth", "breakeven.bandwidth"),
    ("most use", "breakeven.utilisation"),
    ("split: compute", "breakeven.split_head"),
    ("takes", "breakeven.split_seconds"),
    ("copies", "path.copies"),
    ("cost", "path.copy_seconds"),
    ("block", "path.blocking"),
)
SHARES = ("load.tier_utilisation", "breakeven.utilisation", "breakeven.timely", "breakeven.timely_prefetched")
EVERY = 4  # of the points of the curve over prefix lengths that are printed


# name of the curve, title, head of its first column, title and quantity of the others, every how many points
CURVES: tuple[tuple[str, str, str, tuple[tuple[str, str], ...], int], ...] = (
    (
        "prefix",
        "Over the length of the prefix: recompute, and fetch on an idle and a busy path",
        "prefix",
        (
            ("recompute", "time.recompute"),
            ("idle", "time.fetch"),
            ("50 % busy", "time.fetch_at_50%"),
            ("90 % busy", "time.fetch_at_90%"),
        ),
        EVERY,
    ),
    (
        "load",
        "Shortest prefix worth fetching under load, and fetches in time (path so busy)",
        "use",
        (
            ("path busy", "breakeven.tokens_busy_path"),
            ("GPUs busy", "breakeven.tokens_busy_gpu"),
            ("all counted", "breakeven.tokens_all_counted"),
            ("in time", "breakeven.timely"),
            ("prefetched", "breakeven.timely_prefetched"),
        ),
        1,
    ),
    (
        "queue",
        "Shortest prefix worth fetching behind a queue",
        "ahead",
        (("restores", "breakeven.tokens_behind_restores"), ("prompts", "breakeven.tokens_behind_prompts")),
        1,
    ),
    (
        "position",
        "Block by block along the prefix, fixed cost apart",
        "from",
        (("compute", "time.compute_block"), ("fetch", "time.fetch_block")),
        3,
    ),
    (
        "burst",
        "So many at once on one instance, mean finish (and of the last)",
        "at once",
        (("recompute", "time.recompute_burst"), ("fetch", "time.fetch_burst"), ("last", "time.fetch_burst_last")),
        1,
    ),
    (
        "stores",
        "Wait of a restore when stores use the path as well",
        "stores",
        (
            ("mixed", "time.wait_with_stores"),
            ("restores first", "time.wait_before_stores"),
            ("stores then", "time.store_wait"),
        ),
        1,
    ),
)


def summary_text(table: Table) -> str:
    """Sentences, numbers per tier, curves, and the two transfers that are not reuse."""
    lines = [str(table.about["name"]), "", *(f"* {sentence}" for sentence in sentences(table))]
    lines += at_stated_values(table)
    first = table.select(case=table.rows[0].case)
    for block in (
        _tiers(first),
        _at_rate(first),
        *(_curve(table, *curve) for curve in CURVES),
        _not_reuse(first),
    ):
        lines += ["", *block] if block else []
    flags = dict.fromkeys(flag for row in first for flag in row.flags if not flag.startswith("refused"))
    lines += ["", "Notes", *(f"  {flag}" for flag in flags)] if flags else []
    return "\n".join(lines) + "\n"


def _shown(row: Row, at: int | None = None) -> str:
    value = central(row.value) if at is None else float(np.asarray(row.value)[at])
    if row.quantity.startswith("breakeven.tokens"):
        return "any" if value < 1 else "never" if np.isinf(value) else text(np.ceil(value), row.unit)
    return f"{100 * value:.3g} %" if row.quantity in SHARES else text(value, row.unit)


def _tiers(rows: Table) -> list[str]:
    tiers = [row.tier for row in rows.select(quantity="time.fetch")]
    body = [[tier, *(_shown(rows.select(quantity=q, tier=tier).rows[0]) for _, q in NUMBERS)] for tier in tiers]
    return [
        "Per tier: when the verdict flips, the best split with both at once, and what its copies cost and block",
        *grid(["tier", *(title for title, _ in NUMBERS)], body),
    ]


def _at_rate(rows: Table) -> list[str]:
    """At the study's own rate of sessions, where it could be worked out."""
    tiers = [row.tier for row in rows.select(quantity="load.tier_utilisation")]
    columns = (
        ("path use", "load.tier_utilisation"),
        ("wait", "time.fetch_wait"),
        ("shortest prefix", "breakeven.tokens"),
    )
    body = [
        [
            tier,
            *(_shown(rows.select(quantity=q, tier=tier).rows[0]) for _, q in columns),
            "fetch" if rows.value("breakeven.fetch_wins_at_rate", tier=tier) == 1 else "recompute",
        ]
        for tier in tiers
    ]
    head = ["tier", *(title for title, _ in columns), "verdict"]
    return ["At the study's own rate of sessions, all tiers in use", *grid(head, body)] if body else []


def _curve(
    table: Table, name: str, title: str, head: str, quantities: Sequence[tuple[str, str]], every: int
) -> list[str]:
    """One line per point of a curve; one column per quantity and tier."""
    curve = table.curves[name]
    columns = [(f"{row.tier} {label}".strip(), row) for row in curve for label, q in quantities if row.quantity == q]
    axis = curve.axes[0]
    body = [
        [text(float(x), axis.unit) if axis.unit else number(float(x)), *(_shown(row, i) for _, row in columns)]
        for i, x in enumerate(axis.values)
        if i % every == 0
    ]
    return [title, *grid([head, *(label for label, _ in columns)], body)]


def _not_reuse(rows: Table) -> list[str]:
    return [
        "Not reuse: streaming reads the KV at every token, a hand-off moves it once to other GPUs",
        *_lines([row for row in rows if row.quantity.startswith(("decode.", "handoff."))]),
    ]


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        yield f"  {row.tier + ': ' if row.tier else ''}{text(central(row.value), row.unit)} {row.definition}"
