"""Writes and effective reuse over the rule of admission, for drawing.

Question answered: how do the writes of a tier, its life and the effective reuse move with the rule?
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvmodel.analyses.admission import MOST_USES, flows, with_rule
from kvmodel.analyses.admitted import under_rule
from kvmodel.analyses.amplification import amplification_of, rating_of
from kvmodel.analyses.answer import Answer, Curve
from kvmodel.analyses.endurance import host_bytes, wearing_tiers
from kvmodel.analyses.serving import Load, load_of
from kvmodel.formulas import endurance
from kvmodel.policies.admission import Admission
from kvmodel.system.case import Case
from kvmodel.units import number, text

PROBABILITIES = np.concatenate([[0.01, 0.02, 0.05], np.linspace(0.1, 1.0, 10)])
LENGTHS = np.geomspace(1 / 16, 16, 33)  # times the mean context that returns


def curves(case: Case, load: Load) -> dict[str, Curve]:
    """Per wearing tier of a case whose numbers are all single: over the coin, the uses and the shortest context."""
    found = {}
    mean = float(max(t.context.mean + t.prefix_tokens for t in load.traffic))
    uses, lengths = np.arange(1.0, MOST_USES + 1), LENGTHS * mean
    rules = {
        "probability": (PROBABILITIES, "", Admission(probability=PROBABILITIES)),
        "uses": (uses, "", Admission(uses=uses)),
        "minimum_tokens": (lengths, "token", Admission(minimum_tokens=lengths)),
    }
    for axis, (values, unit, rule) in rules.items():
        widened = with_rule(case, rule)
        under = load_of(widened, load.tiers, load.traffic)
        for tier in wearing_tiers(case):
            if tier in load.tiers:
                found[f"{axis}:{tier}"] = _curve(widened, under, tier, axis, values, unit)
    return found


def _curve(case: Case, load: Load, tier: str, axis: str, values: np.ndarray, unit: str) -> Curve:
    rule = under_rule(case.policy.admission, load.traffic)
    record = wearing_tiers(case)[tier]
    written = flows(case, load, tier, rule, rule)
    rate: Any = host_bytes(case, load, tier, written)
    found = amplification_of(case, load, tier, written)
    life = endurance.lifetime(rate / record.count, rating_of(record, tier), found.rated, found.ours)
    return Curve(
        axis,
        values,
        unit,
        (
            Answer("endurance.write_rate", rate, "B/s", "host bytes written per second, all drives", tier=tier),
            Answer("endurance.lifetime", life, "s", "time until the rated wear is used up", tier=tier),
            Answer(
                "reuse.timely",
                load.effective_reuse,
                "",
                "effective reuse, share of prompt tokens",
                tier=tier,
                flags=_overloaded(load, values, unit),
            ),
        ),
    )


def _overloaded(load: Load, values: np.ndarray, unit: str) -> tuple[str, ...]:
    """Where the curve bends because what is refused has to be computed again."""
    crowded = values[~np.broadcast_to(load.room, values.shape)]
    if not crowded.size:
        return ()
    low, high = (text(end, unit) if unit else number(end) for end in (crowded.min(), crowded.max()))
    return (
        f"overloaded from {low} to {high}: what is refused is computed again, and the contexts being generated leave "
        "paused ones no room in the GPUs' memory",
    )
