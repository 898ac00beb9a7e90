"""What the tiers that wear must absorb, and how long they last.

Question answered: how many bytes a day go into each wearing tier, does it live as long as it should, and what would
make it?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.analyses import capacity, cost, timing
from kvmodel.analyses.admission import everything, fits, flows
from kvmodel.analyses.admitted import rewrites, under_rule
from kvmodel.analyses.amplification import amplification_of, placements, rating_of
from kvmodel.analyses.answer import Answer
from kvmodel.analyses.reuse import rate_levels
from kvmodel.analyses.serving import Load
from kvmodel.errors import MissingNumberError
from kvmodel.formulas import breakeven, endurance
from kvmodel.policies.admission import Admission
from kvmodel.system.case import Case
from kvmodel.tiers.nvme import Nvme
from kvmodel.units import DAY, YEAR

DEFAULT_TARGET = 5 * YEAR  # the usual warranty of an enterprise drive
P99 = 2.3263478740408408  # standard normal quantile of 0.99
CLASSES = (0.3, 0.6, 1.0, 3.0, 5.0, 10.0, 60.0)  # drive writes per day over five years that drives are sold with


@dataclass(frozen=True)
class Wear:
    """Writes into one wearing tier and what they do to it; arrays over the study's axes."""

    write_rate: Any
    """Host bytes written per second, all drives [B/s]."""
    amplification: Any
    """Flash bytes per host byte of our writes."""
    rated_amplification: Any
    """Amplification already inside the drive's rating."""
    lifetime: Any
    """Until the rated wear is used up [s]."""
    budget: Any
    """Host bytes per second, all drives, that reach the target lifetime [B/s]."""
    drive_writes_per_day: Any
    flags: tuple[str, ...]


def wearing_tiers(case: Case) -> dict[str, Nvme]:
    """The tiers that wear with what is written."""
    return {name: tier for name, tier in case.storage_tiers.items() if isinstance(tier, Nvme)}


def host_bytes(case: Case, load: Load, tier: str, tokens: Mapping[str, Any]) -> Any:
    """Host bytes per second of a flow of tokens into a tier, by its own layout [B/s].

    Windows and states are stored anew every turn, as often as their population's tokens are.
    """
    record = case.tiers[tier]
    rate = sum(tokens.values()) * case.model.growing_bytes_per_token
    for t in load.traffic:
        whole = np.maximum(t.arrivals * t.computed_tokens, 1e-300)
        share = np.minimum(tokens[t.name] / whole, 1.0) if t.name in tokens else 0.0
        rate = rate + t.turn_rate * share * case.model.fixed_bytes_per_sequence()
    return endurance.write_flow(rate, layout_amplification=record.storage_amplification)


def wear_of(case: Case, load: Load, tier: str, target_lifetime: Any = None) -> Wear:
    """Writes, amplification, lifetime and budget of one wearing tier under the study's own rule of admission."""
    record = wearing_tiers(case)[tier]
    stated = under_rule(case.policy.admission, load.traffic)
    written = flows(case, load, tier, stated, stated)
    rate = host_bytes(case, load, tier, written)
    found = amplification_of(case, load, tier, written)
    rating, wanted = rating_of(record, tier), DEFAULT_TARGET if target_lifetime is None else target_lifetime
    each = rate / record.count
    if record.capacity is None:
        raise MissingNumberError(f"tiers.{tier}.capacity is not given; it is needed for drive writes per day")
    return Wear(
        write_rate=rate,
        amplification=found.ours,
        rated_amplification=found.rated,
        lifetime=endurance.lifetime(each, rating, found.rated, found.ours),
        budget=record.count * endurance.write_budget(wanted, rating, found.rated, found.ours),
        drive_writes_per_day=endurance.drive_writes_per_day(each, record.capacity, 1.0),
        flags=found.flags,
    )


def wear_answers(wear: Wear, tier: str) -> Iterator[Answer]:
    """What a plan and the report on endurance both tell of a wearing tier."""
    yield Answer("endurance.write_rate", wear.write_rate, "B/s", "host bytes written per second, all drives", tier=tier)
    yield Answer(
        "endurance.daily_writes", wear.write_rate * DAY, "B", "host bytes written per day, all drives", tier=tier
    )
    yield Answer(
        "endurance.drive_writes_per_day",
        wear.drive_writes_per_day,
        "",
        "host bytes written per day over capacity",
        tier=tier,
    )
    yield Answer(
        "endurance.amplification",
        wear.amplification,
        "",
        "flash bytes per host byte of these writes",
        tier=tier,
        flags=wear.flags,
    )
    yield Answer(
        "endurance.rated_amplification",
        wear.rated_amplification,
        "",
        "amplification inside the drive's rating",
        tier=tier,
    )
    yield Answer("endurance.lifetime", wear.lifetime, "s", "time until the rated wear is used up", tier=tier)
    yield Answer(
        "endurance.write_budget",
        wear.budget,
        "B/s",
        "host bytes per second, all drives, that reach the target lifetime",
        tier=tier,
    )


def evaluate(case: Case, load: Load, target_lifetime: Any = None) -> list[Answer]:
    """Everything about every wearing tier in use."""
    return [
        answer
        for tier in wearing_tiers(case)
        if tier in load.tiers
        for answer in _answers(case, load, tier, DEFAULT_TARGET if target_lifetime is None else target_lifetime)
    ]


def _answers(case: Case, load: Load, tier: str, target: Any) -> Iterator[Answer]:
    wear, record = wear_of(case, load, tier, target), wearing_tiers(case)[tier]
    stated = under_rule(case.policy.admission, load.traffic)
    written = flows(case, load, tier, stated, stated)
    yield from wear_answers(wear, tier)
    yield from _flow(case, load, tier, wear, written)
    yield from _device(case, load, tier, wear, written)
    yield Answer("endurance.budget_used", wear.write_rate / wear.budget, "", "writes over that budget", tier=tier)
    yield Answer(
        "endurance.drives_needed",
        endurance.drives_needed(wear.write_rate, wear.budget / record.count),
        "",
        "drives of this kind that carry these writes for the target lifetime",
        tier=tier,
    )
    yield from _rating_needed(record, wear, target, tier)
    yield from _price(case, load, tier, wear)
    yield from _rules(case, load, tier, wear, target)


def _flow(case: Case, load: Load, tier: str, wear: Wear, written: Mapping[str, Any]) -> Iterator[Answer]:
    record = wearing_tiers(case)[tier]
    for name, tokens in written.items():
        yield Answer(
            "endurance.write_rate",
            host_bytes(case, load, tier, {name: tokens}),
            "B/s",
            "part of the writes from this population",
            population=name,
            tier=tier,
        )
    factor = max(np.max(f) for f in rate_levels(case)[1])
    busy = {name: flow * (factor if _varies(case, load, name) else 1.0) for name, flow in written.items()}
    peak = host_bytes(case, load, tier, busy)
    if record.write_bandwidth is not None:
        used = peak / (np.asarray(record.write_bandwidth, float) * record.count)
        worst = float(np.max(used))
        flags = (f"writes need {worst:.2f} of the drives' write bandwidth at the busiest time",) * (worst > 0.5)
        yield Answer(
            "endurance.write_utilisation",
            used,
            "",
            "writes over the drives' write bandwidth, at the busiest time",
            tier=tier,
            flags=flags,
        )
    yield Answer("endurance.write_rate_peak", peak, "B/s", "host bytes per second at the busiest time", tier=tier)
    yield Answer(
        "endurance.daily_writes_p99",
        _busy_day(case, load, tier, wear, written),
        "B",
        "host bytes of one day in a hundred: as many sessions start as chance brings, of chance sizes",
        tier=tier,
    )
    yield Answer(
        "endurance.layout_amplification",
        np.asarray(record.storage_amplification, float),
        "",
        "bytes stored per logical byte: layout, padding, copies",
        tier=tier,
    )
    mean = sum(t.arrivals * t.computed_tokens * rewrites(t) for t in load.traffic) / sum(
        t.arrivals * t.computed_tokens for t in load.traffic
    )
    yield Answer(
        "endurance.rewrites",
        mean if record.layout == "rewrite" else np.ones(()),
        "",
        "bytes written per byte created, because of the way growing sessions are stored",
        tier=tier,
    )


def _varies(case: Case, load: Load, name: str) -> bool:
    """Whether the rate of a population, or of the users of a shared prefix, changes over time."""
    if name in case.sessions:
        return case.sessions[name].varies
    return any(t.sessions.varies for t in load.traffic if name in t.prefixes)


def _busy_day(case: Case, load: Load, tier: str, wear: Wear, written: Mapping[str, Any]) -> Any:
    """Mean and 2.33 standard deviations of a day's writes: compound Poisson over sessions, taken as normal [B]."""
    spread: Any = 0.0
    for t in load.traffic:
        each = host_bytes(case, load, tier, {t.name: written[t.name]}) / np.maximum(t.arrivals, 1e-300)
        m1, m2, _ = t.sessions.turns_law.factorial_moments
        mean = t.computed_tokens
        var = t.first.variance + m1 * t.step.variance + np.maximum(m2 + m1 - m1**2, 0.0) * t.step.mean**2
        spread = spread + t.arrivals * DAY * each**2 * (1 + var / np.maximum(mean, 1e-300) ** 2)
    return wear.write_rate * DAY + P99 * np.sqrt(spread)


def _device(case: Case, load: Load, tier: str, wear: Wear, written: Mapping[str, Any]) -> Iterator[Answer]:
    for name, (value, said) in placements(case, load, tier, written).items():
        yield Answer(f"endurance.amplification_{name}", value, "", said, tier=tier)


def _rating_needed(record: Nvme, wear: Wear, target: Any, tier: str) -> Iterator[Answer]:
    """Rating, in the vendor's random pattern, of drives of this count and size that would last."""
    needed = wear.drive_writes_per_day * wear.amplification / wear.rated_amplification * np.asarray(target) / (5 * YEAR)
    fit = [c for c in CLASSES if np.all(needed <= c)]
    yield Answer(
        "endurance.rating_needed",
        needed,
        "",
        "drive writes per day over five years these drives would have to be rated for",
        tier=tier,
        flags=(f"class of {fit[0]:g} drive writes per day",)
        if fit
        else (f"beyond {CLASSES[-1]:g} drive writes per day: no drive of this size and count is sold for it",),
    )


def _price(case: Case, load: Load, tier: str, wear: Wear) -> Iterator[Answer]:
    """What a byte written costs in wear, and the shortest prefix that earns it."""
    record = wearing_tiers(case)[tier]
    try:
        price = np.asarray(record.price if record.price is not None else _given(case.prices.nvme), float)
        second = cost.gpu_cost_rate(case) / case.deployment.instances
    except MissingNumberError as error:
        yield Answer(
            "endurance.wear_cost",
            np.nan,
            "USD/B",
            "wear behind one host byte",
            tier=tier,
            flags=(f"no wear cost: {error}",),
        )
        return
    wearing = endurance.wear_cost_per_byte(
        price * record.capacity, rating_of(record, tier), wear.rated_amplification, wear.amplification
    )
    aged = np.all(wear.lifetime > case.prices.amortization)
    yield Answer(
        "endurance.wear_cost",
        wearing,
        "USD/B",
        "wear behind one host byte",
        tier=tier,
        flags=("age ends these drives before wear does: the rent already pays for it",) if aged else (),
    )
    yield Answer("endurance.wear_cost_rate", wearing * wear.write_rate, "USD/s", "wear of all writes", tier=tier)
    index = load.tiers.index(tier)
    served = sum(found[index] for found in load.resident.values())
    reads = served * case.model.growing_bytes_per_token / np.maximum(wear.write_rate, 1e-300)
    yield Answer("endurance.reads_per_write", reads, "", "bytes found in the tier per byte written into it", tier=tier)
    terms, path = timing.prefill_terms(case), timing.fetch_terms(case, tier)
    stored = capacity.stored_bytes_per_token(case, tier)
    with np.errstate(divide="ignore"):
        per_read = wearing * stored / second / reads  # wear as seconds of an instance, per token fetched
    yield Answer(
        "endurance.breakeven_tokens",
        breakeven.break_even_tokens(
            fixed=path.fixed, per_token=path.per_token + per_read, linear=terms.linear, attention=terms.attention
        ),
        "token",
        "shortest prefix whose reads save more GPU time than its fetches and its wear cost",
        tier=tier,
    )


def _given(price: Any) -> Any:
    if price is None:
        raise MissingNumberError("prices.nvme is not given; it is needed to price wear")
    return price


def _rules(case: Case, load: Load, tier: str, wear: Wear, target: Any) -> Iterator[Answer]:
    """Admission rules that fit the budget, held against admitting everything."""
    whole = everything(case, load.tiers, load.traffic)
    all_in = under_rule(Admission(), load.traffic)
    record = wearing_tiers(case)[tier]

    def judge(tokens: Mapping[str, Any]) -> tuple[Any, Any]:
        found = amplification_of(case, whole, tier, tokens)
        return host_bytes(case, whole, tier, tokens), record.count * endurance.write_budget(
            target, rating_of(record, tier), found.rated, found.ours
        )

    written = flows(case, whole, tier, all_in, all_in)
    most = whole.effective_reuse
    yield Answer(
        "admission.everything.write_rate",
        host_bytes(case, whole, tier, written),
        "B/s",
        "host bytes per second when everything is admitted",
        tier=tier,
    )
    yield Answer("admission.everything.timely", most, "", "effective reuse when everything is admitted", tier=tier)
    for fit in fits(case, whole, tier, judge):
        unit, said = RULES[fit.rule]
        flags = () if np.any(np.isfinite(fit.threshold)) else ("no value of this rule fits the budget",)
        name = f"admission.{fit.rule}"
        yield Answer(f"{name}.threshold", fit.threshold, unit, said, tier=tier, flags=flags)
        yield Answer(f"{name}.write_rate", fit.write_rate, "B/s", "host bytes per second under it", tier=tier)
        yield Answer(f"{name}.timely", fit.timely, "", "effective reuse under it", tier=tier)
        yield Answer(f"{name}.lost", most - fit.timely, "", "effective reuse it costs", tier=tier)


RULES = {
    "probability": ("", "largest share of contexts, chosen by a coin, that fits the write budget"),
    "uses": ("", "fewest uses before a block is written that fit the write budget"),
    "minimum_tokens": ("token", "shortest context written that fits the write budget"),
    "value_per_byte": ("USD/B", "least value per byte written that fits the write budget"),
}
