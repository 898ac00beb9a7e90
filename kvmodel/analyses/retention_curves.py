"""Cost of a stay over the retention window, for drawing.

Question answered: how flat is the optimum, and what does a window that is too short or too long cost?
"""

from __future__ import annotations

import numpy as np

from kvmodel.analyses.answer import Answer, Curve
from kvmodel.analyses.retention import stays_of
from kvmodel.analyses.serving import Load
from kvmodel.formulas import retention
from kvmodel.system.case import Case
from kvmodel.units import DAY

WINDOWS = np.concatenate([[0.0], np.geomspace(1.0, 30 * DAY, 97)])


def curves(case: Case, load: Load) -> dict[str, Curve]:
    """Per population of a case whose numbers are all single, one line per tier: expected cost of a stay."""
    found = {}
    for t in load.traffic:
        *stays, dropped = stays_of(case, load, t)
        rows = [
            Answer(
                "retention.cost_per_stay",
                retention.retention_cost(
                    WINDOWS,
                    t.sessions.gap_law,
                    stay.rent,
                    np.maximum(dropped.return_cost - stay.return_cost, 0.0),
                    t.returning,
                )
                + t.returning * np.minimum(stay.return_cost, dropped.return_cost),
                "USD",
                "rent, fetches and recomputes of one stay kept so long",
                population=t.name,
                tier=stay.place,
            )
            for stay in stays
        ]
        rows.append(
            Answer(
                "retention.returns_within",
                t.sessions.gap_law.cdf(WINDOWS),
                "",
                "returns that come within it",
                population=t.name,
            )
        )
        found[f"window:{t.name}"] = Curve("window", WINDOWS, "s", tuple(rows))
    return found
