"""How far are the closed forms from published measurements, case by case?

A case is what one published figure says: kind, source, model, GPU, parameters, measured numbers (the shape of
`measurement` in the schemas). How each is predicted stands with it (`Outcome.basis`):

* calibrated: by a fit to the *other* cases of its series (same source, model, GPU, tensor parallelism, engine); it
  never sees itself. For prefill of dense models, `series_out` tells beside it what is predicted when its whole
  series is left out.
* cold: no end-to-end time of any engine is used (`evaluate_cold`), with an interval.
* analytic: from the numbers of the case itself, by a law without free parameters.
* given: a verdict whose two times the case states; it cannot be wrong and is counted apart.
* refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvmodel.analyses import evaluate_cold
from kvmodel.analyses.evaluate_case import Case, cleaned, is_number
from kvmodel.analyses.evaluate_verdict import verdict_of
from kvmodel.formulas import calibration

TTFT = ("ttft_s", "ttft_mean_s", "ttft_p50_s")


@dataclass(frozen=True)
class Outcome:
    """One measured number and what the model says of it."""

    id: str
    kind: str
    quantity: str
    measured: float
    predicted: float | None
    basis: str
    """calibrated, cold, analytic, given or refused; see the module."""
    family: str = "dense"
    """dense or moe."""
    reason: str = ""
    low: float | None = None
    high: float | None = None
    series_out: float | None = None
    """The cold prediction of a calibrated prefill: no case of its series is used."""

    @property
    def error(self) -> float | None:
        """predicted / measured - 1."""
        return None if self.predicted is None else self.predicted / self.measured - 1.0


@dataclass(frozen=True)
class Summary:
    """Absolute errors of one kind, family and basis; of cold predictions also how many intervals hold the measured."""

    kind: str
    family: str
    basis: str
    count: int
    median: float
    mean: float
    p90: float
    coverage: float = np.nan


def evaluate(cases: Iterable[Case]) -> list[Outcome]:
    """Every case with its prediction or the reason there is none, in the order given."""
    cases = [cleaned(case) for case in cases]
    found: dict[str, Outcome] = {}
    for kind, predict in KINDS.items():
        for outcome in predict([case for case in cases if case["kind"] in (kind, *NEEDS.get(kind, ()))]):
            found.setdefault(outcome.id, outcome)
    told = (found.get(case["id"]) or refused(case, "no closed form addresses this kind") for case in cases)
    families = (evaluate_cold.family_of(case["model"]) for case in cases)
    return [replace(outcome, family=family) for outcome, family in zip(told, families, strict=True)]


def summaries(outcomes: Iterable[Outcome]) -> list[Summary]:
    """Median, mean and p90 of absolute errors by kind, family and basis; of refused cases only the count.

    The basis "series left out" has the calibrated prefill cases that can also be predicted without their series.
    """
    groups: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for o in outcomes:
        error = np.nan if o.error is None else abs(o.error)
        held = np.nan if o.low is None or o.basis != "cold" else float(o.low <= o.measured <= o.high)
        groups.setdefault((o.kind, o.family, o.basis), []).append((error, held))
        if o.series_out is not None:
            groups.setdefault((o.kind, o.family, "series left out"), []).append(
                (abs(o.series_out / o.measured - 1.0), np.nan)
            )
    return [_summary(key, np.array(rows)) for key, rows in sorted(groups.items())]


def _summary(key: tuple[str, str, str], rows: np.ndarray) -> Summary:
    error, held = rows.T
    return Summary(
        *key,
        len(rows),
        float(np.median(error)),
        float(np.mean(error)),
        float(np.quantile(error, 0.9)),
        float(np.mean(held)),
    )


def refused(case: Case, reason: str) -> Outcome:
    """The case without a prediction; the first measured number stands for it."""
    numbers = [(k, v) for k, v in case["measured"].items() if isinstance(v, int | float)]
    quantity, value = numbers[0] if numbers else ("", np.nan)
    return Outcome(case["id"], case["kind"], quantity, value, None, "refused", reason=reason)


def measured_ttft(case: Case) -> tuple[str, float] | None:
    """Name and value of the time to first token, where the case has one."""
    return next(((k, case["measured"][k]) for k in TTFT if case["measured"].get(k)), None)


def series(cases: Iterable[Case], *more: str) -> list[list[Case]]:
    """Cases grouped by source, model, GPU, tensor parallelism and engine, and by further parameters."""
    groups: dict[tuple, list[Case]] = {}
    for case in cases:
        p = case["params"]
        key = [case[name] for name in ("source", "model", "dtype", "gpu", "tp")]
        key += [str(p.get(name)) for name in ("engine", "backend", *more)]
        groups.setdefault(tuple(key), []).append(case)
    return list(groups.values())


def _ttft(cases: Sequence[Case]) -> Iterable[Outcome]:
    """Prefill and fetch: prompts whose whole or part is computed, or fetched from one tier."""
    kernels = [c for c in cases if c["kind"] == "kernel"]
    for group in series([c for c in cases if c["kind"] != "kernel"], "copy_method"):
        known = [c for c in group if measured_ttft(c) and c["tokens_in"] and c["hit_fraction"] is not None]
        computed = [c for c in known if c["kind"] == "prefill"]
        yield from _fitted(computed, computed, kernels)
        for tier in dict.fromkeys(c["tier"] for c in known if c["kind"] == "fetch"):
            restored = [c for c in known if c["kind"] == "fetch" and c["tier"] == tier]
            yield from _fitted([*computed, *restored], restored, kernels)
        rest = [c for c in group if c not in known]
        yield from _speedups(rest, kernels)
        yield from (refused(c, "no time to first token, length or hit ratio") for c in rest)


def _speedups(cases: Sequence[Case], kernels: Sequence[Case]) -> Iterable[Outcome]:
    """Whole fetches told as multiples of a prefill: the path from the other lengths, the prefill cold."""
    wanted = [
        (c, f"speedup_{word}")
        for c in cases
        for word in (c["tier"] or "").split("_")
        if c["kind"] == "fetch" and c["measured"].get(f"speedup_{word}")
    ]
    alone = [evaluate_cold.predicted(c, kernels) for c, _ in wanted]
    if len(wanted) < 4 or any(isinstance(cold, str) for cold in alone):
        return
    compute = np.array([cold.seconds for cold in alone])
    measured = np.array([c["measured"][name] for c, name in wanted], float)
    left = calibration.transfer_fit([c["tokens_in"] for c, _ in wanted], compute / measured).fit.left_out
    for (case, name), value, error in zip(wanted, measured, left, strict=True):
        yield Outcome(case["id"], "fetch", name, value, value / (1.0 + error), "calibrated")


def _cold(case: Case, kernels: Sequence[Case]) -> Outcome:
    """The case from first principles, or refused with the reason."""
    found = evaluate_cold.predicted(case, kernels)
    if isinstance(found, str):
        return refused(case, f"{found}, and too few points of this series to calibrate")
    return Outcome(
        case["id"], case["kind"], *measured_ttft(case), found.seconds, "cold", low=found.low, high=found.high
    )


def _fitted(points: Sequence[Case], wanted: Sequence[Case], kernels: Sequence[Case]) -> Iterable[Outcome]:
    """Wanted cases predicted by a fit to the other points, or cold, or refused."""
    n, hit = (np.array([c[name] for c in points], float) for name in ("tokens_in", "hit_fraction"))
    moved = hit * n * np.array([c["params"].get("kv_bytes_per_token") or np.nan for c in points], float)
    loads = [c["params"].get("concurrency", 1) for c in points]
    fits = len(points) > 2 and all(is_number(c) for c in loads) and not np.isnan(moved[hit > 0]).any()
    left = np.full(len(points), np.nan)
    if fits:
        times = [measured_ttft(c)[1] for c in points]
        moved = np.where(hit > 0, moved, 0.0)
        left = calibration.restore_fit(n, hit * n, moved, times, concurrency=loads).fit.left_out
    for case, error in zip(points, left, strict=True):
        if case not in wanted:
            continue
        quantity, value = measured_ttft(case)
        if np.isfinite(error):
            cold = evaluate_cold.predicted(case, kernels) if case["kind"] == "prefill" else ""
            yield Outcome(
                case["id"],
                case["kind"],
                quantity,
                value,
                value * (1.0 + error),
                "calibrated",
                series_out=None if isinstance(cold, str) else cold.seconds,
            )
        elif case["kind"] == "prefill":
            yield _cold(case, kernels)
        else:
            yield refused(case, "too few points of this series and tier to calibrate the path")


def _bandwidth(cases: Sequence[Case]) -> Iterable[Outcome]:
    """Throughput against copy size: the small-copy law fitted to the other sizes."""
    for group in series(cases, "direction", "method"):
        sized = [c for c in group if c["params"].get("block_bytes") and c["measured"].get("bandwidth_gbps")]
        if len(sized) < 4:
            yield from (refused(c, "a single figure: nothing else of its path to predict it from") for c in group)
            continue
        size = np.array([c["params"]["block_bytes"] for c in sized], float)
        rate = np.array([c["measured"]["bandwidth_gbps"] for c in sized], float)
        left = calibration.transfer_fit(size, size / rate).fit.left_out
        for case, gbps, error in zip(sized, rate, left, strict=True):
            yield Outcome(case["id"], "bandwidth", "bandwidth_gbps", gbps, gbps / (1.0 + error), "calibrated")


def _handoff(cases: Sequence[Case]) -> Iterable[Outcome]:
    """Transfer time of a request's KV between GPUs: latency and bandwidth from the other lengths."""
    for group in series(cases):
        timed = [
            c
            for c in group
            if c["measured"].get("transfer_s") and c["params"].get("kv_bytes_per_token") and c["tokens_in"]
        ]
        if len(timed) < 4:
            yield from (refused(c, "no series of transfer times over length") for c in group)
            continue
        p = [c["params"] for c in timed]
        size = [
            c["tokens_in"] * q["kv_bytes_per_token"] * q.get("kv_replication", 1) for c, q in zip(timed, p, strict=True)
        ]
        times = [c["measured"]["transfer_s"] for c in timed]
        left = calibration.transfer_fit(size, times).fit.left_out
        for case, seconds, error in zip(timed, times, left, strict=True):
            yield Outcome(case["id"], "handoff", "transfer_s", seconds, seconds * (1.0 + error), "calibrated")


def _queueing(cases: Sequence[Case]) -> Iterable[Outcome]:
    """Simultaneous whole restores over one path, shared: latency + c bytes / B, both from single restores."""
    for group in series(cases):
        for case in (c for c in group if c["kind"] == "queueing"):
            alone = [
                c
                for c in group
                if c["kind"] == "fetch" and c["tier"] == case["tier"] and measured_ttft(c) and c["tokens_in"]
            ]
            load, ttft = case["params"].get("concurrency"), measured_ttft(case)
            if len(alone) < 2 or not is_number(load) or not ttft or not case["tokens_in"]:
                yield refused(case, "no single restores of this path, or an open-loop load of unstated mix")
                continue
            tokens = [c["tokens_in"] for c in alone]
            path = calibration.transfer_fit(tokens, [measured_ttft(c)[1] for c in alone])
            each = case["tokens_in"] / path.bandwidth
            bounds = {"low": path.latency + (load + 1) / 2 * each, "high": path.latency + load * each}
            yield Outcome(case["id"], "queueing", *ttft, bounds["high"], "calibrated", **bounds)


def _overlap(cases: Sequence[Case]) -> Iterable[Outcome]:
    """Layer-wise loads from whole ones of the same length, and what is left to compute when a load costs nothing."""
    for group in series(cases):
        known = [c for c in group if c["tokens_in"] and c["measured"].get("ttft_s")]
        yield from _layerwise(known)
        yield from _suffixes([c for c in known if c["params"].get("recompute_ttft_s") and c["tier"] == "null_store"])
        yield from (refused(c, "no pair of overlapped and plain loads to compare") for c in group)


def _layerwise(group: Sequence[Case]) -> Iterable[Outcome]:
    """The share of the time that layer-wise loading saves is that of the other lengths."""
    blocks = {c["tokens_in"]: c for c in group if str(c["params"].get("overlap", "")).startswith("none")}
    layers = [c for c in group if c["params"].get("overlap") == "layerwise" and c["tokens_in"] in blocks]
    ratio = np.array([c["measured"]["ttft_s"] / blocks[c["tokens_in"]]["measured"]["ttft_s"] for c in layers])
    for i, case in enumerate(layers):
        others = np.delete(ratio, i)
        if others.size:
            said = float(np.median(others)) * blocks[case["tokens_in"]]["measured"]["ttft_s"]
            yield Outcome(case["id"], "overlap", "ttft_s", case["measured"]["ttft_s"], said, "calibrated")


def _suffixes(cases: Sequence[Case]) -> Iterable[Outcome]:
    """Suffix behind a prefix that costs nothing, from whole recomputes only: the suffix is not free (n^2 - p^2)."""
    cases = [c for c in cases if c["hit_fraction"] is not None]
    if len(cases) < 3:
        return
    n = [c["tokens_in"] for c in cases]
    fitted = calibration.prefill_fit(n, 0.0, [c["params"]["recompute_ttft_s"] for c in cases])
    for case in cases:
        said = calibration.prefill_predicted(fitted, case["tokens_in"], case["hit_fraction"] * case["tokens_in"])
        yield Outcome(case["id"], "overlap", "ttft_s", case["measured"]["ttft_s"], float(said), "calibrated")


def _throughput(cases: Sequence[Case]) -> Iterable[Outcome]:
    """Saturated prefill against hit ratio: time per token is a mixture of computed and fetched tokens."""
    for group in series(cases):
        known = [c for c in group if c["hit_fraction"] is not None and c["measured"].get("throughput_tokens_per_s")]
        if len(known) < 4:
            yield from (refused(c, "no series over the hit ratio") for c in group)
            continue
        hit = np.array([c["hit_fraction"] for c in known])
        rate = np.array([c["measured"]["throughput_tokens_per_s"] for c in known], float)
        left = calibration.relative_fit(np.stack([1.0 - hit, hit]), 1.0 / rate).left_out
        for case, r, error in zip(known, rate, left, strict=True):
            yield Outcome(case["id"], "throughput", "throughput_tokens_per_s", r, r / (1.0 + error), "calibrated")


def _breakeven(cases: Sequence[Case]) -> Iterable[Outcome]:
    """Verdicts and thresholds that follow from the numbers of the case."""
    for case in cases:
        found = verdict_of(case)
        yield refused(case, found) if isinstance(found, str) else Outcome(case["id"], "breakeven", **found)


KINDS: dict[str, Callable[[Sequence[Case]], Iterable[Outcome]]] = {
    "prefill": _ttft,
    "bandwidth": _bandwidth,
    "handoff": _handoff,
    "queueing": _queueing,
    "overlap": _overlap,
    "throughput": _throughput,
    "breakeven": _breakeven,
}
NEEDS = {"prefill": ("fetch", "kernel"), "queueing": ("fetch",)}
