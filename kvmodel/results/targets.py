"""What would be good enough, held against what came out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from kvmodel import units
from kvmodel.errors import nearest
from kvmodel.results.table import Row, Table

_TARGET = re.compile(r"\s*(>=|<=)\s*(.+?)\s*$")


UNTOLD = "missed: the plan does not tell it (the model does not fit, or limits or a tier are not given)"


def parse_target(quantity: str, text: str, known: Mapping[str, str]) -> tuple[str, float]:
    """The comparison and the value in base units of a target such as ">= 5 yr".

    known: quantity -> dimension. Raises ValueError that says what is wrong and what is allowed.
    """
    if quantity not in known:
        raise ValueError(f"no such quantity{nearest(quantity, known)}")
    match = _TARGET.match(text)
    if not match:
        raise ValueError(f"{text!r} is not of the form '>= value' or '<= value'")
    return match[1], units.parse(match[2], known[quantity])


def wanted_lifetime(targets: Mapping[str, str]) -> float | None:
    """The lifetime a study asks of its wearing tiers [s], if it asks."""
    text = targets.get("endurance.lifetime")
    return None if text is None else parse_target("endurance.lifetime", text, {"endurance.lifetime": "s"})[1]


def target_rows(table: Table, targets: Mapping[str, str], arm: str) -> Iterator[Row]:
    """One row per case, target and row it applies to: the points that meet it, with the verdict in its flags.

    A target on a quantity that is told per arm is held against the whole of `arm`, else against every tier or every
    population it is told of. A quantity that no row of a case tells is missed there.
    """
    for case in dict.fromkeys(row.case for row in table):
        rows = table.select(case=case)
        told = {row.quantity: row.unit for row in rows}
        for quantity, text in targets.items():
            if quantity not in told:
                yield Row("target.met", np.zeros(()), "", f"{quantity} {text}", case, arm, flags=(UNTOLD,))
                continue
            sign, goal = parse_target(quantity, text, told)
            for row in _aimed_at(rows.select(quantity=quantity).rows, arm):
                yield _held(row, sign, goal, text)


def _aimed_at(rows: Sequence[Row], arm: str) -> Sequence[Row]:
    of_arm = [row for row in rows if row.arm == arm] or [row for row in rows if not row.arm]
    return [row for row in of_arm if not (row.tier or row.population)] or of_arm


def _held(row: Row, sign: str, goal: float, text: str) -> Row:
    value = np.asarray(row.value, float)
    met = (value >= goal if sign == ">=" else value <= goal) & ~np.isnan(value)
    share = float(np.mean(met))
    verdict = "met" if share == 1 else "missed" if share == 0 else f"met at {share:.0%} of the points"
    return Row(
        "target.met",
        met.astype(float),
        "",
        f"{row.quantity} {text}",
        row.case,
        row.arm,
        row.population,
        row.tier,
        (verdict,),
    )


def missed(table: Table) -> list[Row]:
    """Targets that half of the points or more miss."""
    return [row for row in table if row.quantity == "target.met" and np.mean(np.asarray(row.value, float)) <= 0.5]
