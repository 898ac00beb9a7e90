"""One long table of results: each number with its unit, its definition and what qualifies it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kvmodel import units

COLUMNS = ("case", "arm", "population", "tier", "quantity", "value", "unit", "definition", "flags")


@dataclass(frozen=True)
class Row:
    """One quantity. Its value is an array over the study's axes (a scalar is the case of none)."""

    quantity: str
    value: Any
    unit: str
    definition: str
    case: str = "base"
    arm: str = ""
    population: str = ""
    tier: str = ""
    flags: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What tells this row from every other."""
        return (self.case, self.arm, self.population, self.tier, self.quantity)


@dataclass(frozen=True)
class Axis:
    """One axis of the study: a sweep of a path, or the draws of its uncertain numbers."""

    name: str
    values: np.ndarray
    unit: str = ""

    @property
    def is_draws(self) -> bool:
        """Whether this axis holds Monte Carlo draws."""
        return self.name == "draw"


@dataclass(frozen=True)
class Table:
    """Rows of one or more cases that share the same axes, in the order in which they were worked out."""

    rows: tuple[Row, ...]
    axes: tuple[Axis, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    """Study name, version, seed, hashes: what is needed to reproduce it."""
    curves: Mapping[str, Table] = field(default_factory=dict)
    """Tables over one more axis for drawing, by name: "capacity:<tier>", "prefix", "survival", "warm_up"."""

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, **wanted: str) -> Table:
        """Rows whose columns equal what is asked for, for example select(quantity="reuse.timely", tier="dram")."""
        return replace(self, rows=tuple(r for r in self.rows if all(getattr(r, k) == v for k, v in wanted.items())))

    def value(self, quantity: str, **wanted: str) -> Any:
        """The one value of a quantity; KeyError says which rows there are when it is not exactly one."""
        found = self.select(quantity=quantity, **wanted).rows
        if len(found) != 1:
            raise KeyError(f"{len(found)} rows of {quantity!r} with {wanted}: {[r.key for r in found][:8]}")
        return found[0].value

    def merge(self, others: Iterable[Table]) -> Table:
        """This table with the rows of others behind it."""
        return replace(self, rows=self.rows + tuple(row for other in others for row in other.rows))

    def to_frame(self) -> Any:
        """pandas DataFrame with one line per row and sweep point; draws become mean, p05, p50 and p95.

        Columns: those of `COLUMNS`, one per swept path, and for draws `p05`, `p50`, `p95` beside the mean in `value`.
        """
        import pandas as pd

        sweeps = [axis for axis in self.axes if not axis.is_draws]
        records = [record for row in self.rows for record in self._records(row, sweeps)]
        quantiles = ["p05", "p50", "p95"] if any(axis.is_draws for axis in self.axes) else []
        return pd.DataFrame(records, columns=[*COLUMNS, *(axis.name for axis in sweeps), *quantiles])

    def _records(self, row: Row, sweeps: Sequence[Axis]) -> Iterator[dict[str, Any]]:
        shape = tuple(len(axis.values) for axis in self.axes)
        value = np.broadcast_to(np.asarray(row.value, float), shape) if shape else np.asarray(row.value, float)
        fixed = {name: getattr(row, name) for name in COLUMNS} | {"flags": "; ".join(row.flags)}
        with_draws = bool(self.axes) and self.axes[-1].is_draws
        for index in np.ndindex(shape[: len(sweeps)]):
            here = {axis.name: axis.values[i] for axis, i in zip(sweeps, index, strict=True)}
            yield fixed | here | summary(value[index], with_draws)

    def to_json(self) -> dict[str, Any]:
        """Plain nested data with stable keys: `about`, `axes`, `rows`; no NaN or infinity (null, "inf")."""
        frame = self.to_frame()
        records = [{k: _json_number(v) for k, v in record.items()} for record in frame.to_dict("records")]
        axes = [
            {
                "name": a.name,
                "unit": a.unit,
                "values": [] if a.is_draws else [_json_number(v) for v in a.values],
                "size": len(a.values),
            }
            for a in self.axes
        ]
        return {"about": dict(self.about), "axes": axes, "rows": records}

    def __repr__(self) -> str:
        cases = dict.fromkeys(row.case for row in self.rows)
        lines = [
            f"kvmodel result: {len(self.rows)} rows, {len(cases)} case(s)"
            + "".join(f", {axis.name} x {len(axis.values)}" for axis in self.axes)
        ]
        for row in self.rows[:40]:
            where = " ".join(part for part in (row.arm, row.population, row.tier) if part)
            mark = " !" if row.flags else ""
            lines.append(f"  {row.quantity:<34} {where:<22} {units.text(central(row.value), row.unit)}{mark}")
        if len(self.rows) > 40:
            lines.append(f"  ... {len(self.rows) - 40} more; to_frame() has all")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return self.to_frame().to_html(index=False, max_rows=200)


def summary(value: np.ndarray, with_draws: bool) -> dict[str, float]:
    """Value at one sweep point: itself, or the mean and quantiles over its draws."""
    if not with_draws:
        return {"value": float(value)}
    known = value[~np.isnan(value)]
    if not known.size:
        return {"value": np.nan, "p05": np.nan, "p50": np.nan, "p95": np.nan}
    # "inverted_cdf" picks a drawn value, so infinite draws stay infinite instead of turning into NaN
    p05, p50, p95 = np.quantile(known, (0.05, 0.5, 0.95), method="inverted_cdf")
    return {"value": float(np.mean(known)), "p05": float(p05), "p50": float(p50), "p95": float(p95)}


def central(value: Any) -> float:
    """The median over all axes: one number to show where there is room for one."""
    known = np.asarray(value, float)
    known = known[~np.isnan(known)]
    return float(np.quantile(known, 0.5, method="inverted_cdf")) if known.size else float("nan")


def _json_number(value: Any) -> Any:
    if value is None or value is True or value is False or not np.issubdtype(type(value), np.floating):
        return value
    if np.isnan(value):
        return None
    return float(value) if np.isfinite(value) else ("inf" if value > 0 else "-inf")
