"""The cases of a study at its stated values: every named choice a case of its own, nothing swept or drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvmodel.analyses import capacity
from kvmodel.analyses.answer import Curve
from kvmodel.results.table import Axis, Row, Table
from kvmodel.study.expand import expand
from kvmodel.study.load import LoadedStudy
from kvmodel.system.case import Case
from kvmodel.version import __version__


def stated_cases(study: LoadedStudy) -> Iterator[tuple[str, Case]]:
    """Name and record of each case. Raises KvmodelError where there is no room for KV."""
    for name, data in expand(study, draws=0).cases.items():
        case = Case.model_validate(data)
        capacity.require_room(case)
        yield name, case


def about(study: LoadedStudy) -> dict[str, Any]:
    """What the result is of; `varied` names the paths that stand at their stated value here."""
    axes = [axis.name for axis in expand(study, draws=0).axes]
    return {
        "name": study.name,
        "version": __version__,
        "scenario": study.scenario,
        "varied": [*axes, *(study.record.uncertain or ())],
    }


def table_of(curve: Curve) -> Table:
    """A curve as a table over its own axis."""
    return Table(tuple(Row(**vars(a)) for a in curve.answers), (Axis(curve.axis, curve.values, curve.unit),))
