"""Endurance of a study: every named choice a case of its own, at the stated values."""

from __future__ import annotations

from kvmodel.analyses import capacity, endurance, endurance_curves
from kvmodel.analyses.plan import tiers_of
from kvmodel.analyses.serving import load_of
from kvmodel.analyses.traffic import traffic_of
from kvmodel.errors import KvmodelError
from kvmodel.results.table import Row, Table
from kvmodel.results.targets import wanted_lifetime
from kvmodel.study.load import LoadedStudy
from kvmodel.study.stated_values import about, stated_cases, table_of


def endurance_table(study: LoadedStudy) -> Table:
    """Writes, amplification, lifetime, budget and rules of admission of all wearing tiers, all tiers in use.

    Its curves are those of the first case. Raises KvmodelError where no tier wears.
    """
    rows: list[Row] = []
    curves: dict[str, Table] = {}
    target = wanted_lifetime(study.record.targets)
    for name, case in stated_cases(study):
        if not endurance.wearing_tiers(case):
            raise KvmodelError(
                f"{study.source.name}: none of the tiers {', '.join(case.tiers)} wears; a tier of kind nvme does"
            )
        load = load_of(case, tiers_of(case, "all_tiers"), traffic_of(case, capacity.granularity(case)))
        rows += [Row(case=name, **vars(answer)) for answer in endurance.evaluate(case, load, target)]
        if not curves:
            curves = {key: table_of(curve) for key, curve in endurance_curves.curves(case, load).items()}
    wanted = endurance.DEFAULT_TARGET if target is None else target
    return Table(tuple(rows), (), {**about(study), "target_lifetime": wanted}, curves)
