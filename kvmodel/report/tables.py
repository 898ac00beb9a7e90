"""The tables of a report: what the result table and the study hold, arranged to be read. Nothing is worked out here."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kvmodel.report.parameters import Parameter, parameters
from kvmodel.results.shown import MISSING, Cell, between, cases, cell, names, number, one
from kvmodel.results.table import Row, Table, central
from kvmodel.study.load import LoadedStudy
from kvmodel.study.resolve import Provenance, get_path
from kvmodel.tiers import SPEED_ORDER

ASSUMED = frozenset(
    {  # numbers that are choices or deratings, whoever states them
        "reserve",
        "mfu",
        "bandwidth_efficiency",
        "efficiency",
        "memory_fraction",
        "headroom",
        "hidden",
        "constant",
        "launch_floor",
        "storage_amplification",
        "spare",
        "amplification",
        "amortization",
        "power_usage_effectiveness",
    }
)
ARM_COLUMNS = (
    ("effective reuse", "reuse.timely"),
    ("prefill use", "latency.prefill_utilisation"),
    ("TTFT mean", "latency.ttft_mean"),
    ("turns within TTFT", "latency.ttft_in_time"),
    ("turns within TPOT", "latency.tpot_in_time"),
    ("largest session rate", "goodput.largest_session_rate"),
    ("qualified sessions", "goodput.qualified_sessions_per_second"),
    ("cost", "cost.rate"),
    ("per qualified session", "cost.per_qualified_session"),
)
TIER_COLUMNS = (
    ("capacity", "capacity.bytes"),
    ("holds", "capacity.tokens"),
    ("found here", "reuse.resident"),
    ("served in time", "reuse.timely"),
    ("fetch", "time.fetch"),
    ("recompute", "time.recompute"),
    ("worth fetching from", "breakeven.tokens"),
    ("use of its path", "load.tier_utilisation"),
    ("knee", "knee.capacity"),
    ("writes per day", "endurance.daily_writes"),
    ("drive writes per day", "endurance.drive_writes_per_day"),
    ("lifetime", "endurance.lifetime"),
    ("cost", "cost.rate"),
)
CHAIN_COLUMNS = (("ceiling", "reuse.ceiling"), ("resident", "reuse.resident"), ("timely", "reuse.timely"))


@dataclass(frozen=True)
class Grid:
    """A table to be read: its title, heads and cells; the first column names the row."""

    title: str
    head: Sequence[str]
    body: Sequence[Sequence[Cell]]
    note: str = ""
    numeric: bool = True


def _by_case(table: Table, rows_of: Callable[[Table], Iterator[Sequence[Cell]]]) -> list[Sequence[Cell]]:
    """Rows of every case, each with the name of its case below its own where there are several."""
    several = len(cases(table)) > 1
    body: list[Sequence[Cell]] = []
    for case in cases(table):
        for first, *rest in rows_of(table.select(case=case)):
            body.append([Cell(first.text, case if several else ""), *rest])
    return body


def _filled(grid: Grid) -> Grid:
    """The table without columns in which nothing stands."""
    kept = [k for k in range(len(grid.head)) if any(row[k].text != MISSING for row in grid.body)]
    return replace(grid, head=[grid.head[k] for k in kept], body=[[row[k] for k in kept] for row in grid.body])


def arms(table: Table) -> Grid:
    """One row per arm and case."""

    def rows_of(rows: Table) -> Iterator[Sequence[Cell]]:
        for arm in names(rows, "arm", "reuse.timely"):
            bound = one(rows, "goodput.largest_session_rate", arm=arm)
            limit = bound.flags[0].removeprefix("bound by: ") if bound is not None and bound.flags else MISSING
            yield [Cell(arm), *(cell(one(rows, quantity, arm=arm)) for _, quantity in ARM_COLUMNS), Cell(limit)]

    return _filled(
        Grid(
            "Arms: the same GPUs and limits, with and without lower tiers",
            ("arm", *(title for title, _ in ARM_COLUMNS), "bound by"),
            _by_case(table, rows_of),
            "Effective reuse is a share of all prompt tokens. TTFT, prefill use and turns within limits are at the "
            "study's rate of sessions; qualified sessions and cost are at each arm's own best rate.",
        )
    )


def tiers(table: Table) -> Grid:
    """One row per tier and case, fast to slow, for the last arm."""

    def rows_of(rows: Table) -> Iterator[Sequence[Cell]]:
        for tier in names(rows, "tier", "capacity.bytes"):
            yield [Cell(tier), *(_tier_cell(table, rows, quantity, tier) for _, quantity in TIER_COLUMNS)]

    typical = one(table.select(case=table.rows[0].case), "time.typical_prefix") if len(table) else None
    prefix = f" ({cell(typical).text})" if typical is not None else ""
    return _filled(
        Grid(
            "Tiers, fast to slow",
            ("tier", *(title for title, _ in TIER_COLUMNS)),
            _by_case(table, rows_of),
            "Found and served are shares of all prompt tokens. Fetch and recompute are of the typical returning prefix"
            f"{prefix}, the fetch on an idle path; 'worth fetching from' counts the mean wait at the study's rate. "
            "Knee: capacity beyond which the prefill time another byte saves at the study's rate is not worth its "
            "rent, below it the range for 20 % more or less rent.",
        )
    )


def _tier_cell(table: Table, rows: Table, quantity: str, tier: str) -> Cell:
    if quantity == "knee.capacity":  # curves are those of the first case
        return _knee(table, tier) if rows.rows[0].case == table.rows[0].case else Cell(MISSING)
    if quantity == "time.recompute":  # the same for every tier that is fetched from
        return cell(one(rows, quantity) if one(rows, "time.fetch", tier=tier) is not None else None)
    return cell(one(rows, quantity, tier=tier, arm=_last_arm(table) if quantity.startswith("reuse.") else ""))


def _knee(table: Table, tier: str) -> Cell:
    curve = table.curves.get(f"capacity:{tier}")
    knee, low, high = (
        one(curve, f"knee.{name}", tier=tier) if curve is not None else None for name in ("capacity", "low", "high")
    )
    if knee is None or np.isnan(knee.value):
        return Cell(MISSING)
    around = "" if low is None or high is None else between(float(low.value), float(high.value), "B")
    return Cell(number(float(knee.value), "B"), around)


def _last_arm(table: Table) -> str:
    found = list(table.about.get("arms", [])) or names(table, "arm", "reuse.timely")
    return found[-1] if found else ""


def chain(table: Table) -> Grid:
    """Ceiling, resident, timely of the last arm, in all and by population."""
    arm = _last_arm(table)

    def rows_of(rows: Table) -> Iterator[Sequence[Cell]]:
        for name in ["", *names(rows.select(arm=arm), "population", "reuse.ceiling")]:
            steps = [cell(one(rows, quantity, arm=arm, population=name)) for _, quantity in CHAIN_COLUMNS]
            if any(step.text != MISSING for step in steps):
                yield [Cell(name or "all"), *steps, cell(one(rows, "reuse.kept", arm=arm, population=name))]

    return Grid(
        f"Reuse of {arm}: ceiling, resident, timely",
        ("population", *(title for title, _ in CHAIN_COLUMNS), "kept of its own"),
        _by_case(table, rows_of),
        "Shares of all prompt tokens. Ceiling: computed before by someone who may share it. Resident: still "
        "found in some tier. Timely: consumable in time and sooner than recomputed. Kept: share of the "
        "population's own reusable tokens that is resident.",
    )


def retention(table: Table) -> Grid:
    """How long a paused context of each population is worth its rent, by tier."""
    tiers_told = names(table, "tier", "retention.window")

    def rows_of(rows: Table) -> Iterator[Sequence[Cell]]:
        for name in names(rows, "population", "retention.window"):
            yield [
                Cell(name),
                *(cell(one(rows, "retention.window", population=name, tier=tier)) for tier in tiers_told),
            ]

    return Grid(
        "Retention: how long a paused context is worth its rent",
        ("population", *tiers_told),
        _by_case(table, rows_of),
        "Time after the last use at which another second costs more rent than it is "
        "likely to save. 0: drop it at once; ∞: never drop it.",
    )


def workload(table: Table) -> Grid:
    """Sizes and populations; of further cases only what differs from the first."""
    prefixes = ("size.", "workload.", "working_set.")
    first = {row.key[1:]: cell(row) for row in table.select(case=cases(table)[0])} if len(table) else {}

    def rows_of(rows: Table) -> Iterator[Sequence[Cell]]:
        for row in rows:
            differs = row.case == table.rows[0].case or first.get(row.key[1:]) != cell(row)
            if row.quantity.startswith(prefixes) and differs:
                yield [
                    Cell(f"{row.quantity}{' [' + row.population + ']' if row.population else ''}"),
                    cell(row),
                    Cell(row.definition),
                ]

    return Grid("Sizes and workload", ("quantity", "value", "definition"), _by_case(table, rows_of), numeric=False)


def targets(table: Table) -> list[tuple[str, str, str]]:
    """What would be good enough: (verdict, target, where)."""
    several = len(cases(table)) > 1
    return [
        (
            row.flags[0] if row.flags else "",
            row.definition,
            " ".join(part for part in (row.tier or row.arm, f"in {row.case}" if several else "") if part),
        )
        for row in table.select(quantity="target.met")
    ]


def flags(table: Table) -> Grid:
    """Every flag of the table and its curves once, with what it qualifies."""
    where: dict[str, list[str]] = {}
    for part in (table, *table.curves.values()):
        for row in part:
            for flag in row.flags:
                if row.quantity != "target.met" and not flag.startswith("bound by: "):  # stand with targets and arms
                    place = " ".join(name for name in (row.arm, row.population, row.tier) if name)
                    where.setdefault(flag, []).append(f"{row.quantity}{' [' + place + ']' if place else ''}")
    body = [[Cell(flag), Cell(", ".join(dict.fromkeys(rows)))] for flag, rows in where.items()]
    return Grid("What qualifies these numbers", ("assumption or warning", "applies to"), body, numeric=False)


def assumptions(study: LoadedStudy) -> Grid:
    """Deratings, reserves and choices of the study, and whatever else rests on an assumption, with their basis."""
    prices_of_absent_tiers = {f"prices.{kind}" for kind in SPEED_ORDER} - {
        f"prices.{tier.kind}" for tier in study.record.tiers.values()
    }
    body = []
    for parameter in parameters(study.record):
        if parameter.path in prices_of_absent_tiers:
            continue
        known = study.provenance.get(parameter.path)
        if parameter.path.rsplit(".", 1)[-1] in ASSUMED or (known is not None and known.basis == "assumed"):
            value = _parameter_text(parameter) if known is None else _short(get_path(study.data, parameter.path))
            body.append(
                [
                    Cell(parameter.path),
                    Cell(value),
                    Cell(_origin(known, with_basis=True)),
                    Cell((known and known.note) or parameter.meaning),
                ]
            )
    return Grid("Assumptions of the study", ("number", "value", "basis", "meaning"), body, numeric=False)


def _parameter_text(parameter: Parameter) -> str:
    low, high = float(np.min(parameter.value)), float(np.max(parameter.value))
    return number(low, parameter.dimension) if low == high else between(low, high, parameter.dimension)


def _origin(known: Provenance | None, with_basis: bool = False) -> str:
    """Where a number comes from, in a few words."""
    if known is None:
        return "default of kvmodel"
    if known.origin == "preset":
        return (f"{known.basis}, " if with_basis and known.basis else "") + f"preset {known.name}"
    if known.origin == "study":
        return f"study, line {known.line}" if known.line else "study"
    return "--set" if known.origin == "set" else f"{known.origin} {known.name or ''}".strip()


def provenance(study: LoadedStudy) -> Grid:
    """Every number and name of the resolved study with its source."""
    body = []
    for path, known in study.provenance.items():
        place = "; ".join(part for part in (known.url, known.note) if part)
        value = _short(get_path(study.data, path))
        body.append(
            [
                Cell(path),
                Cell(value),
                Cell(_origin(known)),
                Cell(known.basis or ""),
                Cell(known.date or ""),
                Cell(known.source or "", place),
            ]
        )
    return Grid(
        "Provenance",
        ("path", "value", "origin", "basis", "date", "source"),
        body,
        "What the study file, its presets and overrides say, and who says so.",
        numeric=False,
    )


def _short(value: Any) -> str:
    if isinstance(value, list):
        return _short(", ".join(_short(item) for item in value))
    text = f"{value:.10g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 120 else text[:117] + "..."


def all_rows(table: Table) -> Grid:
    """The whole result table, a line per row."""
    several = len(cases(table)) > 1
    head = (
        "quantity",
        *(("case",) if several else ()),
        "arm",
        "population",
        "tier",
        "value",
        "median in base units",
        "definition",
        "flags",
    )
    body = [
        [
            Cell(r.quantity),
            *([Cell(r.case)] if several else []),
            Cell(r.arm),
            Cell(r.population),
            Cell(r.tier),
            cell(r),
            Cell(base_value(r)),
            Cell(r.definition),
            Cell("; ".join(r.flags)),
        ]
        for r in table
    ]
    return Grid("All results", head, body, numeric=False)


def base_value(row: Row) -> str:
    """Median of a row in base units, six digits."""
    return f"{central(row.value):.6g} {row.unit}".strip()


def curve_numbers(curve: Table) -> Grid:
    """The points of a curve."""
    (axis,) = curve.axes
    rows = [row for row in curve if np.ndim(row.value)]
    head = (axis.name, *(f"{row.quantity}{' [' + row.tier + ']' if row.tier else ''}" for row in rows))
    body = [
        [
            Cell(number(float(x), axis.unit)),
            *(Cell(number(float(row.value[i]), row.unit, row.quantity)) for row in rows),
        ]
        for i, x in enumerate(axis.values)
    ]
    return Grid("Numbers of these curves", head, body)


def command(study: LoadedStudy, table: Table) -> str:
    """The command that gives this page again."""
    about = table.about
    words = ["kvmodel", "plan", str(about.get("study", study.source.name))]
    for path, value in about.get("overrides", {}).items():
        words += ["--set", f"{path}={value}"]
    for name in about.get("scenarios", []):
        words += ["--scenario", name]
    if study.record.uncertain:
        words += ["--seed", str(about.get("seed"))]
        if about.get("draws") != study.record.monte_carlo.draws:
            words += ["--draws", str(about.get("draws"))]
    return " ".join(shlex.quote(word) for word in [*words, "--report", "report.html"])
