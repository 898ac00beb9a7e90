"""Break-even at the study's own rate of sessions: what waits before a fetch there, and whether it still pays.

Question answered: is the path of any tier near saturation, and does that turn the verdict?
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kvmodel.analyses import breakeven, capacity, timing
from kvmodel.analyses.answer import Answer
from kvmodel.analyses.serving import load_of
from kvmodel.analyses.traffic import traffic_of
from kvmodel.formulas.breakeven import fetch_wins
from kvmodel.system.case import Case

NEAR = 0.85  # use of a path from which on a little more load makes much more wait


def evaluate(case: Case, question: breakeven.Question) -> list[Answer]:
    """Use of each tier's path with all tiers in use, the mean wait, and the verdict with it.

    Nothing where that cannot be told: a tier of unstated capacity, or a model that leaves no room for KV.
    """
    stated = all(record.capacity is not None for record in case.storage_tiers.values())
    if not stated or not np.all(capacity.hbm_pool(case).fits):
        return []
    return list(_at_rate(case, question))


def _at_rate(case: Case, question: breakeven.Question) -> Iterator[Answer]:
    load = load_of(case, tuple(case.tiers), traffic_of(case, capacity.granularity(case)))
    yield Answer(
        "latency.prefill_utilisation",
        load.prefill_utilisation,
        "",
        "share of an instance's time spent on prefill at the study's rate, all tiers in use",
    )
    for r in breakeven.restores(case, question):
        k = load.tiers.index(r.tier)
        use, wait = load.tier_utilisation[k], load.tier_wait[k]
        yield Answer(
            "load.tier_utilisation",
            use,
            "",
            "use of the tier's devices or links, the busier, at that rate",
            tier=r.tier,
            flags=_warning(r.tier, use),
        )
        yield Answer("time.fetch_wait", wait, "s", "mean wait that a fetch would find at that rate", tier=r.tier)
        yield Answer(
            "breakeven.tokens",
            timing.break_even_tokens(r.prefill, r.path, wait),
            "token",
            "shortest prefix worth fetching at that rate",
            tier=r.tier,
        )
        yield Answer(
            "breakeven.fetch_wins_at_rate",
            fetch_wins(r.fetch + wait, r.saved).astype(float),
            "",
            "1 where fetching still is faster at that rate",
            tier=r.tier,
        )


def _warning(tier: str, utilisation: float) -> tuple[str, ...]:
    worst = float(np.max(utilisation))
    if worst >= 1:
        return (f"{tier}: its path is asked for {worst:.2f} times what it can do; the queue grows without end",)
    return (f"{tier}: its path is {worst:.0%} busy; a little more load makes much more wait",) if worst > NEAR else ()
