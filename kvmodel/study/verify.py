"""The residency of a case against the event simulation of its sessions: the closed form beside its referee."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kvmodel.analyses.answer import Answer
from kvmodel.analyses.capacity import granularity
from kvmodel.analyses.reuse import TOUCH, hit_shares, pinned_tokens, stacks_of, streams_of
from kvmodel.analyses.serving import load_of
from kvmodel.analyses.traffic import traffic_of
from kvmodel.simulation.session_cache import RandomBursts, RateCurve, Rates
from kvmodel.simulation.verification import verification
from kvmodel.system.case import Case
from kvmodel.workloads.sessions import Sessions


def verified(case: Case, tiers: Sequence[str], arm: str, turns: int = 200_000, seed: int = 1) -> Iterator[Answer]:
    """Share of a population's own context, and of its shared prefix, found down to each tier: closed form and, with its
    standard error, simulation. The case's numbers must be single ones. LRU only.
    """
    traffic = traffic_of(case, granularity(case))
    load = load_of(case, tiers, traffic)
    pinned = sum(pinned_tokens(case, traffic).values())
    for tier, (_, share, capacity) in zip(tiers, stacks_of(case, tiers, load.active_tokens), strict=True):
        closed = hit_shares(case, traffic, share, capacity)
        private, prefix = (np.array([[float(closed[t.name][k])] for t in traffic]) for k in (0, 1))
        found = verification(
            streams_of(case, traffic, share),
            np.array([max(float(capacity) - float(pinned), 0.0)]),
            private,
            prefix,
            TOUCH[case.policy.touch],
            turns,
            seed,
            _rates([t.sessions for t in traffic]),
        )
        for i, t in enumerate(traffic):
            for what, parts in (("own context", found[:3]), (f"shared prefix {t.prefix_name}", found[3:6])):
                if np.isfinite(parts[0][i, 0]):
                    for name, part in zip(("closed_form", "simulated", "standard_error"), parts, strict=True):
                        definition = f"share of the {what} found down to this tier, {name.replace('_', ' ')}"
                        yield Answer(
                            f"verify.{name}", float(part[i, 0]), "", definition, arm=arm, population=t.name, tier=tier
                        )


def _rates(populations: Sequence[Sessions]) -> list[Rates | None]:
    """The rates each population follows; None where they are steady. Populations with bursts have them together."""
    some = next((s.bursts for s in populations if s.bursts is not None), None)
    bursts = None if some is None else RandomBursts(float(some.share), float(some.factor), float(some.mean_length))
    return [_curve(s) if s.day else bursts if s.bursts is not None else None for s in populations]


def _curve(sessions: Sessions) -> RateCurve:
    shares, factors = ([float(number) for number in part] for part in sessions.rate_levels)
    return RateCurve(float(sessions.period), shares, factors)
