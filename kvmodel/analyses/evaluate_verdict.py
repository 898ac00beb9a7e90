"""Break-even of a measured case from its own numbers: a threshold, a total, or fetch against recompute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kvmodel.analyses.evaluate_case import Case
from kvmodel.formulas import breakeven, prefill, transfer

WINS, LOSES = 2.0, 1.0  # a verdict as a number whose relative error is 0 when right


def verdict_of(case: Case) -> dict[str, Any] | str:
    """Fields of the outcome, or the reason why there is none."""
    p, m = case["params"], case["measured"]
    if {"peak_flops", "layers", "d", "gqa", "a", "b", "prefix_tokens"} <= set(p) and m.get("min_bandwidth_gbps"):
        return _outcome("min_bandwidth_gbps", m["min_bandwidth_gbps"], _equation(p) / 1e9, "analytic")
    if {"kv_gib", "bandwidth_gibps", "overhead_s"} <= set(p) and m.get("fetch_total_s"):
        seconds = transfer.transfer_seconds(p["kv_gib"], latency=p["overhead_s"], bandwidth=p["bandwidth_gibps"])
        return _outcome("fetch_total_s", m["fetch_total_s"], float(seconds), "analytic")
    times = _both_times(m)
    if times is not None:
        fetch, recompute = times
        wins = WINS if breakeven.fetch_wins(fetch, recompute) else LOSES
        least = breakeven.break_even_bandwidth(p.get("kv_bytes") or np.nan, saved=recompute) / 1e9
        known = (
            f"; least that pays {least:.2g} GB/s, got {p['kv_bytes'] / fetch / 1e9:.2g}" if p.get("kv_bytes") else ""
        )
        said = f"{'fetch' if wins == WINS else 'recompute'}: {fetch:g} s against {recompute:g} s{known}"
        return _outcome("fetch_wins", wins, wins, "given", said)
    return _lacking(case)


def _outcome(quantity: str, measured: float, predicted: float, basis: str, reason: str = "") -> dict[str, Any]:
    return {"quantity": quantity, "measured": measured, "predicted": predicted, "basis": basis, "reason": reason}


def _equation(p: Mapping[str, Any]) -> float:
    """Least bandwidth by the equation a paper prints, with its own counts of operations [B/s]."""
    rate = p["peak_flops"] * p.get("mfu", 1.0)
    saved = prefill.saved_seconds(
        p["prefix_tokens"],
        linear=p["b"] * p["d"] ** 2 * p["layers"] / rate,
        attention=p["a"] * p["d"] * p["layers"] / rate,
    )
    nbytes = p["prefix_tokens"] * 2 * p["d"] / p["gqa"] * 2 * p["layers"]
    return float(breakeven.break_even_bandwidth(nbytes, saved=saved))


def _both_times(m: Mapping[str, Any]) -> tuple[float, float] | None:
    """Fetch and recompute of the same prompts where a case states both; of several stores the slowest."""
    pairs = (("ttft_fetch_s", "ttft_recompute_s"), ("fetch_s", "recompute_max_s"))
    for fetch, recompute in pairs:
        if m.get(fetch) and m.get(recompute):
            return m[fetch], m[recompute]
    stores = [
        v
        for name, v in m.items()
        if name.startswith("batch_s_") and "first_run" not in name and name != "batch_s_recompute"
    ]
    return (max(stores), m["batch_s_recompute"]) if stores and m.get("batch_s_recompute") else None


def _lacking(case: Case) -> str:
    """What would have to be known; the threshold itself where the rate of recomputing is."""
    p, m = case["params"], case["measured"]
    rate = m.get("prefill_tokens_per_s_vllm")
    if rate and p.get("kv_bytes_per_token"):
        least = rate * p["kv_bytes_per_token"] / 1e9
        return f"the path's bandwidth is not stated; fetching pays from {least:.3g} GB/s on"
    return "bytes, bandwidth or recompute time not stated"
