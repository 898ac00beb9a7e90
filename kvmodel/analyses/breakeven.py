"""Fetch a prefix or compute it again: per tier, idle and under load, and the numbers at which the verdict flips.

Question answered: from which prefix length, bandwidth, load and queue on is each tier worth fetching from?

All restores and prompts in a queue are taken to be like the one asked about. What moves once (a restore) is kept apart
from what moves at every token (`kvmodel.analyses.streamed_decode`) and from what moves without any reuse
(`kvmodel.analyses.handoff`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.analyses import timing
from kvmodel.analyses.answer import Answer, Curve
from kvmodel.formulas import breakeven, latency, queueing, transfer
from kvmodel.system.case import Case

PREFIXES = np.unique(np.concatenate([2.0 ** np.arange(6, 21), np.geomspace(64, 1_048_576, 57)]))  # tokens
LOADS = np.array([0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98])
AHEAD = np.array([0.0, 1, 2, 4, 8, 16, 32, 64])
BURSTS = np.array([1.0, 2, 4, 8, 16, 32, 64, 128])
POSITIONS = 16  # blocks along the prompt that are compared one by one


@dataclass(frozen=True)
class Question:
    """The restore asked about; every number may be an array over the study's axes."""

    prefix: Any
    """Tokens of the prefix [tokens]."""
    suffix: Any = 0.0
    """Tokens behind it that are computed either way [tokens]."""
    deadline: Any = None
    """When the prefix must be consumable, counted from the request [s]; None: when a recompute would be done."""
    lead: Any = 0.0
    """How long before the request a prefetch is issued [s]."""
    used: Any = 1.0
    """Probability that a prefetched prefix is used."""
    path_load: Any = 0.3
    """Share of its time the path spends on restores, where stores are added to it."""


@dataclass(frozen=True)
class Restore:
    """One tier's restore of the prefix asked about, alone on the path."""

    tier: str
    prefill: timing.PrefillTerms
    path: timing.FetchTerms
    question: Question

    @property
    def saved(self) -> Any:
        """Prefill time the hit saves [s]."""
        return self.prefill.saved(self.question.prefix)

    @property
    def suffix(self) -> Any:
        """Prefill time paid either way [s]."""
        return self.prefill.seconds(self.question.prefix + self.question.suffix, self.question.prefix)

    @property
    def whole(self) -> Any:
        """Prefill of the prompt without a hit [s]."""
        return self.suffix + self.saved

    @property
    def fetch(self) -> Any:
        """Fetch that is not hidden behind the suffix's prefill [s]."""
        hidden = self.suffix - self.prefill.constant
        return self.path.seconds(self.question.prefix, compute=hidden)

    @property
    def service(self) -> Any:
        """Time the restore occupies the path [s]."""
        return self.path.per_token * np.asarray(self.question.prefix, float)

    @property
    def beside_bytes(self) -> Any:
        """Part of that which copies and conversion cost beside the bytes [s]."""
        extra = self.path.per_token - self.path.bytes_per_token / self.path.bandwidth
        return np.where(extra > 1e-12 * self.path.per_token, extra, 0.0) * self.question.prefix

    @property
    def deadline(self) -> Any:
        """When it must be there [s]."""
        return self.saved if self.question.deadline is None else self.question.deadline


def restores(case: Case, question: Question) -> list[Restore]:
    """One per storage tier, fast to slow."""
    terms = timing.prefill_terms(case)
    return [Restore(tier, terms, timing.fetch_terms(case, tier), question) for tier in case.storage_tiers]


def evaluate(case: Case, question: Question) -> list[Answer]:
    """Break-even numbers of every storage tier."""
    answers = [
        Answer("breakeven.prefix", question.prefix, "token", "prefix asked about"),
        Answer("breakeven.suffix", question.suffix, "token", "tokens behind it, computed either way"),
        Answer(
            "time.recompute",
            timing.prefill_terms(case).saved(question.prefix),
            "s",
            "prefill time the prefix costs when it is not found",
        ),
    ]
    for restore in restores(case, question):
        answers += [
            *_verdict(restore),
            *_thresholds(restore),
            *_splits(restore),
            *_prefetch(restore),
            *_operations(case, restore),
        ]
    return answers


def _verdict(r: Restore) -> Iterator[Answer]:
    yield Answer(
        "time.fetch", r.fetch, "s", "fetch of the prefix on an idle path, as far as nothing hides it", tier=r.tier
    )
    wins = breakeven.fetch_wins(r.fetch, r.saved)
    yield Answer(
        "breakeven.fetch_wins",
        wins.astype(float),
        "",
        "1 where fetching is strictly faster than recomputing",
        tier=r.tier,
        flags=() if np.all(wins) else ("refused: the path is too slow for this prefix",),
    )
    yield Answer(
        "path.bandwidth", r.path.bandwidth, "B/s", "of one restore: the smaller of devices and links", tier=r.tier
    )
    yield Answer(
        "path.bytes_per_token",
        r.path.bytes_per_token,
        "B/token",
        "bytes the path moves per token, every rank's copy counted",
        tier=r.tier,
    )
    yield Answer(
        "path.bytes",
        r.path.bytes_per_token * np.asarray(r.question.prefix, float),
        "B",
        "bytes the path moves for the prefix",
        tier=r.tier,
    )


def _thresholds(r: Restore) -> Iterator[Answer]:
    yield Answer(
        "breakeven.tokens",
        timing.break_even_tokens(r.prefill, r.path),
        "token",
        "shortest prefix worth fetching, idle path, nothing hidden",
        tier=r.tier,
    )
    moved = r.path.bytes_per_token * np.asarray(r.question.prefix, float)
    yield Answer(
        "breakeven.bandwidth",
        breakeven.break_even_bandwidth(moved, saved=r.saved, fixed=r.path.fixed + r.beside_bytes),
        "B/s",
        "least path bandwidth at which this prefix is worth fetching",
        tier=r.tier,
    )
    yield Answer(
        "breakeven.utilisation",
        breakeven.break_even_utilisation(fetch=r.fetch, service=r.service, saved=r.saved),
        "",
        "use of the path by restores like this one at which the mean wait (M/D/1) takes the advantage away",
        tier=r.tier,
    )
    slack = breakeven.break_even_queue_seconds(fetch=r.fetch, saved=r.saved)
    yield Answer(
        "breakeven.queue_seconds",
        slack,
        "s",
        "longest wait before the fetch at which it still pays; give the hit up when it takes longer",
        tier=r.tier,
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        yield Answer(
            "breakeven.queue_restores",
            np.where(slack > 0, np.floor(slack / r.service), 0.0),
            "",
            "restores like this one ahead of it at which it still pays",
            tier=r.tier,
        )


def _splits(r: Restore) -> Iterator[Answer]:
    per_token = {"per_token": r.path.per_token, "linear": r.prefill.linear, "attention": r.prefill.attention}
    yield Answer(
        "breakeven.position",
        breakeven.break_even_position(**per_token),
        "token",
        "prompt position from which a token is dearer to compute than to fetch, fixed cost apart",
        tier=r.tier,
    )
    head, seconds = breakeven.parallel_split(r.question.prefix, fixed=r.path.fixed, constant=0.0, **per_token)
    yield Answer(
        "breakeven.split_head",
        head,
        "token",
        "best head to compute while the tail is fetched, both at once; 0: fetch all",
        tier=r.tier,
    )
    yield Answer("breakeven.split_seconds", seconds, "s", "time of the prefix with that split", tier=r.tier)
    head = breakeven.compute_then_fetch_split(r.question.prefix, **per_token)
    tail = np.asarray(r.question.prefix, float) - head
    serial = r.prefill.saved(head) + np.where(tail > 0, r.path.fixed + r.path.per_token * tail, 0.0)
    best = np.minimum(np.minimum(serial, r.saved), r.path.seconds(r.question.prefix))
    yield Answer(
        "breakeven.serial_seconds",
        best,
        "s",
        "the same, one after the other: best of none, all and a split",
        tier=r.tier,
    )


def _prefetch(r: Restore) -> Iterator[Answer]:
    yield Answer(
        "prefetch.wait",
        latency.prefetch_wait_seconds(fetch=r.fetch, lead=r.question.lead),
        "s",
        "what the request still waits for a fetch issued the lead time before it: accepted is not ready",
        tier=r.tier,
    )
    moved = r.path.bytes_per_token * np.asarray(r.question.prefix, float)
    yield Answer(
        "prefetch.waste",
        latency.prefetch_waste_bytes(moved, used_probability=r.question.used),
        "B",
        "bytes moved in vain per prefetch that is used",
        tier=r.tier,
    )


def _operations(case: Case, r: Restore) -> Iterator[Answer]:
    """Small operations cost CPU, large ones block an urgent restore."""
    record, moved = case.tiers[r.tier], r.path.bytes_per_token * np.asarray(r.question.prefix, float)
    largest = moved if record.largest_transfer is None else np.minimum(record.largest_transfer, moved)
    yield Answer(
        "path.copies", transfer.copy_count(moved, copy_bytes=largest), "", "copies of the largest transfer", tier=r.tier
    )
    yield Answer(
        "path.copy_seconds",
        r.beside_bytes,
        "s",
        "time these copies cost beside their bytes, and conversion",
        tier=r.tier,
    )
    yield Answer(
        "path.blocking",
        transfer.blocking_seconds(largest_transfer=largest, bandwidth=r.path.bandwidth),
        "s",
        "longest an urgent restore waits for a copy under way",
        tier=r.tier,
    )


# --- curves ---------------------------------------------------------------------------------------


def curves(case: Case, question: Question) -> dict[str, Curve]:
    """Curves of a case whose numbers are all single: over prefix, load, queue, position, burst and stores."""
    found = restores(case, question)
    terms = timing.prefill_terms(case)
    return {
        "prefix": Curve("prefix", PREFIXES, "token", tuple(_over_prefix(terms, found))),
        "load": Curve("utilisation", LOADS, "", tuple(_over_load(found))),
        "queue": Curve("ahead", AHEAD, "", tuple(_over_queue(found))),
        "position": _over_positions(terms, found, question),
        "burst": Curve("restores", BURSTS, "", tuple(_over_burst(terms, found, question))),
        "stores": _over_stores(found, question),
    }


def _over_prefix(terms: timing.PrefillTerms, found: list[Restore]) -> Iterator[Answer]:
    yield Answer("time.recompute", terms.saved(PREFIXES), "s", "prefill time the prefix costs when it is not found")
    for r in found:
        idle = r.path.seconds(PREFIXES)
        yield Answer("time.fetch", idle, "s", "fetch on an idle path, nothing hidden", tier=r.tier)
        for load in (0.5, 0.9):
            wait = queueing.single_server_mean_wait(load, r.path.per_token * PREFIXES, 0.0)
            yield Answer(
                f"time.fetch_at_{load:.0%}",
                idle + wait,
                "s",
                f"the same with the path {load:.0%} busy with such fetches (M/D/1)",
                tier=r.tier,
            )
        yield Answer(
            "breakeven.bandwidth",
            breakeven.break_even_bandwidth(
                r.path.bytes_per_token * PREFIXES, saved=terms.saved(PREFIXES), fixed=r.path.fixed
            ),
            "B/s",
            "least path bandwidth at which the prefix is worth fetching",
            tier=r.tier,
        )


def _over_load(found: list[Restore]) -> Iterator[Answer]:
    """How the shortest prefix worth fetching moves when the path, or the GPUs, are busy with work like this."""
    for r in found:
        wait = queueing.single_server_mean_wait(LOADS, r.service, 0.0)
        yield Answer(
            "breakeven.tokens_busy_path",
            timing.break_even_tokens(r.prefill, r.path, wait),
            "token",
            "shortest prefix worth fetching, path so busy",
            tier=r.tier,
        )
        own = queueing.single_server_mean_wait(LOADS, r.whole, 0.0)
        yield Answer(
            "breakeven.tokens_busy_gpu",
            timing.break_even_tokens(r.prefill, r.path, -own),
            "token",
            "shortest prefix worth fetching, GPUs so busy with such prompts: the fetch runs while the request "
            "waits for them",
            tier=r.tier,
        )
        yield Answer(
            "breakeven.tokens_all_counted",
            _all_counted(r, own),
            "token",
            "the same without that overlap, but with what a recompute costs everyone behind it",
            tier=r.tier,
        )
        yield Answer(
            "breakeven.timely",
            _timely(r, 0.0),
            "",
            "probability of being consumable by the deadline, path so busy",
            tier=r.tier,
        )
        yield Answer(
            "breakeven.timely_prefetched",
            _timely(r, r.question.lead),
            "",
            "the same when the fetch is issued the lead time before",
            tier=r.tier,
        )
        yield Answer("time.fetch_wait", wait, "s", "mean wait before the fetch", tier=r.tier)


def _all_counted(r: Restore, mean_wait: Any) -> Any:
    """Break-even when the GPU time a fetch frees is counted for all who queue, not only for this request."""
    rate = LOADS / r.whole

    def gain(prefix: Any) -> Any:
        saved = r.prefill.saved(prefix)
        freed = queueing.others_delay_seconds(
            r.suffix + saved, rate=rate, utilisation=LOADS, mean_wait=mean_wait
        ) - queueing.others_delay_seconds(r.suffix, rate=rate, utilisation=LOADS, mean_wait=mean_wait)
        return saved + freed - r.path.seconds(prefix)

    return breakeven.break_even_where(gain, LOADS)


def _timely(r: Restore, lead: Any) -> Any:
    left = r.deadline + lead - r.fetch
    return 1.0 - queueing.deterministic_wait_exceedance(left, utilisation=LOADS, service=r.service)


def _over_queue(found: list[Restore]) -> Iterator[Answer]:
    for r in found:
        yield Answer(
            "breakeven.tokens_behind_restores",
            timing.break_even_tokens(r.prefill, r.path, AHEAD * r.service),
            "token",
            "shortest prefix worth fetching behind so many restores",
            tier=r.tier,
        )
        yield Answer(
            "breakeven.tokens_behind_prompts",
            timing.break_even_tokens(r.prefill, r.path, -AHEAD * r.whole),
            "token",
            "shortest prefix worth fetching while so many prompts wait for the GPUs",
            tier=r.tier,
        )


def _over_positions(terms: timing.PrefillTerms, found: list[Restore], question: Question) -> Curve:
    """Each block of the prefix by itself: what it costs to compute and to fetch, fixed cost apart."""
    block = float(question.prefix) / POSITIONS
    start = block * np.arange(POSITIONS)
    rows = [
        Answer(
            "time.compute_block",
            terms.saved(start + block) - terms.saved(start),
            "s",
            "compute this block, all before it being there",
        )
    ]
    rows += [
        Answer("time.fetch_block", np.full(POSITIONS, r.path.per_token * block), "s", "fetch this block", tier=r.tier)
        for r in found
    ]
    return Curve("position", start, "token", tuple(rows))


def _over_burst(terms: timing.PrefillTerms, found: list[Restore], question: Question) -> Iterator[Answer]:
    """So many requests at once on one instance: restores share the path, recomputes the GPUs."""
    saved = terms.saved(question.prefix)
    yield Answer(
        "time.recompute_burst",
        queueing.burst_mean_seconds(BURSTS, saved),
        "s",
        "mean finish when all are recomputed, one after the other",
    )
    for r in found:
        rest = r.fetch - r.service
        yield Answer(
            "time.fetch_burst",
            rest + queueing.burst_mean_seconds(BURSTS, r.service),
            "s",
            "mean finish when all are fetched, one after the other",
            tier=r.tier,
        )
        yield Answer(
            "time.fetch_burst_last",
            rest + queueing.burst_seconds(BURSTS, r.service),
            "s",
            "finish of the last, and of every one where they share the path evenly",
            tier=r.tier,
        )


def _over_stores(found: list[Restore], question: Question) -> Curve:
    """Stores of the same size on the same path, beside restores that use the question's share of it."""
    share = np.linspace(0.0, 0.95, 6) * (1.0 - question.path_load)
    rows = []
    for r in found:
        service = np.full((2, len(share)), float(r.service))
        rates = np.stack([np.full(len(share), question.path_load), share]) / service
        together = queueing.single_server_mean_wait(share + question.path_load, r.service, 0.0)
        first, last = queueing.priority_mean_wait(rates, service, np.zeros_like(service))
        rows += [
            Answer(
                "time.wait_with_stores",
                together,
                "s",
                "mean wait of a restore among stores, first come first served",
                tier=r.tier,
            ),
            Answer("time.wait_before_stores", first, "s", "the same when restores go before stores", tier=r.tier),
            Answer("time.store_wait", last, "s", "what the stores then wait", tier=r.tier),
        ]
    return Curve("stores", share, "", tuple(rows))
