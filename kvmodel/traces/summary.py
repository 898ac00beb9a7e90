"""Everything the trace command says about a trace, as one plain document.

Keys are stable. Ratios carry six decimals, and the whole numbers they come from stand beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.traces.belady import belady_hits
from kvmodel.traces.columns import MICROSECONDS, Trace
from kvmodel.traces.distribution import distribution
from kvmodel.traces.hit_curve import (
    HitCurve,
    hit_curve,
    input_tokens_of_rows,
    lru_curve,
    prefix_hits_last_to_first,
    prefix_needed_blocks,
    resident_blocks,
)
from kvmodel.traces.knee import capacity_for_share, cliffs, concave_hull, economic_knee, geometric_knee
from kvmodel.traces.prefix_tree import RunStream, run_stream
from kvmodel.traces.reuse_time import reuse_gaps, ttl_hits, working_set
from kvmodel.traces.sampling_error import sampling_error
from kvmodel.traces.stack_distance import StackDistances, stack_distances

WINDOWS_S = (1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)
SECONDS_PER_HOUR = 3600.0
_CURVE_POINTS = 41
BELADY_UNASKED_ROWS = 1_000_000
"""Run accesses up to which the best possible is worked out at capacities nobody named."""

DEFINITIONS = {
    "infinite_cache.block_hit_ratio": "block accesses whose block was seen before / all block accesses",
    "infinite_cache.prefix_block_hit_ratio": "leading blocks all seen in earlier requests / block accesses",
    "infinite_cache.prefix_token_hit_ratio": "input tokens in those leading blocks / all input tokens",
    "infinite_cache.prefix_token_hit_ratio_full_blocks": "the same, a partial last block never counting",
    "infinite_cache.mean_per_request_prefix_token_ratio": "mean of hit tokens / input tokens over requests",
    "lru.block_hit_ratio": "LRU over the block accesses, every miss inserted: hits / block accesses",
    "prefix_lru_forward_touch": "a request looks up all its blocks, then touches them first to last",
    "prefix_lru_reverse_touch": "the same, touching last to first: tails leave before heads, as in engines",
    "belady.block_hit_ratio": "clairvoyant replacement: no rule that always admits does better",
    "working_set.mean_blocks": "blocks used in the last window, time average from one window on",
    "working_set.max_blocks": "its largest value right after a request",
    "working_set.seen_by_accesses_blocks": "its mean just before requests, weighted by their blocks (Palm)",
    "ttl.block_hit_ratio": "hits of an unlimited cache that forgets a block this long after its last use",
    "misses_per_s": "blocks inserted per second of trace: the write demand",
}


@dataclass(frozen=True)
class SummaryOptions:
    """What to answer besides the standing questions. Capacities are blocks of the whole trace, also when
    sampled.
    """

    capacities: Sequence[int] | None = None
    windows_s: Sequence[float] = WINDOWS_S
    tiers: Sequence[tuple[str, int]] = ()
    kv_bytes_per_token: float | None = None
    break_even_hits_per_block_hour: float | None = None
    sample: float = 1.0


@dataclass(frozen=True)
class _Analysed:
    """A trace with its runs and stack distances, so that each is computed once."""

    trace: Trace
    options: SummaryOptions
    stream: RunStream
    forward: StackDistances
    reverse: StackDistances
    curve: HitCurve

    def on_sample(self, capacity: int) -> int:
        return int(capacity * self.options.sample)

    @property
    def seconds(self) -> float | None:
        duration = self.trace.duration_us
        return duration / MICROSECONDS if duration else None


def trace_summary(trace: Trace, options: SummaryOptions | None = None) -> dict[str, Any]:
    """The document for one trace; parts a trace cannot answer (no blocks, no clock) are null or empty."""
    options = options or SummaryOptions()
    document = _arrivals_and_lengths(trace)
    if not trace.has_blocks:
        return document | {"notes": [*trace.notes, "no block ids: arrivals and lengths only"]}
    stream = run_stream(trace)
    document |= {
        "block_tokens": trace.block_tokens,
        "block_accesses": stream.block_accesses,
        "unique_blocks": stream.unique_blocks,
        "run_accesses": len(stream.run),
    }
    forward = stack_distances(stream)
    analysed = _Analysed(
        trace,
        options,
        stream,
        forward,
        stack_distances(stream, last_to_first=True),
        lru_curve(stream, forward),
    )
    document["infinite_cache"] = _infinite_cache(analysed)
    document |= _block_statistics(analysed)
    notes = list(trace.notes)
    if trace.common_clock:
        document |= _curves(analysed) | _times(analysed)
        if not document["belady"]:
            notes.append("the best possible takes long here; name capacities to have it worked out")
    else:
        notes.append("when sessions start is not recorded: no common cache; give a session interval for curves")
    return document | {"sampling": _sampling(analysed), "notes": notes, "definitions": DEFINITIONS}


def default_capacities(curve: HitCurve, scale: float = 1.0) -> list[int]:
    """1, 2, 5 times powers of ten over three decades, up to the first at which nothing more can hit."""
    enough = int(curve.capacity_blocks[-1] / scale) if len(curve.capacity_blocks) else 1
    grid = [step * 10**power for power in range(18) for step in (1, 2, 5)]
    last = next(k for k, capacity in enumerate(grid) if capacity >= enough)
    return grid[max(0, last - 9) : last + 1]


def _arrivals_and_lengths(trace: Trace) -> dict[str, Any]:
    seconds = trace.duration_us / MICROSECONDS if trace.duration_us is not None else None
    has_output = bool(np.any(trace.output_tokens >= 0))
    document: dict[str, Any] = {
        "trace": trace.name,
        "format": trace.format,
        "requests": trace.requests,
        "skipped_lines": trace.skipped_lines,
        "duration_s": seconds,
        "request_rate_per_s": round(trace.requests / seconds, 6) if seconds else None,
        "input_tokens": int(trace.input_tokens.sum()),
        "output_tokens": int(trace.output_tokens[trace.output_tokens >= 0].sum()) if has_output else None,
        "input_length": distribution(trace.input_tokens),
        "output_length": distribution(trace.output_tokens[trace.output_tokens >= 0]),
        "interarrival_s": None,
        "interarrival_cv": None,
    }
    if seconds and trace.time_us is not None and trace.requests > 1:
        gaps = np.diff(trace.time_us) / MICROSECONDS
        document["interarrival_s"] = distribution(gaps)
        document["interarrival_cv"] = round(float(gaps.std() / gaps.mean()), 6)
    document |= {"block_tokens": None, "block_accesses": None, "unique_blocks": None, "infinite_cache": None}
    return document | {"lru": [], "belady": [], "working_set": []}


def _infinite_cache(a: _Analysed) -> dict[str, Any]:
    stream, trace = a.stream, a.trace
    leading = prefix_needed_blocks(stream, a.forward.depth) < np.iinfo(np.int64).max
    tokens = np.where(leading, input_tokens_of_rows(stream, trace), 0)
    full = np.where(leading, input_tokens_of_rows(stream, trace, full_blocks=True), 0)
    accesses, length = stream.block_accesses, int(trace.input_tokens.sum())
    hit_blocks = int(stream.blocks[leading].sum())
    per_request = np.bincount(stream.request, weights=tokens, minlength=trace.requests)
    blocks_per_request = np.bincount(stream.request, weights=stream.blocks * leading, minlength=trace.requests)
    some = trace.input_tokens > 0
    mean = float(np.mean(per_request[some] / trace.input_tokens[some])) if some.any() else None
    reused = accesses - stream.unique_blocks
    return {
        "block_hit_ratio": _ratio(reused, accesses),
        "hit_blocks": reused,
        "prefix_block_hit_ratio": _ratio(hit_blocks, accesses),
        "prefix_hit_blocks": hit_blocks,
        "prefix_token_hit_ratio": _ratio(int(tokens.sum()), length),
        "prefix_hit_tokens": int(tokens.sum()),
        "prefix_token_hit_ratio_full_blocks": _ratio(int(full.sum()), length),
        "mean_per_request_prefix_token_ratio": _rounded(mean),
        "requests_with_any_prefix_hit": _ratio(int((blocks_per_request > 0).sum()), trace.requests),
        "requests_with_more_than_one_block_hit": _ratio(int((blocks_per_request > 1).sum()), trace.requests),
    }


def _block_statistics(a: _Analysed) -> dict[str, Any]:
    stream = a.stream
    uses = np.bincount(stream.run, minlength=len(stream.run_blocks))
    once = int(stream.run_blocks[uses == 1].sum())
    again = a.forward.previous >= 0
    return {
        "fraction_blocks_never_reused": _ratio(once, stream.unique_blocks),
        "accesses_per_block": distribution(uses, stream.run_blocks),
        "blocks_per_request": distribution(a.trace.blocks),
        "stack_distance_blocks": distribution(a.forward.distance[again], stream.blocks[again]),
    }


def _curves(a: _Analysed) -> dict[str, Any]:
    options, stream = a.options, a.stream
    capacities = list(options.capacities or default_capacities(a.curve, options.sample))
    accesses = stream.block_accesses
    lru = []
    for capacity in capacities:
        hits = int(a.curve.hits_at(np.array(a.on_sample(capacity))))
        lru.append(_sizes(a, capacity) | _hits(hits, accesses) | _writes(a, accesses - hits))
    return {
        "lru": lru,
        "belady": _belady(a, capacities),
        "prefix_lru_forward_touch": _prefix_forward(a, capacities),
        "prefix_lru_reverse_touch": [{"capacity_blocks": c} | _prefix_reverse(a, c) for c in capacities],
        "lru_curve": _log_grid(a),
        "knee": _knee(a),
        "tiers": _tiers(a),
    }


def _belady(a: _Analysed, capacities: Sequence[int]) -> list[dict[str, Any]]:
    """Empty when it would take minutes and nobody named the capacities."""
    if a.options.capacities is None and len(a.stream.run) > BELADY_UNASKED_ROWS:
        return []
    hits = [belady_hits(a.stream, a.forward.previous, a.on_sample(c)) for c in capacities]
    return [{"capacity_blocks": c} | _hits(h, a.stream.block_accesses) for c, h in zip(capacities, hits, strict=True)]


def _prefix_forward(a: _Analysed, capacities: Sequence[int]) -> list[dict[str, Any]]:
    sizes = np.array([a.on_sample(c) for c in capacities])
    needed = prefix_needed_blocks(a.stream, a.forward.depth)
    length = int(a.trace.input_tokens.sum())
    blocks = hit_curve(needed, a.stream.blocks, a.stream.block_accesses).hits_at(sizes)
    tokens = hit_curve(needed, input_tokens_of_rows(a.stream, a.trace), length).hits_at(sizes)
    anywhere = [resident_blocks(a.stream, a.forward.depth, int(size)) for size in sizes]
    rows = zip(capacities, blocks.tolist(), tokens.tolist(), anywhere, strict=True)
    return [{"capacity_blocks": c} | _prefix(a, b, t, held) for c, b, t, held in rows]


def _prefix_reverse(a: _Analysed, capacity: int) -> dict[str, Any]:
    size = a.on_sample(capacity)
    blocks, tokens = prefix_hits_last_to_first(a.stream, a.trace, a.reverse.depth, size)
    return _prefix(a, blocks, tokens, resident_blocks(a.stream, a.reverse.depth, size))


def _prefix(a: _Analysed, blocks: int, tokens: int, anywhere: int) -> dict[str, Any]:
    accesses = a.stream.block_accesses
    return {
        "prefix_block_hit_ratio": _ratio(blocks, accesses),
        "prefix_token_hit_ratio": _ratio(tokens, int(a.trace.input_tokens.sum())),
        "resident_block_ratio": _ratio(anywhere, accesses),
    }


def _log_grid(a: _Analysed) -> dict[str, list[Any]]:
    largest = int(a.curve.capacity_blocks[-1]) if len(a.curve.capacity_blocks) else 1
    grid = np.unique(np.round(np.geomspace(1, largest, _CURVE_POINTS)).astype(np.int64))
    return {
        "capacity_blocks": [int(c / a.options.sample) for c in grid.tolist()],
        "block_hit_ratio": [round(ratio, 6) for ratio in a.curve.ratio_at(grid).tolist()],
    }


def _knee(a: _Analysed) -> dict[str, Any]:
    curve, options = a.curve, a.options

    def whole(capacity: int | None) -> int | None:
        return None if capacity is None else int(capacity / options.sample)

    knee: dict[str, Any] = {
        "capacity_for_90_percent_of_ceiling_blocks": whole(capacity_for_share(curve, 0.9)),
        "capacity_for_99_percent_of_ceiling_blocks": whole(capacity_for_share(curve, 0.99)),
        "geometric_knee_blocks": whole(geometric_knee(curve)),
        "geometric_knee_axis": "linear, from 0 to the largest capacity that still gains a hit",
        "cliffs": [
            {
                "below_blocks": whole(c.below_blocks),
                "fits_blocks": whole(c.fits_blocks),
                "gained_share": round(c.gained_share, 6),
            }
            for c in cliffs(curve)
        ],
        "economic": None,
    }
    price = options.break_even_hits_per_block_hour
    if price is not None and a.seconds:
        hours = a.seconds / SECONDS_PER_HOUR
        found = economic_knee(concave_hull(curve), price * hours)
        knee["economic"] = {
            "capacity_blocks": whole(found.capacity_blocks),
            "hits_per_block_hour": price,
            "holds_from_hits_per_block_hour": round(found.lowest / hours, 6),
            "holds_to_hits_per_block_hour": round(found.highest / hours, 6) if np.isfinite(found.highest) else None,
        }
    return knee


def _tiers(a: _Analysed) -> list[dict[str, Any]]:
    """An exclusive LRU chain: tiers are cuts of one stack, and their parts add up to the hit ratio of the
    whole.
    """
    accesses, length = a.stream.block_accesses, int(a.trace.input_tokens.sum())
    rows, until, hits_before, tokens_before = [], 0, 0, 0
    for name, own in a.options.tiers:
        until += own
        size = a.on_sample(until)
        hits = int(a.curve.hits_at(np.array(size)))
        _, tokens = prefix_hits_last_to_first(a.stream, a.trace, a.reverse.depth, size)
        rows.append(
            {"tier": name}
            | _sizes(a, own)
            | {
                "block_hit_ratio": _ratio(hits - hits_before, accesses),
                "block_hit_ratio_of_what_reached_it": _ratio(hits - hits_before, accesses - hits_before),
                "prefix_token_hit_ratio": _ratio(tokens - tokens_before, length),
            }
        )
        hits_before, tokens_before = hits, tokens
    return rows


def _times(a: _Analysed) -> dict[str, Any]:
    time_us = a.trace.time_us
    if time_us is None:
        return {}
    gaps = reuse_gaps(a.stream, a.forward.previous, time_us)
    hits = ttl_hits(gaps, a.options.windows_s)
    first = gaps.is_first_reuse
    scale = a.options.sample
    sets = [working_set(a.stream, a.forward.previous, time_us, window) for window in a.options.windows_s]
    return {
        "working_set": [
            {
                "window_s": w.window_s,
                "mean_blocks": None if w.mean is None else round(w.mean / scale, 3),
                "max_blocks": round(w.largest / scale),
                "seen_by_accesses_blocks": round(w.seen_by_accesses / scale, 3),
            }
            for w in sets
        ],
        "ttl": [
            {"ttl_s": ttl} | _hits(int(hit), a.stream.block_accesses)
            for ttl, hit in zip(a.options.windows_s, hits, strict=True)
        ],
        "reuse_gap_s": distribution(gaps.gap_us / MICROSECONDS, gaps.blocks),
        "time_to_first_reuse_s": distribution(gaps.gap_us[first] / MICROSECONDS, gaps.blocks[first]),
    }


def _sampling(a: _Analysed) -> dict[str, Any] | None:
    share = a.options.sample
    if share >= 1:
        return None
    capacities = list(a.options.capacities or default_capacities(a.curve, share))
    error = sampling_error(a.trace, share, np.array(capacities))
    rows = zip(capacities, error.standard_error.tolist(), error.scaling_bias.tolist(), strict=True)
    return {
        "share_of_sessions": share,
        "counts": "requests, accesses and unique blocks are the sample's; capacities and working sets are "
        "scaled to the whole trace",
        "error": [
            {"capacity_blocks": c, "standard_error": _rounded(e), "scaling_bias": _rounded(bias)} for c, e, bias in rows
        ],
    }


def _sizes(a: _Analysed, capacity: int) -> dict[str, Any]:
    tokens = capacity * (a.trace.block_tokens or 0)
    sizes: dict[str, Any] = {"capacity_blocks": capacity, "capacity_tokens": tokens}
    if a.options.kv_bytes_per_token is not None:
        sizes["capacity_bytes"] = tokens * a.options.kv_bytes_per_token
    return sizes


def _writes(a: _Analysed, misses: int) -> dict[str, Any]:
    if a.seconds is None:
        return {"misses_per_s": None}
    rate = misses / a.seconds / a.options.sample
    writes: dict[str, Any] = {"misses_per_s": round(rate, 6)}
    if a.options.kv_bytes_per_token is not None:
        writes["write_bytes_per_s"] = rate * (a.trace.block_tokens or 0) * a.options.kv_bytes_per_token
    return writes


def _hits(hits: int, accesses: int) -> dict[str, Any]:
    return {"block_hit_ratio": _ratio(hits, accesses), "hit_blocks": hits}


def _ratio(part: int, whole: int) -> float | None:
    """None when there is nothing to take a share of."""
    return round(part / whole, 6) if whole else None


def _rounded(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else round(value, 6)
