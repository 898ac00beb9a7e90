"""What a rule of admission lets through of each population.

Question answered: of the KV a session creates, how much is ever written, and of the context it returns to, how much had
been?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.analyses.traffic import Traffic, gamma_of
from kvmodel.formulas import laws
from kvmodel.policies.admission import Admission
from kvmodel.system.case import Case


@dataclass(frozen=True)
class Admitted:
    """What a rule lets through of one population."""

    written: Any
    """Share of the KV it creates that is ever written."""
    served: Any
    """Share of its returning context that had been written before."""


def under_rule(rule: Admission, traffic: Sequence[Traffic]) -> dict[str, Admitted]:
    """The study's own rule: a coin per context, a number of uses, a least length; taken as independent."""
    uses = np.maximum(np.asarray(rule.uses, float), 2.0 if rule.second_use else 1.0)
    coin, found = np.asarray(rule.probability, float), {}
    for t in traffic:
        used, long = after_uses(t, uses), beyond_length(t, rule.minimum_tokens)
        found[t.name] = Admitted(coin * used.written * long.written, coin * used.served * long.served)
    return found


def at_tier(case: Case, tier: str, traffic: Sequence[Traffic]) -> dict[str, Admitted]:
    """The study's own rule where a tier wears; everything is let into the others."""
    wears = case.tiers[tier].kind == "nvme"
    return under_rule(case.policy.admission if wears else Admission(), traffic)


def taken_share(case: Case, tier: str, traffic: Sequence[Traffic], rules: Mapping[str, Admitted]) -> Any:
    """Share of the KV let into a tier that its write bandwidth takes, at the mean rate; what finds the staging buffers
    full is dropped. 1 where no write bandwidth is stated. In an exclusive chain what comes down again is left out."""
    record = case.tiers[tier]
    if record.write_bandwidth is None:
        return np.ones(())
    rewritten = record.kind == "nvme" and record.layout == "rewrite"
    growing, fixed = case.model.growing_bytes_per_token, case.model.fixed_bytes_per_sequence()
    asked = sum(
        rules[t.name].written
        * t.arrivals
        * (t.computed_tokens * (rewrites(t) if rewritten else 1.0) * growing + (1 + t.returns) * fixed)
        for t in traffic
    )
    takes = np.asarray(record.write_bandwidth, float) * record.count * record.efficiency
    return takes / np.maximum(asked * record.storage_amplification, takes)


def rewrites(t: Traffic) -> Any:
    """Tokens written per token created when each turn stores its whole context anew."""
    whole = t.first.mean + t.returns * (t.context.mean + t.step.mean)
    return whole / np.maximum(t.computed_tokens, 1e-300)


def after_uses(t: Traffic, uses: Any) -> Admitted:
    """Blocks written at their k-th use: creation is the first, every return reads what it finds once more.

    A block of turn i of a session with J returns is read J - i times, so it is written when J - i >= k - 1, and served
    from its k-th read on.
    """
    uses = np.asarray(uses, float)
    most = np.maximum(uses - np.arange(1, int(np.max(uses))).reshape((-1,) + (1,) * uses.ndim), 0.0)  # k - m
    beyond = [t.sessions.turns_law.survival(m) for m in range(1, len(most) + 1)]  # P(J >= m)
    m1, m2, _ = t.sessions.turns_law.factorial_moments
    count = np.maximum(m1 - sum(p * (left > 0) for left, p in zip(most, beyond, strict=True)), 0.0)  # E (J-k+1)+
    pairs = m2 / 2 - (uses - 1) * m1 + sum(left * p for left, p in zip(most, beyond, strict=True))
    pairs = np.maximum(pairs, 0.0)  # E (J-k+1)+ (J-k)+ / 2
    first, step = t.first.mean, t.step.mean
    written = first * t.sessions.turns_law.survival(uses - 1) + step * count
    served = first * count + step * pairs
    return Admitted(share_of(written, t.computed_tokens), share_of(served, t.returns * t.context.mean))


def beyond_length(t: Traffic, tokens: Any) -> Admitted:
    """Contexts written once they are so long, shared prefix included; then with all that came before."""
    own = np.maximum(np.asarray(tokens, float) - t.prefix_tokens, 0.0)
    m1, m2, _ = t.sessions.turns_law.factorial_moments
    mean = t.first.mean + m1 * t.step.mean
    spread = t.first.variance + m1 * t.step.variance + np.maximum(m2 + m1 - m1**2, 0.0) * t.step.mean**2
    last = gamma_of(mean, spread)  # of the context a session ends with
    return Admitted(_tail_share(last, own), _tail_share(t.context, own))


def _tail_share(law: laws.Gamma, level: Any) -> Any:
    """E[X; X >= level] / E[X] of a gamma law: the tail of the gamma of one more order."""
    return laws.Gamma(law.order + 1, law.scale).survival(level)


def share_of(part: Any, whole: Any) -> Any:
    whole = np.asarray(whole, float)
    return np.clip(np.where(whole > 0, part / np.maximum(whole, 1e-300), 0.0), 0.0, 1.0)
