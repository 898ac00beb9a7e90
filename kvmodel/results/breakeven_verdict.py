"""Fetch or recompute, in one sentence per tier: the times, the threshold, and what flips it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil, inf, isinf

from kvmodel.results.table import Table, central
from kvmodel.units import text

UNSURE = " Prefill is predicted from an assumed efficiency, and a factor of two would turn this verdict."


def sentences(table: Table) -> Iterator[str]:
    """One line per case and storage tier."""
    cases = list(dict.fromkeys(row.case for row in table))
    for case in cases:
        rows = table.select(case=case)
        for row in rows.select(quantity="breakeven.fetch_wins"):
            unsure = "" if rows.value("breakeven.sure", tier=row.tier) == 1 else UNSURE
            yield (f"[{case}] " if len(cases) > 1 else "") + _sentence(rows, row.tier) + unsure


def _sentence(rows: Table, tier: str) -> str:
    def shown(quantity: str, **where: str) -> str:
        (row,) = rows.select(quantity=quantity, **where).rows
        return text(central(row.value), row.unit)

    def tell(quantity: str) -> float:
        return central(rows.value(quantity, tier=tier))

    prefix, recompute = shown("breakeven.prefix"), shown("time.recompute")
    fetch, path, least = (shown(q, tier=tier) for q in ("time.fetch", "time.path_bandwidth", "breakeven.bandwidth"))
    if tell("breakeven.fetch_wins") == 1:
        ahead = tell("breakeven.queue_restores")
        return (
            f"{tier}: fetch. {prefix} take {fetch} to fetch against {recompute} to recompute; worth it {_from(tell)}, "
            f"down to {least} of the path's {path}, up to "
            f"{100 * tell('breakeven.utilisation'):.3g} % use of it or {ahead:,.0f} such restores ahead."
        )
    needed = (
        "no bandwidth would do: the fixed cost alone is longer"
        if tell("breakeven.bandwidth") == inf
        else f"the path gives {path}, at least {least} would pay"
    )
    return (
        f"{tier}: recompute. {prefix} take {fetch} to fetch against {recompute} to recompute; {needed}; on this path "
        f"it is worth it {_from(tell)}."
    )


def _from(tell: Callable[[str], float]) -> str:
    tokens = tell("breakeven.tokens_idle")
    return (
        "at no length" if isinf(tokens) else "at any length" if tokens < 1 else f"from {text(ceil(tokens), 'token')} on"
    )
