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
from kvmodel.analyses.answer import Answer
from kvmodel.formulas import breakeven, latency, transfer
from kvmodel.system.case import Case

COMPUTE_BOUND = 256.0  # tokens from which a prefill is bound by compute and the linear law holds; assumed
SHORT = (
    "a prefill of so few tokens is bound by reading the weights, a hit saves less than the law says: read it as short"
)


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
    predicted: bool = False
    """Whether prefill is predicted at an assumed efficiency, not measured."""

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
        return self.path.fixed - self.path.waiting + self.path.per_token * np.asarray(self.question.prefix, float)

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
    predicted = case.deployment.prefill.mfu is not None
    return [Restore(tier, terms, timing.fetch_terms(case, tier), question, predicted) for tier in case.storage_tiers]


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
    factor = timing.ROOFLINE_FACTOR if r.predicted else 1.0
    ends = [breakeven.fetch_wins(r.fetch, r.saved * f) == wins for f in (1.0 / factor, factor)]
    yield Answer(
        "breakeven.sure",
        np.all(ends, axis=0).astype(float),
        "",
        f"1 where the verdict is the same with a prefill {factor:g} times as fast and as slow",
        tier=r.tier,
    )
    yield Answer(
        "time.path_bandwidth", r.path.bandwidth, "B/s", "of one restore: the smaller of devices and links", tier=r.tier
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
        r.path.nbytes(r.question.prefix),
        "B",
        "bytes the path moves for the prefix",
        tier=r.tier,
    )


def _thresholds(r: Restore) -> Iterator[Answer]:
    shortest = timing.break_even_tokens(r.prefill, r.path)
    yield Answer(
        "breakeven.tokens_idle",
        shortest,
        "token",
        "shortest prefix worth fetching, idle path, nothing hidden",
        tier=r.tier,
        flags=(SHORT,) if r.predicted and np.any((shortest > 0) & (shortest < COMPUTE_BOUND)) else (),
    )
    moved = r.path.nbytes(r.question.prefix)
    yield Answer(
        "breakeven.bandwidth",
        breakeven.break_even_bandwidth(moved, saved=r.saved, fixed=r.path.waiting + r.beside_bytes),
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
    moved = r.path.nbytes(r.question.prefix)
    yield Answer(
        "prefetch.waste",
        latency.prefetch_waste_bytes(moved, used_probability=r.question.used),
        "B",
        "bytes moved in vain per prefetch that is used",
        tier=r.tier,
    )


def _operations(case: Case, r: Restore) -> Iterator[Answer]:
    """Small operations cost CPU, large ones block an urgent restore."""
    record, moved = case.tiers[r.tier], r.path.nbytes(r.question.prefix)
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
