"""What a rule of admission lets into a tier that wears, and what that leaves of its hits.

Question answered: which rule keeps the writes within the drives' budget, and how much effective reuse does it cost?

What is not admitted leaves room in the tier to the rest, so that contexts admitted stay longer; that gain is
left out. Shared prefixes are always admitted. Rules are searched at the load under which everything is admitted; what
each leaves of the reuse is told at the load under it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.analyses import cost, timing
from kvmodel.analyses.admitted import Admitted, after_uses, beyond_length, rewrites, share_of, under_rule
from kvmodel.analyses.outcomes import in_front
from kvmodel.analyses.serving import Load, load_of
from kvmodel.analyses.traffic import Traffic, size_classes
from kvmodel.errors import MissingNumberError
from kvmodel.formulas import admission as rules
from kvmodel.policies.admission import Admission
from kvmodel.system.case import Case

MOST_USES = 8  # a default of eight uses has been shipped, under which nothing was ever written
LONGEST = 64.0  # times the mean context: the longest prefix length looked at as a threshold
BISECTIONS = 40
ROUNDS = 30


def flows(
    case: Case, load: Load, tier: str, admitted: Mapping[str, Admitted], stated: Mapping[str, Admitted]
) -> dict[str, Any]:
    """Tokens written into a tier per second by population and shared prefix, under a rule [tokens/s].

    stated: the rule under which `load` was worked out; hits of the tier scale from it. An appending store writes what
    is created and what was lost from here and computed again; one that rewrites stores the whole context at every turn.
    In an exclusive chain everything that falls out of the tiers above comes down again.
    """
    index = load.tiers.index(tier)
    inclusive = case.policy.chain == "inclusive"
    written = {}
    for t in load.traffic:
        rule, own = admitted[t.name], stated[t.name]
        created = t.arrivals * t.computed_tokens * rule.written
        if case.tiers[tier].layout == "rewrite":
            written[t.name] = created * rewrites(t)
            continue
        here = load.resident[t.name][index] * share_of(rule.served, own.served) if inclusive else 0.0
        missed = load.opportunity[t.name] - load.resident[t.name][:index].sum(axis=0)
        written[t.name] = created + np.maximum(rule.served * missed - here, 0.0)
    for name in case.prefixes:
        if name in load.opportunity:
            upto = index + 1 if inclusive else index
            written[name] = np.maximum(load.opportunity[name] - load.resident[name][:upto].sum(axis=0), 0.0)
    return written


@dataclass(frozen=True)
class Fit:
    """A rule that keeps a tier within its budget, and what it leaves."""

    rule: str
    threshold: Any
    """Probability, number of uses, tokens, or USD per byte written; nan where no value of it is enough."""
    write_rate: Any
    """Host bytes per second [B/s]."""
    timely: Any
    """Effective reuse, share of prompt tokens."""


def everything(case: Case, tiers: Sequence[str], traffic: Sequence[Traffic]) -> Load:
    """The load when all is admitted: what rules are held against."""
    return load_of(with_rule(case, Admission()), tiers, traffic)


def with_rule(case: Case, rule: Admission) -> Case:
    """The case under another rule of admission."""
    return case.changed(policy=case.policy.model_copy(update={"admission": rule}))


def under(case: Case, load: Load, admitted: Mapping[str, Admitted]) -> Load:
    """The load under a rule: what is refused is computed again, which also leaves less room for retained KV."""
    return load_of(case, load.tiers, load.traffic, admitted)


# Host bytes per second of a flow of tokens by population, and the budget, which moves with the mix of what is written.
Judge = Callable[[Mapping[str, Any]], tuple[Any, Any]]


def fits(case: Case, load: Load, tier: str, judge: Judge) -> list[Fit]:
    """The rule of each kind that just fits the budget, from a `load` under which everything is admitted."""
    stated = under_rule(Admission(), load.traffic)

    def outcome(name: str, threshold: Any, admitted: Mapping[str, Admitted]) -> Fit:
        rate, budget = judge(flows(case, load, tier, admitted, stated))
        return Fit(
            name,
            np.where(rate <= budget * (1 + 1e-9), threshold, np.nan),
            rate,
            under(case, load, admitted).effective_reuse,
        )

    def searched(name: str, rule: Callable[[Traffic, Any], Admitted], stricter: Any, laxer: Any) -> Fit:
        """Bisection between a threshold that admits least and one that admits all."""

        def all_of(x: Any) -> dict[str, Admitted]:
            return {t.name: rule(t, x) for t in load.traffic}

        rate, budget = judge(flows(case, load, tier, all_of(laxer), stated))
        enough = rate <= budget
        strict, lax = (x + 0.0 * rate for x in (stricter, laxer))
        for _ in range(BISECTIONS):
            middle = 0.5 * (strict + lax)
            rate, budget = judge(flows(case, load, tier, all_of(middle), stated))
            fit = rate <= budget
            strict, lax = np.where(fit, middle, strict), np.where(fit, lax, middle)
        chosen = np.where(enough, laxer, strict)
        return outcome(name, chosen, all_of(chosen))

    longest = LONGEST * max(float(np.max(t.context.mean + t.prefix_tokens)) for t in load.traffic)
    uses = next(
        (
            k
            for k in range(1, MOST_USES)
            if np.all(
                np.less_equal(*judge(flows(case, load, tier, {t.name: after_uses(t, k) for t in load.traffic}, stated)))
            )
        ),
        MOST_USES,
    )
    return [
        searched("probability", lambda t, p: Admitted(p, p), 0.0, 1.0),
        outcome("uses", float(uses), {t.name: after_uses(t, uses) for t in load.traffic}),
        searched("minimum_tokens", beyond_length, longest, 0.0),
        _by_value(case, load, tier, judge, stated),
    ]


def _by_value(case: Case, load: Load, tier: str, judge: Judge, stated: Mapping[str, Admitted]) -> Fit:
    """Classes of context admitted by falling value per byte written until the budget is full (fractional knapsack)."""
    terms, path = timing.prefill_terms(case), timing.fetch_terms(case, tier)
    price, per_token = gpu_second(case), case.model.growing_bytes_per_token
    index = load.tiers.index(tier)
    flow = flows(case, load, tier, stated, stated)
    scores, weights, rates, names = [], [], [], []
    for t in load.traffic:
        size, share = (in_front(part, case.axes) for part in size_classes(t.context))
        prefix = size + t.prefix_tokens
        reads = load.resident[t.name][index] / np.maximum(flow[t.name], 1e-300)  # tokens served per token written
        scores.append(rules.value_per_byte(reads, terms.saved(prefix), path.seconds(prefix), price, prefix * per_token))
        weights.append(share * size / np.sum(share * size, axis=0))
        rates.append(weights[-1] * flow[t.name])
        names += [t.name] * len(size)
    shape = np.broadcast_shapes(*(np.shape(x) for x in (*scores, *rates)))
    score, weight, rate = (
        np.concatenate([np.broadcast_to(x, (len(x), *shape[1:])) for x in xs]) for xs in (scores, weights, rates)
    )
    label = np.array(names)
    room = np.sum(rate, axis=0)
    for _ in range(ROUNDS):  # refusing contexts moves the budget, which may leave less room
        share = rules.admitted_share(score, rate, room)
        admitted = {t.name: Admitted(*(np.sum((share * weight)[label == t.name], axis=0),) * 2) for t in load.traffic}
        written = flows(case, load, tier, admitted, stated)
        host, budget = judge(written)
        own = sum(written[t.name] for t in load.traffic)
        each = host / np.maximum(sum(written.values()), 1e-300)  # host bytes per token
        room = np.where(host > budget, np.maximum(own - (host - budget) / each, 0.0) * (1 - 1e-7), room)
    least = np.min(np.where(share > 0, score, np.inf), axis=0)
    return Fit(
        "value_per_byte",
        np.where(host <= budget * (1 + 1e-6), least, np.nan),
        host,
        under(case, load, admitted).effective_reuse,
    )


def gpu_second(case: Case) -> Any:
    """Price of one engine instance for a second [USD/s]; one where the study has no price, so that ranks still hold."""
    try:
        return cost.gpu_cost_rate(case) / case.deployment.instances
    except MissingNumberError:
        return np.ones(())
