"""Evaluate a study: every case, in windows that keep memory bounded, put together into one table."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kvmodel.analyses import capacity
from kvmodel.analyses import plan as plan_analysis
from kvmodel.analyses.curves import curves_of
from kvmodel.results.table import Axis, Row, Table
from kvmodel.results.targets import target_rows, wanted_lifetime
from kvmodel.study.expand import Expansion, expand
from kvmodel.study.load import LoadedStudy
from kvmodel.study.verify import verified
from kvmodel.system.case import Case
from kvmodel.version import __version__

PATHS = 12  # a rate that changes is worked on as about so many
GROUPS = 5  # variants of a nested prefix are worked on in about so many groups, beside each of those before it
POINTS_AT_ONCE = 400  # study points per window; each needs some tens of kilobytes while it is worked on

Progress = Callable[[int, int], None]


def plan(
    study: LoadedStudy,
    scenarios: Sequence[str] = (),
    seed: int | None = None,
    draws: int | None = None,
    progress: Progress | None = None,
    for_drawing: bool = False,
    verify: bool = False,
) -> Table:
    """All results of a study, and of the same study under each of `scenarios`, as one table.

    seed, draws: in place of the study's own (draws=0: uncertain numbers stay at their stated value).
    for_drawing: also work out the curves that only a report shows.
    verify: also simulate every arm at the study's stated values and tell what it finds beside the closed forms.
    progress: called with (windows done, windows in all). Rows of infeasible points carry nan and a reason in flags.
    """
    studies = [study, *(study.with_scenario(name) for name in scenarios)]
    expansions = [expand(s, seed, draws) for s in studies]
    rows: list[Row] = []
    windows = [(s, e, name) for s, e in zip(studies, expansions, strict=True) for name in e.cases]
    total, done = sum(len(list(_windows(e, name))) for _, e, name in windows), itertools.count(1)

    def tick() -> None:
        step = next(done)
        if progress is not None:
            progress(step, total)

    for s, e, name in windows:
        rows += _case_rows(s, e, name, tick)
    if verify:
        rows += _verified(study)
    table = Table(tuple(rows), expansions[0].axes, _about(study, scenarios, seed, draws), _curves(study, for_drawing))
    return replace(table, rows=table.rows + tuple(target_rows(table, study.record.targets, study.record.compare[-1])))


def _curves(study: LoadedStudy, for_drawing: bool) -> dict[str, Table]:
    """Curves of the study at its stated values, nothing swept or drawn; none where the model does not fit."""
    case = Case.model_validate(study.case_data)
    if not np.all(capacity.hbm_pool(case).fits):
        return {}
    return {
        name: Table(
            tuple(Row(**vars(answer)) for answer in curve.answers), (Axis(curve.axis, curve.values, curve.unit),)
        )
        for name, curve in curves_of(case, study.record.compare[-1], for_drawing).items()
    }


def _verified(study: LoadedStudy) -> list[Row]:
    """Closed form and simulation of every arm, at the stated values."""
    case = Case.model_validate(study.case_data)
    if not np.all(capacity.hbm_pool(case).fits):
        return []
    return [
        Row(case=study.scenario, **vars(answer))
        for arm in study.record.compare
        for answer in verified(case, plan_analysis.tiers_of(case, arm), arm)
    ]


def _case_rows(study: LoadedStudy, expansion: Expansion, name: str, tick: Callable[[], None]) -> list[Row]:
    """Rows of one case over all axes, window by window."""
    target = wanted_lifetime(study.record.targets)
    parts: list[tuple[Mapping[int, slice], list[Row]]] = []
    for window in _windows(expansion, name):
        case = expansion.case(name, window)
        answers = plan_analysis.evaluate(case, study.record.compare, target)
        parts.append((window, [Row(case=name, **vars(answer)) for answer in answers]))
        tick()
    return _joined(parts, expansion.axes)


def _windows(expansion: Expansion, name: str) -> Iterator[dict[int, slice]]:
    """Windows over the first and the last axis, about POINTS_AT_ONCE points each at most; fewer where prefixes nest
    or rates change.

    Prices enter at the very end: an axis that holds nothing else costs next to nothing and is not cut.
    """
    sizes = [len(axis.values) for axis in expansion.axes]
    heavy = [
        any(axis == i and not path.startswith("prices.") for path, (axis, _) in expansion.arrays.items())
        for i in range(len(sizes))
    ]
    weights = [size if counts else 1 for size, counts in zip(sizes, heavy, strict=True)]
    cuts: dict[int, list[slice]] = {}
    each = GROUPS ** _nesting(expansion.cases[name]) * (PATHS if _varies(expansion.cases[name]) else 1)
    room = max(1, POINTS_AT_ONCE // (int(np.prod(weights[1:-1])) * each))
    for axis in dict.fromkeys((len(sizes) - 1, 0)) if sizes else ():
        if heavy[axis]:
            step = min(sizes[axis], room)
            cuts[axis] = _slices(sizes[axis], step)
            room = max(1, room // step)
    for combination in itertools.product(*cuts.values()):
        yield dict(zip(cuts, combination, strict=True))


def _varies(case: Mapping[str, Any]) -> bool:
    """Whether some population's rate changes over time."""
    return any(population.get("day") or population.get("bursts") for population in case["workload"].values())


def _nesting(case: Mapping[str, Any]) -> int:
    """Shared prefixes that lie under others, at most so many one below the other."""
    under = {name: population["under"] for name, population in case["workload"].items() if population.get("under")}
    depths = [0]
    for name in under:
        depth = 0
        while name in under:
            name, depth = under[name], depth + 1
        depths.append(depth)
    return max(depths)


def _slices(size: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


def _joined(parts: list[tuple[Mapping[int, slice], list[Row]]], axes: Sequence[Axis]) -> list[Row]:
    """Rows of all windows put side by side. A row that does not depend on a cut axis keeps its small shape."""
    if len(parts) == 1:
        return parts[0][1]
    shape = tuple(len(axis.values) for axis in axes)
    by_key: dict[tuple, list[tuple[Mapping[int, slice], Row]]] = {}
    for window, rows in parts:
        for row in rows:
            by_key.setdefault(row.key, []).append((window, row))
    joined = []
    for found in by_key.values():
        values = [_aligned(row.value, len(shape)) for _, row in found]
        depends = [
            any(v.shape[axis] > 1 for v in values) or (axis in found[0][0] and not _constant(values))
            for axis in range(len(shape))
        ]
        whole = np.full([n if d else 1 for n, d in zip(shape, depends, strict=True)], np.nan)
        for (window, _), value in zip(found, values, strict=True):
            place = tuple(window.get(axis, slice(None)) if d else slice(None) for axis, d in enumerate(depends))
            whole[place] = value
        flags = tuple(dict.fromkeys(flag for _, row in found for flag in row.flags))
        joined.append(replace(found[0][1], value=whole, flags=flags))
    return joined


def _aligned(value: Any, ndim: int) -> np.ndarray:
    value = np.asarray(value, float)
    return value.reshape((1,) * (ndim - value.ndim) + value.shape)


def _constant(values: list[np.ndarray]) -> bool:
    """Whether all windows saw one value (windows of one point hide the axis they cut)."""
    return all(np.array_equal(v, values[0], equal_nan=True) for v in values[1:])


def _about(study: LoadedStudy, scenarios: Sequence[str], seed: int | None, draws: int | None) -> dict[str, Any]:
    record = study.record
    text = json.dumps(study.data, sort_keys=True, default=str)
    return {
        "name": record.name,
        "study": study.source.name,
        "study_sha256": hashlib.sha256(text.encode()).hexdigest()[:16],
        "kvmodel": __version__,
        "seed": record.monte_carlo.seed if seed is None else seed,
        "draws": (record.monte_carlo.draws if draws is None else draws) if record.uncertain else 0,
        "scenarios": list(scenarios),
        "overrides": {path: str(value) for path, value in study.overrides.items()},
        "arms": list(record.compare),
        "tiers": list(record.tiers),
    }
