"""Ceiling, resident, timely: the reuse a workload offers, what is found of it, and what comes in time to be of use.

Question answered: which share of the prompt tokens is effective reuse, and where is the rest lost?
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvmodel.analyses import reuse_detail
from kvmodel.analyses.answer import Answer
from kvmodel.analyses.serving import Load
from kvmodel.formulas.reuse import STATED_ERROR
from kvmodel.system.case import Case


def chain(case: Case, load: Load, arm: str) -> Iterator[Answer]:
    """The chain as shares of all prompt tokens; parts by tier and by population, which sum to the totals."""

    def told(step: str, value: Any, definition: str, flags: tuple[str, ...] = (), **part: str) -> Answer:
        return Answer(f"reuse.{step}", value, "", definition, arm=arm, flags=flags, **part)

    prompt, saved = load.prompt_rate, load.saved_seconds
    resident, timely = sum(load.resident.values()), sum(load.timely.values())
    yield Answer(
        "reuse.prompt_rate", prompt, "token/s", "prompt tokens per second, the denominator of the shares", arm=arm
    )
    yield told(
        "ceiling",
        sum(load.opportunity.values()) / prompt,
        "share of prompt tokens computed before by someone who may share them (any capacity, any speed)",
    )
    yield told(
        "resident",
        resident.sum(axis=0) / prompt,
        "share of prompt tokens found in some tier",
        ((_closed_form(case),) if load.tiers else ()) + reuse_detail.reuse_flags(case, load) + _crowded(load),
    )
    yield told(
        "timely",
        timely.sum(axis=0) / prompt,
        "effective reuse: share of prompt tokens found, consumable in time, sooner than recomputed",
    )
    yield told("saved_prefill", saved.sum(axis=0), "prefill seconds saved per second, all instances")
    for k, tier in enumerate(load.tiers):
        yield told("resident", resident[k] / prompt, "part of the share found in this tier", tier=tier)
        yield told("timely", timely[k] / prompt, "part of effective reuse from this tier", tier=tier)
        yield told("saved_prefill", saved[k], "prefill seconds saved per second by this tier's timely hits", tier=tier)
    for name, offered in load.opportunity.items():
        found, in_time = load.resident[name].sum(axis=0), load.timely[name].sum(axis=0)
        yield told("ceiling", offered / prompt, "part of the ceiling from this population", population=name)
        yield told("resident", found / prompt, "part of the resident share from this population", population=name)
        yield told("timely", in_time / prompt, "part of effective reuse from this population", population=name)
        yield told(
            "kept",
            found / np.maximum(offered, 1e-300),
            "share of this population's own reusable tokens that is resident",
            population=name,
        )


def _closed_form(case: Case) -> str:
    """With the error promised, unless the rule of eviction has its own."""
    exact = case.policy.eviction not in reuse_detail.RULE_ERRORS and case.policy.retention_renewed
    return (
        f"closed form, within {STATED_ERROR} of simulation for stationary Poisson sessions"
        if exact
        else "closed form for stationary Poisson sessions"
    )


def _crowded(load: Load) -> tuple[str, ...]:
    if load.tiers and not np.all(load.room):
        return (
            "overloaded: the contexts being generated do not fit the KV pool, which leaves paused ones no room in it",
        )
    if np.any(load.metastable):
        return (
            "metastable: served while warm; once the contexts being generated have filled the KV pool (a spike, a "
            "restart), what is recomputed keeps them there until the load falls",
        )
    return ()
