"""The whole plan of one case: every question in order.

size -> capacity -> working sets -> reuse chain per arm -> break-even per tier -> endurance -> goodput -> cost
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kvmodel.analyses import capacity, cost, endurance, goodput, retention, reuse_chain, reuse_detail, timing
from kvmodel.analyses.answer import Answer
from kvmodel.analyses.serving import Load, load_of
from kvmodel.analyses.traffic import Traffic, traffic_of, typical_turn
from kvmodel.formulas.breakeven import break_even_bandwidth
from kvmodel.formulas.cost import cost_per_qualified_session
from kvmodel.system.case import Case

ARMS = ("no_reuse", "local_reuse", "all_tiers")


def tiers_of(case: Case, arm: str) -> tuple[str, ...]:
    """Tiers an arm uses, fast to slow: none, the GPUs' own memory, or all of the study's."""
    names = tuple(case.tiers)
    return {"no_reuse": (), "local_reuse": names[:1], "all_tiers": names}[arm]


def evaluate(case: Case, arms: Sequence[str] = ARMS, target_lifetime: Any = None) -> list[Answer]:
    """All answers of a plan. A model that does not fit gives an infeasible pool that says what would fit, and where
    it fits at no point, nothing else."""
    fits = np.asarray(capacity.hbm_pool(case).fits)
    answers = [*_size(case), *_capacity(case)]
    if not np.any(fits):
        return answers
    granularity = capacity.granularity(case)
    traffic = traffic_of(case, granularity)
    loads = {arm: load_of(case, tiers_of(case, arm), traffic, relapse=True) for arm in arms}
    served = [
        answer
        for arm in arms
        for answer in (
            *reuse_chain.chain(case, loads[arm], arm),
            *reuse_detail.hit_ratios(case, loads[arm], arm),
            *_service(case, arm, loads[arm]),
        )
    ]
    widest = loads[arms[-1]]
    served += [
        *_workload(case, widest),
        *_tiers(case, widest),
        *_endurance(case, widest, target_lifetime),
        *retention.windows_of(case, widest),
        *reuse_detail.pinning(case, widest, arms[-1]),
        *reuse_detail.deletion(case, widest, arms[-1]),
        *reuse_detail.identity_cost(case, widest, arms[-1]),
    ]
    if case.slo is not None:
        best = {arm: goodput.goodput_of(case, tiers_of(case, arm), granularity) for arm in arms}
        served += [*_goodput(best), *_cost(case, best)]
    return answers + [replace(a, value=a.value if np.all(fits) else np.where(fits, a.value, np.nan)) for a in served]


def _size(case: Case) -> Iterator[Answer]:
    model, tp = case.model, case.deployment.tensor_parallel
    yield Answer(
        "size.growing_bytes_per_token",
        model.growing_bytes_per_token,
        "B/token",
        "KV each further token adds, one logical copy",
    )
    yield Answer(
        "size.fixed_bytes_per_sequence",
        model.fixed_bytes_per_sequence(),
        "B",
        "full windows and recurrent state of one sequence, one logical copy",
    )
    yield Answer(
        "size.replication", model.replication(tp), "", "copies of the growing KV over the ranks of one instance"
    )


def _capacity(case: Case) -> Iterator[Answer]:
    pool = capacity.hbm_pool(case)
    first = next(iter(case.tiers))
    flags: tuple[str, ...] = ()
    if not np.all(pool.fits):
        fits = capacity.smallest_tensor_parallel(case)
        flags = (
            f"infeasible: {case.model.name} leaves no room for KV at tensor_parallel "
            f"{_numbers(case.deployment.tensor_parallel)}; "
            + (
                f"tensor_parallel {fits} would fit (the deployment has {_numbers(case.deployment.gpu.count)} GPUs)"
                if fits
                else "no tensor_parallel up to 1024 fits"
            ),
        )
    yield Answer(
        "capacity.hbm_pool",
        pool.nbytes,
        "B",
        "KV pool of one instance: tp (memory x fraction - reserve) - weights"
        if pool.derived
        else "KV pool of one instance, as stated",
        tier=first,
        flags=flags,
    )
    per_token = capacity.stored_bytes_per_token(case, first)
    instances = case.deployment.instances
    yield Answer(
        "capacity.bytes", np.maximum(pool.nbytes, 0.0) * instances, "B", "bytes for KV, all instances", tier=first
    )
    yield Answer(
        "capacity.tokens",
        np.maximum(pool.nbytes, 0.0) * instances / per_token,
        "token",
        "tokens of KV that fit, all instances",
        tier=first,
    )
    for tier in case.storage_tiers:
        yield Answer(
            "capacity.bytes",
            capacity.tier_bytes(case, tier),
            "B",
            "bytes for KV, all devices, headroom taken off",
            tier=tier,
        )
        yield Answer(
            "capacity.tokens",
            capacity.tier_tokens(case, tier),
            "token",
            "tokens of KV that fit at this tier's own bytes per token",
            tier=tier,
        )


def _numbers(value: Any) -> str:
    return ", ".join(f"{v:g}" for v in np.unique(np.asarray(value, float)))


def _workload(case: Case, load: Load) -> Iterator[Answer]:
    per_token = case.model.growing_bytes_per_token
    for t in load.traffic:
        waiting = t.arrivals * t.returns * t.sessions.gap_law.mean * (t.context.mean + capacity.fixed_tokens(case))
        yield Answer("workload.session_rate", t.arrivals, "/s", "sessions that start per second", population=t.name)
        yield Answer("workload.turn_rate", t.turn_rate, "/s", "turns per second", population=t.name)
        yield Answer(
            "workload.returning_context",
            t.context.mean,
            "token",
            "mean private context a returning turn finds, over returning turns",
            population=t.name,
            flags=_beyond_the_model(case, t),
        )
        yield Answer(
            "working_set.paused",
            waiting * per_token,
            "B",
            "mean bytes of contexts that wait and will come back (Little's law), one copy",
            population=t.name,
        )
    yield Answer(
        "working_set.active",
        load.active_tokens * case.deployment.instances * per_token,
        "B",
        "mean bytes of contexts being generated now, one copy",
    )
    for name, prefix in case.prefixes.items():
        tenants = max(
            (np.max(np.asarray(t.sessions.namespaces)) for t in load.traffic if name in t.prefixes), default=1
        )
        yield Answer(
            "working_set.shared_prefix",
            case.texts(name) * tenants * np.asarray(prefix.tokens) * per_token,
            "B",
            "bytes of all variants (of each variant it lies under), one physical copy each per group that may share",
            population=name,
        )


def _beyond_the_model(case: Case, t: Traffic) -> tuple[str, ...]:
    """A note when more than one returning turn in a hundred finds a context longer than the model accepts."""
    if case.model.max_context is None:
        return ()
    beyond = float(np.max(t.context.survival(np.asarray(case.model.max_context, float) - t.prefix_tokens)))
    return (
        (
            f"{beyond:.0%} of the returning turns find a context beyond the model's {case.model.max_context:,.0f} "
            "tokens: the study has no truncation or compaction",
        )
        if beyond > 0.01
        else ()
    )


def _service(case: Case, arm: str, load: Load) -> Iterator[Answer]:
    yield Answer(
        "latency.prefill_utilisation",
        load.prefill_utilisation,
        "",
        "share of an instance's time spent on prefill at the study's rate",
        arm=arm,
        flags=_saturated(load.prefill_utilisation, "prefill") or _saturated(load.busiest, "busiest level's prefill"),
    )
    yield Answer("latency.ttft_mean", load.ttft_mean, "s", "mean time to first token over turns", arm=arm)
    yield Answer("latency.tpot_mean", load.tpot, "s", "mean time per output token", arm=arm)
    yield Answer("latency.batch", load.batch, "", "sequences decoding at once on one instance", arm=arm)
    if case.slo is None:
        return
    yield Answer("latency.ttft_in_time", 1 - load.ttft_exceedance, "", "share of turns within the TTFT limit", arm=arm)
    if case.slo.end_to_end is not None:
        yield Answer(
            "latency.end_to_end_in_time",
            1 - load.end_to_end_exceedance,
            "",
            "share of turns within the end-to-end limit",
            arm=arm,
        )
    yield Answer("latency.tpot_in_time", 1 - load.tpot_exceedance, "", "share of turns within the TPOT limit", arm=arm)
    yield Answer(
        "latency.qualified",
        load.qualified,
        "",
        "share of sessions all of whose turns keep all limits at the study's rate, turns independent",
        arm=arm,
    )


def _saturated(utilisation: Any, what: str) -> tuple[str, ...]:
    worst = float(np.nanmax(utilisation)) if np.size(utilisation) else 0.0
    if worst >= 1:
        return (f"saturated: {what} utilisation {worst:.2f}, the queue grows without end",)
    return (f"near saturation: {what} utilisation {worst:.2f}",) if worst > 0.85 else ()


def _tiers(case: Case, load: Load) -> Iterator[Answer]:
    terms = timing.prefill_terms(case)
    context, _ = typical_turn(load.traffic)
    yield Answer(
        "time.typical_prefix", context, "token", "mean context a returning turn finds, its shared prefix included"
    )
    yield Answer("time.recompute", terms.saved(context), "s", "prefill time that prefix costs when it is not found")
    for k, tier in enumerate(load.tiers):
        yield Answer(
            "capacity.retained_tokens",
            load.residency.capacity_tokens[k],
            "token",
            "tokens one copy of the tier can keep beside active KV",
            tier=tier,
        )
        if tier not in case.storage_tiers:
            continue
        path, wait = timing.fetch_terms(case, tier), load.tier_wait[k]
        yield Answer(
            "time.fetch",
            path.seconds(context),
            "s",
            "fetch of the typical prefix on an idle path, nothing hidden",
            tier=tier,
        )
        yield Answer("time.fetch_wait", wait, "s", "mean wait that a fetch would find at the study's rate", tier=tier)
        yield Answer(
            "time.path_bandwidth", path.bandwidth, "B/s", "of one restore: smaller of devices and host links", tier=tier
        )
        yield Answer(
            "breakeven.tokens_idle",
            timing.break_even_tokens(terms, path),
            "token",
            "shortest prefix worth fetching, idle path",
            tier=tier,
        )
        yield Answer(
            "breakeven.tokens",
            timing.break_even_tokens(terms, path, wait),
            "token",
            "shortest prefix worth fetching with the mean wait at the study's rate",
            tier=tier,
        )
        yield Answer(
            "breakeven.bandwidth",
            _least_bandwidth(terms, path, context),
            "B/s",
            "least path bandwidth at which the typical prefix is worth fetching",
            tier=tier,
        )
        yield Answer(
            "load.tier_utilisation",
            load.tier_utilisation[k],
            "",
            "of the tier's devices or links, the busier",
            tier=tier,
            flags=_saturated(load.tier_utilisation[k], "read path"),
        )


def _least_bandwidth(terms: timing.PrefillTerms, path: timing.FetchTerms, tokens: Any) -> Any:
    return break_even_bandwidth(path.nbytes(tokens), saved=terms.saved(tokens), fixed=path.waiting)


def _endurance(case: Case, load: Load, target_lifetime: Any) -> Iterator[Answer]:
    for tier in endurance.wearing_tiers(case):
        if tier not in load.tiers:
            continue
        yield from endurance.wear_answers(endurance.wear_of(case, load, tier, target_lifetime), tier)


def _goodput(best: Mapping[str, goodput.Goodput]) -> Iterator[Answer]:
    for arm, found in best.items():
        limits = sorted({int(i) for i in np.unique(found.binding)})
        names = [goodput.LIMITS[i] if i >= 0 else "none before saturation" for i in limits]
        yield Answer(
            "goodput.largest_session_rate",
            found.largest_rate,
            "/s",
            "largest rate of sessions at which the stated shares of turns keep their limits",
            arm=arm,
            flags=(f"bound by: {', '.join(names)}",),
        )
        yield Answer(
            "goodput.qualified_sessions_per_second",
            found.qualified_rate,
            "/s",
            "most sessions per second all of whose turns keep all limits, at any rate up to the largest",
            arm=arm,
        )
        yield Answer(
            "goodput.operating_rate", found.operating_rate, "/s", "rate of sessions at which that is reached", arm=arm
        )


def _cost(case: Case, best: Mapping[str, goodput.Goodput]) -> Iterator[Answer]:
    for arm, found in best.items():
        rate = cost.cost_rate(case, tiers_of(case, arm))
        each = cost_per_qualified_session(rate, session_rate=found.qualified_rate)
        yield Answer("cost.rate", rate, "USD/s", "GPUs and the tiers of this arm", arm=arm)
        yield Answer(
            "cost.per_qualified_session",
            each,
            "USD",
            "cost rate over the most qualified sessions per second, every arm at its own best rate",
            arm=arm,
        )
    for tier in case.storage_tiers:
        yield Answer(
            "cost.rate",
            cost.tier_cost_rate(case, tier),
            "USD/s",
            "this tier: bytes paid off or rented, and power",
            tier=tier,
        )
    yield Answer("cost.rate", cost.gpu_cost_rate(case), "USD/s", "all GPUs", tier=next(iter(case.tiers)))
