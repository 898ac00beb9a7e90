"""Flash bytes per host byte: of our writes, and inside the drive's rating.

Question answered: by how much does the drive multiply what is written, mixed in one stream or placed apart?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.analyses.capacity import stored_bytes_per_token, tier_tokens
from kvmodel.analyses.serving import Load
from kvmodel.errors import MissingNumberError
from kvmodel.formulas import endurance
from kvmodel.formulas import mixed_streams as ms
from kvmodel.formulas import write_amplification as wa
from kvmodel.system.case import Case
from kvmodel.tiers.nvme import Nvme

PAGE = 4096.0  # bytes the flash translation layer of a drive maps as one, where its sheet does not say otherwise
SELDOM = 1e-9  # tokens per second of what is as good as never written
MANY = 1e6  # objects in a bucket of a store that compacts: blocks are small against its files
FIFO = "FIFO reclaim, which greedy reclaim meets for erase units of many pages"


@dataclass(frozen=True)
class Amplification:
    """Amplification of our writes and of the rated ones, and what was assumed."""

    ours: Any
    rated: Any
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Classes:
    """Classes of data by how long they live, on axis 0: sessions of each population, shared prefixes."""

    write_share: Any
    space_share: Any
    used_again: Any
    """Probability of a use after the turn that wrote them."""
    in_use: Any
    """Mean time from writing to the last use of what is used again [s]."""
    idle: Any
    """Time the tier keeps what is not used any more [s]."""


def rating_of(record: Nvme, tier: str) -> Any:
    """Rated host writes of one drive [B]."""
    if record.rated_writes is not None:
        return np.asarray(record.rated_writes, float)
    if record.rated_dwpd is not None and record.warranty is not None and record.capacity is not None:
        return endurance.rated_writes(record.capacity, record.rated_dwpd, record.warranty)
    raise MissingNumberError(
        f"tiers.{tier}.rated_writes is not given (nor rated_dwpd with warranty); it is needed for the lifetime"
    )


def classes_of(case: Case, load: Load, tier: str, written: Mapping[str, Any]) -> Classes:
    """Lifetime classes of what lies in a tier, from what is written and how long it is used.

    A byte is used until the session's last return, and kept T longer, with T such that all bytes fill the tier
    (Little's law): sum_k w_k (p_k m_k + T) = room. Shared prefixes stay.
    """
    room = np.asarray(tier_tokens(case, tier), float)
    prefixes = [name for name in written if name in case.prefixes]
    held = {}
    for name in prefixes:
        tenants = max(np.max(np.asarray(t.sessions.namespaces)) for t in load.traffic if name in t.prefixes)
        tokens = np.maximum(np.asarray(case.prefixes[name].tokens, float), 1.0)  # a class needs some space
        held[name] = case.texts(name) * tenants * tokens
    most = np.minimum(1.0, 0.5 * room / np.maximum(sum(held.values()), 1e-300))  # half the tier, all of them together
    held = {name: most * tokens for name, tokens in held.items()}
    left = np.maximum(room - sum(held.values()), 0.01 * room)
    rates = [np.maximum(written[t.name], 1e-300) for t in load.traffic]
    longest = left / sum(rates)  # if nothing were used again
    again, use = [], []
    for t in load.traffic:
        some = t.sessions.gap_law.cdf(longest)  # a longer pause ends its life here
        going = t.returning * some
        again.append(going)
        use.append(np.maximum(t.sessions.gap_law.restricted_mean(longest), 1e-9) / (1 - np.minimum(going, 1 - 1e-9)))
    idle = np.maximum(left - sum(r * p * m for r, p, m in zip(rates, again, use, strict=True)), 0.0) / sum(rates)
    space = [r * (p * m + idle) for r, p, m in zip(rates, again, use, strict=True)]
    writes = [*rates, *(np.maximum(written[name], SELDOM) for name in prefixes)]
    stacked = [
        np.stack(np.broadcast_arrays(*part))
        for part in (
            [w / sum(writes) for w in writes],
            [*space, *(held[name] for name in prefixes)],
            [*again, *(np.ones(()) for _ in prefixes)],
            [*use, *(held[name] / np.maximum(written[name], SELDOM) for name in prefixes)],
        )
    ]
    return Classes(stacked[0], stacked[1] / np.sum(stacked[1], axis=0), stacked[2], stacked[3], idle)


def amplification_of(case: Case, load: Load, tier: str, written: Mapping[str, Any]) -> Amplification:
    """Amplification of tokens written per second, by population, and of the drive's rating."""
    record = case.tiers[tier]
    random, alpha, flags = _rated(record)
    if record.amplification is not None:
        return Amplification(
            np.asarray(record.amplification, float),
            random if random is not None else np.ones(()),
            (*flags, *_unknown(random)),
        )
    if alpha is None:
        both = np.ones(()) if random is None else random
        return Amplification(
            _host_side(record) * both,
            both,
            ("amplification unknown: our writes taken to wear as the rated pattern does",),
        )
    live = alpha / np.asarray(record.live_share, float)
    chosen, said = _chosen(record, live, lambda: classes_of(case, load, tier, written))
    if not np.all(wa.spare_valid(live)):
        flags += ("less than 1 % of spare: the steady-state formulas diverge",)
    ours = chosen * _host_side(record)
    return Amplification(
        ours,
        random if random is not None else np.ones(()),
        (*flags, *said, *_unknown(random), *_fine_print(case, record, tier)),
    )


def _rated(record: Nvme) -> tuple[Any, Any, tuple[str, ...]]:
    """Amplification inside the rating and physical over logical, each None where nothing says it."""
    if record.rated_writes is not None and record.rated_writes_sequential is not None:
        ratio = endurance.rated_amplification(record.rated_writes, record.rated_writes_sequential)
        if record.spare is not None:
            return ratio, 1 + np.asarray(record.spare, float), ()
        return (
            ratio,
            wa.fifo_physical_over_logical(ratio),
            ("spare found from the two ratings: the random one taken as uniform random writes",),
        )
    if record.spare is not None:
        alpha = 1 + np.asarray(record.spare, float)
        return (
            wa.fifo_amplification(alpha),
            alpha,
            (f"amplification inside the rating taken from the spare: uniform random writes, {FIFO}",),
        )
    return None, None, ()


def _unknown(random: Any) -> tuple[str, ...]:
    return ("amplification inside the rating unknown, taken as 1: the lifetime is a lower bound",) * (random is None)


def placements(case: Case, load: Load, tier: str, written: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """Amplification of the same writes under every placement: name -> (value, what it is); empty without a spare."""
    _, alpha, _ = _rated(case.tiers[tier])
    if alpha is None:
        return {}
    live = alpha / np.asarray(case.tiers[tier].live_share, float)
    classes = classes_of(case, load, tier, written)
    return {name: (law(live, classes), said) for name, (law, said) in PLACEMENTS.items()}


# How data of several lifetimes is placed and freed -> its amplification, and what it is.
PLACEMENTS: dict[str, tuple[Callable[[Any, Classes], Any], str]] = {
    "one_stream": (
        lambda alpha, c: ms.shared_stream(alpha, c.write_share, c.space_share).amplification,
        "lifetimes mixed in one stream, freed at random",
    ),
    "separate_streams_by_size": (
        lambda alpha, c: ms.separate_streams_amplification(alpha, c.write_share, c.space_share, c.space_share),
        "one stream per lifetime class, spare shared by size",
    ),
    "separate_streams": (
        lambda alpha, c: ms.best_spare_split(alpha, c.write_share, c.space_share).amplification,
        "one stream per lifetime class, spare split in the best way",
    ),
    "least_recently_used": (
        lambda alpha, c: ms.idle_stream_amplification(alpha, c.write_share, c.used_again, c.in_use, c.idle),
        "lifetimes mixed in one stream, least recently used freed first",
    ),
    "in_log_order": (
        lambda alpha, c: np.ones(np.broadcast_shapes(np.shape(alpha), np.shape(c.idle))),
        "whole regions freed in the order written",
    ),
}


def _chosen(record: Nvme, alpha: Any, classes: Callable[[], Classes]) -> tuple[Any, tuple[str, ...]]:
    """The placement the tier's own fields describe."""
    if record.frees == "in_log_order":
        return np.ones(np.shape(alpha)), ("space is freed in log order: hits do not extend a life as under LRU",)
    if record.object_bytes is not None and record.erase_unit is not None:
        return _of_objects(record, alpha)
    name = "least_recently_used" if record.frees == "least_recently_used" else "one_stream"
    if record.fdp:
        name = "separate_streams" if record.spare_split == "best" else "separate_streams_by_size"
    law, said = PLACEMENTS[name]
    return law(alpha, classes()), (f"{said}; {FIFO}",)


def _of_objects(record: Nvme, alpha: Any) -> tuple[Any, tuple[str, ...]]:
    """Objects freed at random against the erase unit, greedy reclaim."""
    unit = np.asarray(record.indirection_unit if record.indirection_unit is not None else PAGE, float)
    pages = np.maximum(np.round(np.asarray(record.object_bytes, float) / unit), 1.0)
    erase = np.maximum(np.round(np.asarray(record.erase_unit, float) / unit), 1.0)
    if np.all(wa.object_aligned(pages, erase)):
        return wa.object_amplification(alpha, pages, erase), (
            "objects are whole erase units: nothing is copied, as long as they have a stream of their own",
        )
    return wa.object_amplification(alpha, pages, erase), (
        "objects straddle erase units: an estimate within 15 %, greedy reclaim; measure, or use whole units",
    )


def _host_side(record: Nvme) -> Any:
    """Amplification before the drive's collection: mapping unit, and a store that compacts its buckets."""
    factor: Any = np.ones(())
    if record.write_size is not None and record.indirection_unit is not None:
        factor = factor * wa.indirection_amplification(record.write_size, record.indirection_unit)
    if record.compaction_threshold is not None:
        factor = factor * wa.bucket_store(record.compaction_threshold, MANY).amplification
    return factor


def _fine_print(case: Case, record: Nvme, tier: str) -> tuple[str, ...]:
    """What the stated layout asks of the rest of the study."""
    notes: tuple[str, ...] = ()
    if record.compaction_threshold is not None:
        used = np.min(wa.bucket_store(record.compaction_threshold, MANY).utilisation)
        notes += (f"compaction leaves {used:.2f} of the store live: its headroom should be at least {1 - used:.2f}",)
    if record.indirection_unit is not None and record.write_size is None:
        block = stored_bytes_per_token(case, tier) * case.deployment.engine.reuse_granularity_tokens(
            case.model, case.deployment.tensor_parallel
        )
        if np.any(block < record.indirection_unit):
            notes += (
                "blocks are smaller than the drive's mapping unit: say write_size if they are written one by one",
            )
    return notes
