"""Break-even of a study at its stated values: every named choice a case of its own, nothing drawn."""

from __future__ import annotations

from typing import Any

from kvmodel.analyses import breakeven, breakeven_at_rate, breakeven_curves, handoff, streamed_decode
from kvmodel.analyses.capacity import granularity, require_room
from kvmodel.analyses.traffic import traffic_of, typical_turn
from kvmodel.results.table import Row, Table
from kvmodel.study.load import LoadedStudy
from kvmodel.study.stated_values import about, stated_cases, table_of
from kvmodel.system.case import Case


def breakeven_table(study: LoadedStudy, question: breakeven.Question | None = None, link: Any = None) -> Table:
    """Answers of all cases in one table; its curves are those of the first case.

    question: the restore asked about; None: the mean returning turn of the workload, with the limit on TTFT as its
    deadline. link: bandwidth between prefilling and decoding GPUs [B/s], None where it is not known.
    """
    rows: list[Row] = []
    curves: dict[str, Table] = {}
    for name, case in stated_cases(study):
        asked = question or typical_question(case)
        answers = [
            *breakeven.evaluate(case, asked),
            *breakeven_at_rate.evaluate(case, asked),
            *handoff.evaluate(case, asked.prefix + asked.suffix, link),
            *streamed_decode.evaluate(case, asked.prefix + asked.suffix),
        ]
        rows += [Row(case=name, **vars(answer)) for answer in answers]
        curves = curves or {key: table_of(curve) for key, curve in breakeven_curves.curves(case, asked).items()}
    return Table(tuple(rows), (), {**about(study), "model": study.record.model.name}, curves)


def typical_question(case: Case) -> breakeven.Question:
    """The mean returning turn, over all populations: its context with shared prefix, and the tokens it adds."""
    require_room(case)
    prefix, suffix = typical_turn(traffic_of(case, granularity(case)))
    limit = None if case.slo is None else case.slo.ttft.limit
    return breakeven.Question(float(prefix), float(suffix), deadline=limit)
