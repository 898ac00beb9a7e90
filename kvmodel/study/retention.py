"""Retention of a study: every named choice a case of its own, at the stated values."""

from __future__ import annotations

from kvmodel.analyses import capacity, retention, value
from kvmodel.analyses.plan import tiers_of
from kvmodel.analyses.retention_curves import curves
from kvmodel.analyses.serving import load_of
from kvmodel.analyses.traffic import traffic_of
from kvmodel.results.table import Axis, Row, Table
from kvmodel.study.expand import expand
from kvmodel.study.load import LoadedStudy
from kvmodel.system.case import Case
from kvmodel.version import __version__


def retention_table(study: LoadedStudy) -> Table:
    """Windows, schedules, session prices, values, pins and prefetches, all tiers in use.

    Its curves are those of the first case. Prices must be given; KvmodelError where the model does not fit.
    """
    rows: list[Row] = []
    drawn: dict[str, Table] = {}
    for name, data in expand(study, draws=0).cases.items():
        case = Case.model_validate(data)
        capacity.require_room(case)
        load = load_of(case, tiers_of(case, "all_tiers"), traffic_of(case, capacity.granularity(case)))
        answers = [*retention.evaluate(case, load), *value.evaluate(case, load)]
        rows += [Row(case=name, **vars(answer)) for answer in answers]
        drawn = drawn or {
            key: Table(tuple(Row(**vars(a)) for a in curve.answers), (Axis(curve.axis, curve.values, curve.unit),))
            for key, curve in curves(case, load).items()
        }
    about = {"name": study.name, "version": __version__, "scenario": study.scenario}
    return Table(tuple(rows), (), about, drawn)
