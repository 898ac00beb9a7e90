"""What would be good enough, held against what came out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kvmodel import units
from kvmodel.errors import KvmodelError, nearest
from kvmodel.results.table import Row, Table

_TARGET = re.compile(r"\s*(>=|<=)\s*(.+?)\s*$")


def parse_target(text: str) -> tuple[str, str]:
    """The comparison and the value text of ">= 5 yr". Raises KvmodelError."""
    match = _TARGET.match(text)
    if not match:
        raise KvmodelError(f"target {text!r} is not of the form '>= value' or '<= value'")
    return match[1], match[2]


def wanted_lifetime(targets: Mapping[str, str]) -> float | None:
    """The lifetime a study asks of its wearing tiers [s], if it asks."""
    text = targets.get("endurance.lifetime")
    return None if text is None else units.parse(parse_target(text)[1], "s")


def target_rows(table: Table, targets: Mapping[str, str], arm: str) -> Iterator[Row]:
    """One row per target and row it applies to: the share of points that meet it, with the target in its flags.

    A target on a quantity that is told per arm is held against `arm`; one told per tier against every tier.
    """
    known = dict.fromkeys(row.quantity for row in table)
    for quantity, text in targets.items():
        sign, value = parse_target(text)
        if quantity not in known:
            raise KvmodelError(f"targets.{quantity}: no such quantity{nearest(quantity, known)}")
        for row in table:
            if row.quantity != quantity or row.arm not in ("", arm) or row.population or (row.arm and row.tier):
                continue
            yield _held(row, sign, value, text)


def _held(row: Row, sign: str, value: str, text: str) -> Row:
    goal = units.parse(value, row.unit)
    met = np.asarray(row.value) >= goal if sign == ">=" else np.asarray(row.value) <= goal
    share = float(np.mean(met))
    verdict = "met" if share == 1 else "missed" if share == 0 else f"met at {share:.0%} of the points"
    return Row("target.met", met.astype(float), "", f"{row.quantity} {text}", row.case, row.arm, row.population, row.tier,
               (verdict,))


def missed(table: Table) -> list[Row]:
    """Targets that fewer than half of the points meet."""
    return [row for row in table if row.quantity == "target.met" and np.mean(np.asarray(row.value, float)) < 0.5]


