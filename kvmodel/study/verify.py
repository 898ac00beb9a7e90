"""The residency of a case against the event simulation of its sessions: the closed form beside its referee."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kvmodel.analyses.answer import Answer
from kvmodel.analyses.capacity import granularity
from kvmodel.analyses.reuse import TOUCH, hit_shares, pinned_tokens, stacks_of, streams_of
from kvmodel.analyses.serving import load_of
from kvmodel.analyses.traffic import Traffic, traffic_of
from kvmodel.simulation.session_cache import RateCurve
from kvmodel.simulation.verification import verification
from kvmodel.system.case import Case
from kvmodel.workloads.day import levels


def verified(case: Case, tiers: Sequence[str], arm: str, turns: int = 200_000, seed: int = 1) -> Iterator[Answer]:
    """Share of a population's own context, and of each of its shared prefixes, found down to each tier: closed form
    and, with its standard error, simulation. The case's numbers must be single ones. LRU only.
    """
    traffic = traffic_of(case, granularity(case))
    load = load_of(case, tiers, traffic)
    pinned = sum(pinned_tokens(case, traffic).values())
    for tier, (_, share, capacity) in zip(tiers, stacks_of(case, tiers, load.active_tokens), strict=True):
        closed = hit_shares(case, traffic, share, capacity)
        streams = streams_of(case, traffic, share)
        prefix = np.zeros((max(len(s.heads) for s in streams), len(streams), 1))
        for i, stream in enumerate(streams):
            prefix[: len(stream.heads), i, 0] = closed[traffic[i].name][1 : 1 + len(stream.heads)]
        found = verification(
            streams,
            np.array([max(float(capacity) - float(pinned), 0.0)]),
            [[float(closed[t.name][0])] for t in traffic],
            prefix,
            TOUCH[case.policy.touch],
            turns,
            seed,
            _rate_curve(traffic),
        )
        own, heads = np.array(found[:3]), np.array(found[3:6])
        for i, t in enumerate(traffic):
            parts = [("own context", own[:, i, 0])]
            parts += [
                (f"shared prefix {name}", heads[:, k, i, 0]) for k, name in enumerate(t.prefixes) if k < heads.shape[1]
            ]
            for what, values in parts:
                if np.isfinite(values[0]):
                    for name, value in zip(("closed_form", "simulated", "standard_error"), values, strict=True):
                        definition = f"share of the {what} found down to this tier, {name.replace('_', ' ')}"
                        yield Answer(
                            f"verify.{name}", float(value), "", definition, arm=arm, population=t.name, tier=tier
                        )


def _rate_curve(traffic: Sequence[Traffic]) -> RateCurve | None:
    """The rates all populations follow; None where they are steady."""
    some = next((t.sessions for t in traffic if t.sessions.day), None)
    if some is None:
        return None
    shares, factors = levels(some.day)
    return RateCurve(float(some.period), [float(s) for s in shares], [float(f) for f in factors])
