"""Break-even as curves: over prefix length, load, queue, position in the prompt, burst and stores.

Question answered: how does the choice between fetching and recomputing move when the path or the GPUs are busy?
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvmodel.analyses import timing
from kvmodel.analyses.answer import Answer, Curve
from kvmodel.analyses.breakeven import Question, Restore, restores
from kvmodel.formulas import breakeven, queueing
from kvmodel.system.case import Case

PREFIXES = np.unique(np.concatenate([2.0 ** np.arange(6, 21), np.geomspace(64, 1_048_576, 57)]))  # tokens
LOADS = np.array([0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98])
AHEAD = np.array([0.0, 1, 2, 4, 8, 16, 32, 64])
BURSTS = np.array([1.0, 2, 4, 8, 16, 32, 64, 128])
POSITIONS = 16  # blocks along the prompt that are compared one by one


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
            breakeven.break_even_bandwidth(r.path.nbytes(PREFIXES), saved=terms.saved(PREFIXES), fixed=r.path.waiting),
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
