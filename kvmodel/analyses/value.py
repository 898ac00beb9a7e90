"""What keeping is worth per byte, what a pinned prefix wins and displaces, and which prefetches pay.

Question answered: whose KV deserves the bytes of each tier first?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kvmodel.analyses import capacity, cost, timing
from kvmodel.analyses.answer import Answer
from kvmodel.analyses.retention import Stay, rent_per_byte, stays_of
from kvmodel.analyses.serving import Load, load_of
from kvmodel.analyses.traffic import Traffic
from kvmodel.formulas import retention, working_set
from kvmodel.system.case import Case
from kvmodel.workloads.shared_prefix import SharedPrefix

STEP = 1.1  # of capacity, to see what another byte is worth
FIRST_BYTES = 2.0**30  # of a tier that has none yet [B]
BISECTIONS = 60
QUANTILES = (
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    0.95,
    0.99,
)  # of the return time: prefetch windows looked at


def evaluate(case: Case, load: Load) -> list[Answer]:
    """Value of keeping and its ranking, pins and prefetches. Needs prices."""
    marginal = {tier: marginal_value(case, load, tier) for tier in load.tiers}
    kept = [(t, stay) for t in load.traffic for stay in stays_of(case, load, t)[:-1]]
    return [*_keeping(case, load, kept, marginal), *_pins(case, load, marginal), *_prefetches(case, load)]


def marginal_value(case: Case, load: Load, tier: str) -> Any:
    """What one more byte of a tier saves in GPU time, all else as it is [USD/s/B]: the slope of the reuse curve.

    Of the GPUs' own memory it is the pool that grows.
    """
    here = capacity.hbm_pool(case).nbytes if tier not in case.storage_tiers else case.tiers[tier].capacity
    more = np.maximum(np.asarray(here, float) * STEP, FIRST_BYTES)
    tiers = {**case.tiers, tier: case.tiers[tier].model_copy(update={"capacity": more})}
    wider = load_of(case.changed(tiers=tiers), load.tiers, load.traffic)
    gained = wider.saved_seconds.sum(axis=0) - load.saved_seconds.sum(axis=0)
    copies = (
        case.deployment.instances
        if tier not in case.storage_tiers
        else case.tiers[tier].count * (1 - np.asarray(case.tiers[tier].headroom, float))
    )
    second = cost.gpu_cost_rate(case) / case.deployment.instances
    return np.maximum(gained, 0.0) * second / ((more - here) * copies)


def _keeping(case: Case, load: Load, kept: list[tuple[Traffic, Stay]], marginal: dict[str, Any]) -> Iterator[Answer]:
    """Net value of one stay with its best window, per byte written, ranked within each tier."""
    values: dict[str, list[tuple[str, Any]]] = {}
    for t, stay in kept:
        law, p = t.sessions.gap_law, t.returning
        dropped = stays_of(case, load, t)[-1].return_cost
        price = np.maximum(stay.rent, stay.nbytes * marginal[stay.place])  # one market sets both: the dearer counts
        best = retention.optimal_window(law, price, np.maximum(dropped - stay.return_cost, 0.0), p)
        finite = np.where(np.isfinite(best.window), best.window, 0.0)
        held = p * law.restricted_mean(finite) + (1 - p) * finite
        held = np.where(np.isfinite(best.window), held, np.where(p < 1, np.inf, law.mean))
        held = np.where(price > 0, held, 0.0)  # bytes that cost nothing are free however long they are held
        net = retention.value_of_keeping(
            p * best.hit_probability, dropped, stay.return_cost, stay.write_cost, price, held
        )
        net = np.where(best.window > 0, net, 0.0)
        per_byte = net / np.maximum(stay.nbytes, 1e-300)
        where = {"population": t.name, "tier": stay.place}
        yield Answer(
            "value.per_stay",
            net,
            "USD",
            "value of keeping a waiting session for the best window: recompute "
            "less fetch, less wear, rent and what the bytes would save others",
            **where,
        )
        yield Answer("value.per_byte", per_byte, "USD/B", "the same per byte held", **where)
        values.setdefault(stay.place, []).append((t.name, per_byte))
    for tier, found in values.items():
        yield Answer(
            "value.marginal_byte",
            marginal[tier],
            "USD/B/s",
            "what one more byte of the tier saves per second",
            tier=tier,
        )
        yield Answer("value.rent_byte", rent_per_byte(case, tier), "USD/B/s", "what it costs per second", tier=tier)
        order = np.argsort(np.argsort(-np.stack(np.broadcast_arrays(*(v for _, v in found))), axis=0), axis=0) + 1.0
        for (name, _), rank in zip(found, order, strict=True):
            yield Answer("value.rank", rank, "", "place by value per byte, 1 first", population=name, tier=tier)


def _pins(case: Case, load: Load, marginal: dict[str, Any]) -> Iterator[Answer]:
    """Pinning the variants of a shared prefix in a tier: which pay, what they win and what they take.

    Without a pin a variant that is not found here is fetched from the tiers below, where they hold it, or computed
    again. What it lies under is taken as pinned already.
    """
    terms, second = timing.prefill_terms(case), cost.gpu_cost_rate(case) / case.deployment.instances
    for name, prefix in case.prefixes.items():
        users = [t for t in load.traffic if name in t.prefixes]
        if not users:
            continue
        share, count = _popularity(list(case.chain(name).values()), case.axes)
        rate = share * sum(t.turn_rate for t in users)
        found = np.cumsum(load.residency.prefix[users[0].name][name], axis=0)
        hits = [_hit_of_each(share, count, found[k]) for k in range(len(load.tiers))]
        upto = sum(np.asarray(one.tokens, float) for one in case.chain(name).values())
        again = terms.saved(upto) - terms.saved(upto - prefix.tokens)
        fetches = [
            np.minimum(timing.fetch_terms(case, tier).seconds(prefix.tokens), again)
            if tier in case.storage_tiers
            else 0.0 * again
            for tier in load.tiers
        ]
        for k, tier in enumerate(load.tiers):
            otherwise = (1 - hits[-1]) * again + sum(
                np.maximum(hits[j] - hits[j - 1], 0.0) * fetches[j] for j in range(k + 1, len(load.tiers))
            )
            missed = 1 - hits[k]
            miss = (otherwise / np.maximum(missed, 1e-300) - fetches[k]) * second
            nbytes = np.asarray(prefix.tokens, float) * capacity.stored_bytes_per_token(case, tier)
            price = np.maximum(marginal[tier], rent_per_byte(case, tier))
            gain = retention.pinning_gain(rate, np.maximum(miss, 0.0), hits[k], nbytes, price)
            pays = count * (gain > 0)
            where = {"population": name, "tier": tier}
            yield Answer("pin.variants", np.sum(pays, axis=0), "", "variants worth pinning", **where)
            yield Answer(
                "pin.gain",
                np.sum(pays * gain, axis=0),
                "USD/s",
                "what pinning them wins, less rent or what the bytes would save others, whichever is more",
                **where,
            )
            yield Answer("pin.bytes", nbytes * np.sum(pays, axis=0), "B", "bytes they take for good", **where)
            yield Answer(
                "pin.displaced",
                nbytes * np.sum(pays * missed, axis=0) * marginal[tier],
                "USD/s",
                "what others lose by it",
                **where,
            )
            yield Answer("pin.gain_of_hottest", gain[0], "USD/s", "pinning the most popular variant alone", **where)
            yield Answer("pin.gain_of_all", np.sum(count * gain, axis=0), "USD/s", "pinning every variant", **where)


def _popularity(chain: Sequence[SharedPrefix], axes: int) -> tuple[np.ndarray, np.ndarray]:
    """Share of requests of each variant of the last of some prefixes under each other, most popular first, and number
    of variants as popular, (variants,) + A. A prefix that lies under another has groups of variants."""
    last = None
    for prefix in chain:
        rank = np.arange(1.0, int(prefix.variants) + 1).reshape((-1,) + (1,) * axes)
        zipf = np.asarray(prefix.popularity.zipf, float)
        if last is None:
            last = working_set.SharedPrefix.explicit(prefix.tokens, rank**-zipf)
        else:
            last = working_set.SharedPrefix.zipf(prefix.tokens, prefix.variants, zipf, under=last)
    return last.paths(axes)


def _hit_of_each(share: np.ndarray, count: np.ndarray, mean_hit: Any) -> np.ndarray:
    """Hit probability of each variant under LRU, 1 - exp(-share x), x such that the mean over requests is as known."""
    low, high = -20.0 + 0.0 * np.asarray(mean_hit), 60.0 + 0.0 * np.asarray(mean_hit)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        short = np.sum(count * share * -np.expm1(-share * np.exp(middle)), axis=0) < mean_hit
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return -np.expm1(-share * np.exp(low))


def _prefetches(case: Case, load: Load) -> Iterator[Answer]:
    """Moving waiting sessions up between two ages, in expectation of their return: the best pair, and its gain."""
    for t in load.traffic:
        law, p = t.sessions.gap_law, t.returning
        stays = stays_of(case, load, t)
        ages = np.stack([np.zeros(law.shape), *(law.quantile(q) + 0.0 * t.context.mean for q in QUANTILES)])
        for stay in stays[1:-1]:
            best, first, last = -np.inf, np.zeros(()), np.zeros(())
            for i in range(1, len(ages) - 1):  # from age zero on it is keeping, not fetching ahead
                gain = retention.prefetch_gain(ages[i], ages[i + 1 :], law, stays[0].rent, stay.return_cost, p)
                top = np.max(gain, axis=0)
                stop = np.take_along_axis(ages[i + 1 :], np.argmax(gain, axis=0)[None], axis=0)[0]
                better = top > best
                first, last = np.where(better, ages[i], first), np.where(better, stop, last)
                best = np.where(better, top, best)
            where = {"population": t.name, "tier": stay.place}
            yield Answer(
                "prefetch.gain",
                best,
                "USD",
                f"most that moving a waiting session up to {stays[0].place} between two ages wins per stay",
                flags=("no prefetch by age pays",) * bool(np.all(best <= 0)),
                **where,
            )
            yield Answer(
                "prefetch.from_age", np.where(best > 0, first, np.nan), "s", "age at which to move it up", **where
            )
            yield Answer("prefetch.to_age", np.where(best > 0, last, np.nan), "s", "age at which to give up", **where)
