"""How long the KV of a waiting session is worth keeping in each tier, what it costs, and when to move it down.

Question answered: keep for ever, never, or for how long, and what does a session-hour cost?

A return that finds nothing costs the GPU time of computing the context again; one that finds it in a tier costs the
fetch, priced like GPU time because the request waits for it. Rent is what the bytes of a tier cost per second; of the
GPUs' own memory, their price over their KV pool, since what waits there keeps others from running. Wear is charged
where it ends a drive before age does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.analyses import capacity, cost, timing
from kvmodel.analyses.amplification import rating_of
from kvmodel.analyses.answer import Answer
from kvmodel.analyses.endurance import wear_of, wearing_tiers
from kvmodel.analyses.serving import Load
from kvmodel.analyses.traffic import Traffic
from kvmodel.errors import MissingNumberError
from kvmodel.formulas import endurance, retention
from kvmodel.system.case import Case
from kvmodel.units import DAY, HOUR

WINDOWS = np.array([60.0, 600.0, HOUR, 8 * HOUR, DAY, 7 * DAY])  # of the price list
DROPPED = "dropped"


@dataclass(frozen=True)
class Stay:
    """One population waiting in one place: bytes, rent and what a return costs there."""

    population: str
    place: str
    nbytes: Any
    rent: Any
    """Of its bytes [USD/s]."""
    return_cost: Any
    """Of a return found here: the fetch, or the recompute when dropped [USD]."""
    recovery: Any
    """Time until a return found here can go on [s]."""
    write_cost: Any
    """Wear of moving in once [USD]."""


def rent_per_byte(case: Case, tier: str) -> Any:
    """What a byte of a tier costs per second [USD/B/s]."""
    if tier in case.storage_tiers:
        return cost.tier_cost_rate(case, tier) / np.maximum(capacity.tier_bytes(case, tier), 1e-300)
    pool = np.maximum(capacity.hbm_pool(case).nbytes, 1.0) * case.deployment.instances
    return cost.gpu_cost_rate(case) / pool


def wear_per_byte(case: Case, load: Load, tier: str) -> Any:
    """Wear behind a host byte where wear ends the drive; zero where age does, and in tiers that do not wear [USD/B]."""
    if tier not in wearing_tiers(case):
        return 0.0
    record = case.tiers[tier]
    price = record.price if record.price is not None else case.prices.nvme
    if price is None:
        raise MissingNumberError("prices.nvme is not given; it is needed to price wear")
    wear = wear_of(case, load, tier)
    each = endurance.wear_cost_per_byte(
        np.asarray(price, float) * record.capacity,
        rating_of(record, tier),
        wear.rated_amplification,
        wear.amplification,
    )
    return np.where(wear.lifetime < case.prices.amortization, each, 0.0)


def stays_of(case: Case, load: Load, t: Traffic) -> list[Stay]:
    """The places a waiting session of a population can be in, fast to slow, dropped at the end."""
    terms, second = timing.prefill_terms(case), cost.gpu_cost_rate(case) / case.deployment.instances
    own = t.context.mean
    tokens = own + capacity.fixed_tokens(case)
    again = terms.saved(own + t.prefix_tokens) - terms.saved(t.prefix_tokens)
    stays = []
    for tier in load.tiers:
        nbytes = tokens * capacity.stored_bytes_per_token(case, tier)
        fetch = timing.fetch_terms(case, tier).seconds(own) if tier in case.storage_tiers else 0.0 * own
        fetch = np.minimum(fetch, again)  # a fetch that loses is not made
        stays.append(
            Stay(
                t.name,
                tier,
                nbytes,
                nbytes * rent_per_byte(case, tier),
                fetch * second,
                fetch,
                nbytes * wear_per_byte(case, load, tier),
            )
        )
    stays.append(Stay(t.name, DROPPED, 0.0 * own, 0.0 * own, again * second, again, 0.0 * own))
    return stays


def windows_of(case: Case, load: Load) -> list[Answer]:
    """Best retention window per population and tier, against dropping; nothing where a price is missing."""
    try:
        return [a for t in load.traffic for a in _windows(t, stays_of(case, load, t))]
    except MissingNumberError as error:
        return [
            Answer(
                "retention.window",
                np.nan,
                "s",
                "time worth keeping a waiting session",
                flags=(f"no retention window: {error}",),
            )
        ]


def evaluate(case: Case, load: Load) -> list[Answer]:
    """Windows, demotion schedule, price list per population, and a provider's plans."""
    answers = []
    for t in load.traffic:
        stays = stays_of(case, load, t)
        answers += [*_windows(t, stays), *_schedule(t, stays), *_price_list(t, stays), *_plans(case, t)]
    return answers


def _windows(t: Traffic, stays: Sequence[Stay]) -> Iterator[Answer]:
    law, p, dropped = t.sessions.gap_law, t.returning, stays[-1]
    for stay in stays[:-1]:
        miss = np.maximum(dropped.return_cost - stay.return_cost, 0.0)
        best = retention.optimal_window(law, stay.rent, miss, p)
        where = {"population": t.name, "tier": stay.place}
        yield Answer(
            "retention.window",
            best.window,
            "s",
            "time worth keeping a waiting session, against dropping it",
            flags=_verdict(best.window),
            **where,
        )
        yield Answer(
            "retention.returns_within", best.hit_probability, "", "returns that come within the window", **where
        )
        yield Answer(
            "retention.cost_per_stay", best.cost, "USD", "rent and recomputes of one stay with that window", **where
        )
        yield Answer("retention.cost_if_dropped", p * miss, "USD", "the same when nothing is kept", **where)
        yield Answer(
            "retention.cost_unknown_law",
            retention.retention_cost(retention.ski_rental_window(stay.rent, miss), law, stay.rent, miss, p),
            "USD",
            "the same with the window that needs no law",
            **where,
        )
        yield Answer(
            "retention.window_unknown_law",
            retention.ski_rental_window(stay.rent, miss),
            "s",
            "window for an unknown law: rent paid equals the recompute; at most twice the cost of knowing",
            **where,
        )
        yield Answer(
            "retention.break_even",
            retention.break_even_residency(miss - stay.write_cost, stay.rent),
            "s",
            "longest time between uses at which keeping costs what it saves, wear included",
            **where,
        )


def _verdict(window: Any) -> tuple[str, ...]:
    kinds = np.where(np.asarray(window) == 0, "never keep", np.where(np.isinf(window), "keep until it returns", ""))
    return tuple(str(k) for k in np.unique(kinds) if k)


def _schedule(t: Traffic, stays: Sequence[Stay]) -> Iterator[Answer]:
    """Ages at which a waiting session moves down, over the best choice of the tiers below the GPUs' memory."""
    law, p = t.sessions.gap_law, t.returning
    best, ages = np.inf, None
    middle = range(1, len(stays) - 1)
    for used in itertools.chain.from_iterable(itertools.combinations(middle, n) for n in range(len(stays) - 1)):
        chain = [0, *used, len(stays) - 1]
        shape = np.broadcast_shapes(*(np.shape(n) for s in stays for n in (s.rent, s.return_cost, s.write_cost)))
        rent, back, write = (
            np.stack([np.broadcast_to(getattr(stays[i], what), shape) for i in chain])
            for what in ("rent", "return_cost", "write_cost")
        )
        found = retention.demotion_windows(law, rent, back, write[1:], p).window
        total = np.where(
            retention.demotion_order_valid(found), retention.schedule_cost(found, law, rent, back, write[1:], p), np.inf
        )
        leaving = np.stack(
            [found[max(k for k, i in enumerate(chain[:-1]) if i <= place)] for place in range(len(stays) - 1)]
        )
        ages = leaving if ages is None else np.where(total < best, leaving, ages)
        best = np.minimum(best, total)
    for stay, age in zip(stays[:-1], ages, strict=True):
        yield Answer(
            "retention.leaves_at",
            age,
            "s",
            "age at which a waiting session leaves this tier for the next; the "
            "age of the tier above where it is not worth using",
            population=t.name,
            tier=stay.place,
        )
    yield Answer(
        "retention.schedule_cost",
        best,
        "USD",
        "rent, wear and returns of one stay under that schedule",
        population=t.name,
    )


def _price_list(t: Traffic, stays: Sequence[Stay]) -> Iterator[Answer]:
    """Cost of a session-hour by place and retention window: rent, and wear spread over the time held."""
    law, p = t.sessions.gap_law, t.returning
    for k, stay in enumerate(stays[:-1]):
        where = {"population": t.name, "tier": stay.place}
        yield Answer(
            "price.recovery", stay.recovery, "s", "time until a session kept here can go on, idle path", **where
        )
        hour = retention.session_hour_price(stay.nbytes, stay.rent / np.maximum(stay.nbytes, 1e-300))
        if k == 0:
            yield Answer(
                "price.active_session_hour",
                hour,
                "USD",
                "of a session that generates: its share of the GPUs, by their KV pool",
                **where,
            )
        yield Answer("price.waiting_session_hour", hour, "USD", "rent of a session that waits here", **where)
        for window in WINDOWS:
            held = p * law.restricted_mean(window) + (1 - p) * window
            name = f"price.{_label(window)}"
            yield Answer(
                f"{name}.session_hour",
                hour + stay.write_cost * HOUR / held,
                "USD",
                "rent and wear of an hour held, kept so long at most",
                **where,
            )
            yield Answer(
                f"{name}.stay", stay.rent * held + stay.write_cost, "USD", "of one stay, kept so long at most", **where
            )
    for window in WINDOWS:
        yield Answer(
            f"price.{_label(window)}.returns_within",
            law.cdf(window),
            "",
            "returns that come in time",
            population=t.name,
        )


def _label(window: float) -> str:
    for unit, name in ((DAY, "d"), (HOUR, "h"), (60.0, "min")):
        if window >= unit:
            return f"{window / unit:.0f}{name}"
    return f"{window:.0f}s"


def _plans(case: Case, t: Traffic) -> Iterator[Answer]:
    """A provider's price plans for the same traffic: the tier column names the plan."""
    plans = case.prices.prompt_cache
    costs = {}
    for name, plan in plans.items():
        hit = t.sessions.gap_law.cdf(np.asarray(plan.lifetime, float))
        costs[name] = retention.price_plan_cost(hit, plan.write_multiplier, plan.read_multiplier, 1 + t.returns)
        need = retention.price_plan_break_even(plan.write_multiplier, plan.read_multiplier)
        where = {"population": t.name, "tier": name}
        yield Answer(
            "price_plan.cost",
            costs[name],
            "",
            "price of a prefix token over the plain input price, over the "
            "turns of a session; a read renews the lifetime",
            flags=_pays(costs[name]),
            **where,
        )
        yield Answer("price_plan.returns_within", hit, "", "returns within the plan's lifetime", **where)
        yield Answer(
            "price_plan.break_even",
            need,
            "",
            "share of returns within the lifetime above which it pays in the long run",
            **where,
        )
        if plan.input_price is not None:
            tokens = t.context.mean + t.prefix_tokens
            yield Answer(
                "price_plan.per_turn",
                costs[name] * plan.input_price * tokens,
                "USD",
                "of the typical prefix, per turn",
                **where,
            )
    if costs:
        names = ["none", *costs]
        best = np.argmin(np.stack(np.broadcast_arrays(1.0, *costs.values())), axis=0)
        yield Answer(
            "price_plan.best",
            best,
            "",
            "number of the cheapest plan in the study's order, 0 for none",
            population=t.name,
            flags=tuple(f"cheapest: {names[i]}" for i in np.unique(best)),
        )


def _pays(value: Any) -> tuple[str, ...]:
    return ("does not pay: dearer than no cache",) if np.all(np.asarray(value) >= 1) else ()
