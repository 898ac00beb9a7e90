"""Retention of a study: every named choice a case of its own, at the stated values."""

from __future__ import annotations

from kvmodel.analyses import capacity, retention, value
from kvmodel.analyses.plan import tiers_of
from kvmodel.analyses.retention_curves import curves
from kvmodel.analyses.serving import load_of
from kvmodel.analyses.traffic import traffic_of
from kvmodel.results.table import Row, Table
from kvmodel.study.load import LoadedStudy
from kvmodel.study.stated_values import about, stated_cases, table_of


def retention_table(study: LoadedStudy) -> Table:
    """Windows, schedules, session prices, values, pins and prefetches, all tiers in use.

    Its curves are those of the first case. Prices must be given; KvmodelError where the model does not fit.
    """
    rows: list[Row] = []
    drawn: dict[str, Table] = {}
    for name, case in stated_cases(study):
        load = load_of(case, tiers_of(case, "all_tiers"), traffic_of(case, capacity.granularity(case)))
        answers = [*retention.evaluate(case, load), *value.evaluate(case, load)]
        rows += [Row(case=name, **vars(answer)) for answer in answers]
        drawn = drawn or {key: table_of(curve) for key, curve in curves(case, load).items()}
    return Table(tuple(rows), (), about(study), drawn)
