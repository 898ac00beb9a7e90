"""Break-even of a study at its stated values: every named choice a case of its own, nothing drawn."""

from __future__ import annotations

from typing import Any

from kvmodel.analyses import breakeven, breakeven_at_rate, breakeven_curves, handoff, streamed_decode
from kvmodel.analyses.answer import Curve
from kvmodel.analyses.capacity import granularity, require_room
from kvmodel.analyses.traffic import traffic_of, typical_turn
from kvmodel.results.table import Axis, Row, Table
from kvmodel.study.expand import expand
from kvmodel.study.load import LoadedStudy
from kvmodel.system.case import Case
from kvmodel.version import __version__


def breakeven_table(study: LoadedStudy, question: breakeven.Question | None = None, link: Any = None) -> Table:
    """Answers of all cases in one table; its curves are those of the first case.

    question: the restore asked about; None: the mean returning turn of the workload, with the limit on TTFT as its
    deadline. link: bandwidth between prefilling and decoding GPUs [B/s], None where it is not known.
    """
    rows: list[Row] = []
    curves: dict[str, Table] = {}
    for name, data in expand(study, draws=0).cases.items():
        case = Case.model_validate(data)
        require_room(case)
        asked = question or typical_question(case)
        answers = [
            *breakeven.evaluate(case, asked),
            *breakeven_at_rate.evaluate(case, asked),
            *handoff.evaluate(case, asked.prefix + asked.suffix, link),
            *streamed_decode.evaluate(case, asked.prefix + asked.suffix),
        ]
        rows += [Row(case=name, **vars(answer)) for answer in answers]
        curves = curves or {key: _table(curve) for key, curve in breakeven_curves.curves(case, asked).items()}
    about = {"name": study.name, "version": __version__, "scenario": study.scenario, "model": study.record.model.name}
    return Table(tuple(rows), (), about, curves)


def typical_question(case: Case) -> breakeven.Question:
    """The mean returning turn, over all populations: its context with shared prefix, and the tokens it adds."""
    prefix, suffix = typical_turn(traffic_of(case, granularity(case)))
    limit = None if case.slo is None else case.slo.ttft.limit
    return breakeven.Question(float(prefix), float(suffix), deadline=limit)


def _table(curve: Curve) -> Table:
    return Table(tuple(Row(**vars(a)) for a in curve.answers), (Axis(curve.axis, curve.values, curve.unit),))
