"""Writes and effective reuse over the rule of admission, for drawing.

Question answered: how do the writes of a tier, its life and the effective reuse move with the rule?
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kvmodel.analyses.admission import MOST_USES, everything, flows, timely_under
from kvmodel.analyses.admitted import Admitted, after_uses, beyond_length, under_rule
from kvmodel.analyses.amplification import amplification_of, rating_of
from kvmodel.analyses.answer import Answer, Curve
from kvmodel.analyses.endurance import host_bytes, wearing_tiers
from kvmodel.analyses.serving import Load, load_of
from kvmodel.formulas import endurance
from kvmodel.policies.admission import Admission
from kvmodel.system.case import Case

PROBABILITIES = np.concatenate([[0.01, 0.02, 0.05], np.linspace(0.1, 1.0, 10)])
LENGTHS = np.geomspace(1 / 16, 16, 33)  # times the mean context that returns


def curves(case: Case, load: Load) -> dict[str, Curve]:
    """Per wearing tier of a case whose numbers are all single: over the coin, the uses and the shortest context."""
    found = {}
    whole = everything(case, load.tiers, load.traffic)
    all_in = under_rule(Admission(), load.traffic)
    for tier in wearing_tiers(case):
        if tier not in load.tiers:
            continue
        found[f"probability:{tier}"] = _over_coin(case, load, tier)
        uses = np.arange(1.0, MOST_USES + 1)
        per_use = [{t.name: after_uses(t, int(k)) for t in load.traffic} for k in uses]
        rule = {
            name: Admitted(*(np.stack([getattr(one[name], part) for one in per_use]) for part in ("written", "served")))
            for name in all_in
        }
        found[f"uses:{tier}"] = _curve(case, whole, tier, "uses", uses, "", rule, all_in)
        mean = float(max(t.context.mean + t.prefix_tokens for t in load.traffic))
        rule = {t.name: beyond_length(t, LENGTHS * mean) for t in load.traffic}
        found[f"minimum_tokens:{tier}"] = _curve(
            case, whole, tier, "minimum_tokens", LENGTHS * mean, "token", rule, all_in
        )
    return found


def _over_coin(case: Case, load: Load, tier: str) -> Curve:
    rule = Admission(probability=PROBABILITIES)
    widened = case.changed(policy=case.policy.model_copy(update={"admission": rule}))
    part = under_rule(rule, load.traffic)
    return _curve(case, load_of(widened, load.tiers, load.traffic), tier, "probability", PROBABILITIES, "", part, part)


def _curve(
    case: Case,
    load: Load,
    tier: str,
    axis: str,
    values: np.ndarray,
    unit: str,
    rule: Mapping[str, Admitted],
    stated: Mapping[str, Admitted],
) -> Curve:
    record = wearing_tiers(case)[tier]
    written = flows(case, load, tier, rule, stated)
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
                timely_under(load, tier, rule, stated),
                "",
                "effective reuse, share of prompt tokens",
                tier=tier,
            ),
        ),
    )
