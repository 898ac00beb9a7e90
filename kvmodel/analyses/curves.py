"""Results over one more axis than the study has, for drawing and for knees.

Question answered: how do effective reuse and cost move with the capacity of a tier, and fetching against recomputing
with the length of a prefix?
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvmodel.analyses import capacity, cost, reuse_detail, timing
from kvmodel.analyses.answer import Answer, Curve
from kvmodel.analyses.goodput import goodput_of
from kvmodel.analyses.plan import tiers_of
from kvmodel.analyses.serving import load_of
from kvmodel.analyses.traffic import traffic_of
from kvmodel.errors import MissingNumberError
from kvmodel.formulas import knee
from kvmodel.formulas.cost import cost_per_qualified_session
from kvmodel.system.case import Case
from kvmodel.units import text

CAPACITIES = np.geomspace(1 / 64, 16, 31)  # times the study's own, which is one of them
PREFIXES = np.geomspace(64, 1_048_576, 57)  # tokens


def curves_of(case: Case, arm: str, for_drawing: bool = False) -> dict[str, Curve]:
    """Curves of a case whose numbers are all single: one per storage tier, and one over prefix lengths.

    for_drawing: also the cost per qualified session over each capacity, which takes most of the time, what is left of a
    paused context, and how an emptied cache warms up.
    """
    curves = {
        f"capacity:{tier}": capacity_curve(case, tier, arm, for_drawing)
        for tier in tiers_of(case, arm)
        if tier in case.storage_tiers and case.tiers[tier].capacity > 0
    }
    if curves:
        curves["prefix"] = prefix_curve(case)
    if for_drawing and tiers_of(case, arm):
        load = load_of(case, tiers_of(case, arm), traffic_of(case, capacity.granularity(case)))
        curves["survival"] = reuse_detail.survival_curve(case, load, arm)
        curves["warm_up"] = reuse_detail.warm_up_curve(case, load, arm)
    return {name: curve for name, curve in curves.items() if curve is not None}


def capacity_curve(case: Case, tier: str, arm: str, for_drawing: bool = False) -> Curve:
    """Reuse, cost and the economic knee over the capacity of one tier, all else as it is."""
    here = np.asarray(case.tiers[tier].capacity, float)
    widened = case.changed(
        tiers={**case.tiers, tier: case.tiers[tier].model_copy(update={"capacity": here * CAPACITIES})}
    )
    granularity = capacity.granularity(case)
    load = load_of(widened, tiers_of(case, arm), traffic_of(widened, granularity))
    total = capacity.tier_bytes(widened, tier)
    rows = [
        Answer(
            f"reuse.{step}",
            sum(found.values()).sum(axis=0) / load.prompt_rate,
            "",
            f"share of prompt tokens, {step}",
            arm=arm,
        )
        for step, found in (("resident", load.resident), ("timely", load.timely))
    ]
    rows.append(
        Answer(
            "reuse.ceiling",
            sum(load.opportunity.values()) / load.prompt_rate,
            "",
            "share of prompt tokens computed before",
            arm=arm,
        )
    )
    if for_drawing and case.slo is not None:
        each = _cost_per_session(case, tier, here * CAPACITIES, arm, granularity)
        definition = (
            "cost rate over qualified sessions per second; worked out at every second capacity, straight between"
        )
        rows.append(Answer("cost.per_qualified_session", each, "USD", definition, arm=arm))
    rows += _knee(widened, tier, load.saved_seconds.sum(axis=0), total)
    rows.append(
        Answer("capacity.here", float(capacity.tier_bytes(case, tier)), "B", "capacity in the study", tier=tier)
    )
    return Curve("capacity", total, "B", tuple(rows))


def _cost_per_session(case: Case, tier: str, capacities: Any, arm: str, granularity: Any) -> Any:
    """Cost per qualified session at each capacity [USD]; infinite where no rate of sessions keeps the limits."""
    some = capacities[::2]
    widened = case.changed(tiers={**case.tiers, tier: case.tiers[tier].model_copy(update={"capacity": some})})
    best = goodput_of(widened, tiers_of(case, arm), granularity)
    each = cost_per_qualified_session(cost.cost_rate(widened, tiers_of(case, arm)), session_rate=best.qualified_rate)
    with np.errstate(invalid="ignore"):
        between = np.interp(np.log(capacities), np.log(some), each)
    return np.where(np.isnan(between), np.inf, between)


def _knee(case: Case, tier: str, saved_seconds: Any, total: Any) -> list[Answer]:
    """The capacity where another byte saves GPU time worth its rent, and where with 20 % more or less rent."""
    try:
        second = cost.gpu_cost_rate(case) / case.deployment.instances  # one instance for one second
        rent = cost.tier_cost_rate(case, tier) / np.maximum(total, 1e-300)
    except MissingNumberError as error:
        return [Answer("knee.capacity", np.nan, "B", "economic knee", tier=tier, flags=(f"no knee: {error}",))]
    value = saved_seconds * second
    found = knee.economic_knee(total, value, rent[-1])
    flags = (f"below the smallest capacity looked at, {text(total[0], 'B')}: no byte of it earns its rent",) * bool(
        found.at_lower_edge
    ) + (f"above the largest capacity looked at, {text(total[-1], 'B')}",) * bool(found.at_upper_edge)
    answers = [
        Answer(
            "knee.capacity",
            found.capacity,
            "B",
            "capacity beyond which a byte does not earn its rent",
            tier=tier,
            flags=flags,
        ),
        Answer("knee.low", found.low, "B", "the same with the rent 20 % higher", tier=tier),
        Answer("knee.high", found.high, "B", "the same with the rent 20 % lower", tier=tier),
    ]
    step = knee.cliff(total, value)
    if step.present:
        answers.append(
            Answer(
                "knee.cliff",
                step.end,
                "B",
                "capacity at which the working set starts to fit: below it more capacity pays little",
                tier=tier,
            )
        )
    return answers


def prefix_curve(case: Case) -> Curve:
    """Fetch from each storage tier and recompute, over prefix lengths, idle paths."""
    terms = timing.prefill_terms(case)
    rows = [Answer("time.recompute", terms.saved(PREFIXES), "s", "prefill time the prefix costs when it is not found")]
    for tier in case.storage_tiers:
        path = timing.fetch_terms(case, tier)
        rows.append(Answer("time.fetch", path.seconds(PREFIXES), "s", "fetch on an idle path", tier=tier))
        rows.append(
            Answer(
                "breakeven.tokens",
                timing.break_even_tokens(terms, path),
                "token",
                "shortest prefix worth fetching, idle path",
                tier=tier,
            )
        )
    return Curve("prefix", PREFIXES, "token", tuple(rows))
