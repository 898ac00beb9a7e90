"""The spreadsheet functions. Each calls public formulas and analyses; there is no formula here.

Bodies get values in base units (B, s, tokens, B/s), read from the cells as the declaration above them says.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from kvmodel.analyses.size import kv_size
from kvmodel.errors import KvmodelError, MissingNumberError
from kvmodel.excel.convert import Rows, each
from kvmodel.excel.entry import Column, Number, NumberOrName, Text, block_function, table_function
from kvmodel.formulas import endurance, reuse
from kvmodel.formulas.breakeven import break_even_tokens
from kvmodel.formulas.laws import GeometricTurns, Lognormal
from kvmodel.presets import catalogue
from kvmodel.study.load import load_study
from kvmodel.study.run import plan
from kvmodel.tiers.nvme import Nvme
from kvmodel.units import YEAR

_MODEL = Text(doc="Preset name of the model, or path of its config.json")
_KV_DTYPE = Text(doc="Precision of cached keys and values, such as bf16 or fp8; the model's own if omitted")
_RANKS = {"unit": "", "bounds": {"ge": 1, "le": 1024}, "whole": True}
_CV = {"unit": "", "bounds": {"ge": 0, "le": 10}}
_PAUSE = {"unit": "s", "bounds": {"gt": 0, "le": 1e9}}


@block_function(
    "KV bytes that each further token takes, over all tensor-parallel ranks together, index keys included; windows and "
    "states, which do not grow, are not in it. Where every layer has a window: the rate below it.",
    Column("bytes_per_token", "B/token", "growing part of the KV, copies on every rank counted"),
    model=_MODEL,
    kv_dtype=_KV_DTYPE,
    tensor_parallel=Number(
        doc="Ranks the model is split over; heads and latents that every rank copies count each "
        "time. 1 if omitted: the logical size",
        **_RANKS,
    ),
)
def kv_bytes_per_token(model: Any, kv_dtype: Any = None, tensor_parallel: Any = 1.0) -> Rows:
    """Growing KV bytes per token over all ranks [B/token]."""

    def answer(model: str, kv_dtype: str | None, ranks: float) -> float:
        rank = kv_size(model, kv_dtype=kv_dtype, tp=int(ranks))["per_rank"]
        return ranks * (rank["growing_bytes_per_token"] + rank["indexer_bytes_per_token"])

    return each(answer, model, kv_dtype, tensor_parallel)


@block_function(
    "Tokens of KV that fit the GPUs of one engine instance: memory x fraction - reserve - weights, over the bytes of "
    "sequences of the given length.",
    Column("tokens", "tokens", "tokens of KV one engine instance holds"),
    model=_MODEL,
    gpu=Text(doc="Preset name of the GPU, such as h100-sxm"),
    tensor_parallel=Number(doc="GPUs of one engine instance", **_RANKS),
    memory_fraction=Number(
        doc="Share of the GPU memory the engine may use, 0 to 1; 0.9 if omitted", unit="", bounds={"gt": 0, "le": 1}
    ),
    reserve_gb=Number(
        doc="Memory per GPU kept for activations, graphs and buffers; 4 GB if omitted", unit="GB", bounds={"ge": 0}
    ),
    kv_dtype=_KV_DTYPE,
    sequence_tokens=Number(
        doc="Length of the sequences, which matters where windows or states take room; the model's longest if omitted",
        unit="tokens",
        bounds={"ge": 1, "le": 1e9},
        whole=True,
    ),
)
def kv_tokens_that_fit(
    model: Any,
    gpu: Any,
    tensor_parallel: Any,
    memory_fraction: Any = None,
    reserve_gb: Any = None,
    kv_dtype: Any = None,
    sequence_tokens: Any = None,
) -> Rows:
    """Tokens of KV that fit one engine instance [tokens]."""

    def answer(
        model: str,
        gpu: str,
        ranks: float,
        fraction: float | None,
        reserve: float | None,
        kv_dtype: str | None,
        length: float | None,
    ) -> int:
        given = {"memory_fraction": fraction, "reserve": reserve}
        given = {name: value for name, value in given.items() if value is not None}
        size = kv_size(
            model,
            engine="logical",
            gpu=gpu,
            tp=int(ranks),
            kv_dtype=kv_dtype,
            max_model_len=None if length is None else int(length),
            **given,
        )
        return size["engine"]["tokens"]

    return each(answer, model, gpu, tensor_parallel, memory_fraction, reserve_gb, kv_dtype, sequence_tokens)


@block_function(
    "Shortest prefix that is faster to fetch than to compute again; never where no length is.",
    Column("tokens", "tokens", "fetching is faster for every longer prefix; 0: always"),
    infinite="never",
    fixed_seconds=Number(doc="Look-up, queue and latency of a fetch, once", unit="s", bounds={"ge": 0}),
    bandwidth_gb_per_s=Number(doc="Effective bandwidth of the whole path", unit="GB/s", bounds={"gt": 0}),
    bytes_per_token=Number(doc="Bytes the path moves for one token", unit="B/token", bounds={"ge": 0}),
    prefill_seconds_per_token=Number(doc="Linear term of the prefill time", unit="s/token", bounds={"ge": 0}),
    prefill_seconds_per_token_squared=Number(
        doc="Attention term of the prefill time; 0 if omitted", unit="s/token^2", bounds={"ge": 0}
    ),
)
def kv_break_even_tokens(
    fixed_seconds: Any,
    bandwidth_gb_per_s: Any,
    bytes_per_token: Any,
    prefill_seconds_per_token: Any,
    prefill_seconds_per_token_squared: Any = 0.0,
) -> Rows:
    """Break-even prefix length [tokens]."""
    return break_even_tokens(
        fixed=fixed_seconds,
        per_token=bytes_per_token / bandwidth_gb_per_s,
        linear=prefill_seconds_per_token,
        attention=prefill_seconds_per_token_squared,
    ).tolist()


@table_function(
    "What an LRU cache shared by growing sessions finds again, for each capacity: ceiling, resident, kept.",
    Column("capacity_tokens", "tokens", "capacity of the cache"),
    Column("ceiling", "", "share of all prompt tokens that were computed before: what an endless cache finds"),
    Column("resident", "", "share of all prompt tokens that this capacity finds"),
    Column("kept", "", "resident over ceiling: share of the reusable tokens that this capacity keeps"),
    capacities_tokens=Number(
        doc="Capacities of the cache, one cell or a range", unit="tokens", bounds={"ge": 0}, table=True
    ),
    arrivals_per_s=Number(doc="Sessions that start per second", unit="/s", bounds={"gt": 0}),
    first_tokens=Number(doc="Mean context after the first turn, answer included", unit="tokens", bounds={"gt": 0}),
    new_tokens=Number(doc="Mean tokens each later turn adds, answer included", unit="tokens", bounds={"ge": 0}),
    turns_mean=Number(
        doc="Mean turns of a session; after each it goes on with the same probability",
        unit="",
        bounds={"ge": 1, "le": 1e6},
    ),
    pause_median_s=Number(doc="Median pause between turns (lognormal)", **_PAUSE),
    pause_p90_s=Number(doc="Pause that nine in ten stay below", **_PAUSE),
    first_tokens_cv=Number(
        doc="Standard deviation over mean of first_tokens (lognormal); 0, all equal, if omitted", **_CV
    ),
    new_tokens_cv=Number(doc="Standard deviation over mean of new_tokens (lognormal); 0, all equal, if omitted", **_CV),
    touch=Text(doc="reverse if omitted: the tail of a context is evicted first, as engines do; or forward: its head"),
)
def kv_hit_curve(
    capacities_tokens: Any,
    arrivals_per_s: Any,
    first_tokens: Any,
    new_tokens: Any,
    turns_mean: Any,
    pause_median_s: Any,
    pause_p90_s: Any,
    first_tokens_cv: Any = 0.0,
    new_tokens_cv: Any = 0.0,
    touch: Any = "reverse",
) -> Rows:
    """Ceiling, resident and kept share over capacity, header first."""
    if pause_p90_s < pause_median_s:
        raise KvmodelError(
            f"pause_p90_s must not be below pause_median_s, got {pause_p90_s:g} s, below {pause_median_s:g} s"
        )
    if touch not in ("reverse", "forward"):
        raise KvmodelError(f"touch must be reverse or forward, got {touch!r}")
    stream = reuse.SessionStream(
        arrivals_per_s,
        first=Lognormal.from_mean_cv(first_tokens, first_tokens_cv),
        step=Lognormal.from_mean_cv(new_tokens, new_tokens_cv),
        turns=GeometricTurns(turns_mean),
        gap=Lognormal.from_median_p90(pause_median_s, pause_p90_s),
    )
    capacities = capacities_tokens.ravel()
    found = reuse.hit_tokens([stream], capacities, touch)
    hits, reusable = found.private[0], found.reusable_private[0]
    prompts = stream.paused_moments[1] + stream.finished_moments[1]
    kept = np.divide(hits, reusable, out=np.full_like(hits, np.nan), where=reusable > 0)
    table = np.stack([capacities, reusable / prompts, hits / prompts, kept], axis=1)
    return [["capacity_tokens", "ceiling", "resident", "kept"], *table.tolist()]


@block_function(
    "Years until the rated writes of the drives are used up by a steady flow that is spread evenly over them.",
    Column("years", "yr", "lifetime; far beyond the warranty it says only that wear is no limit"),
    infinite="unlimited",
    write_gb_per_day=Number(doc="Bytes the host writes to all drives together", unit="GB/day", bounds={"ge": 0}),
    drive=NumberOrName(
        doc="Rated writes of one drive (TBW), or the preset name of a drive", unit="TB", bounds={"gt": 0}
    ),
    drives=Number(doc="Number of drives; 1 if omitted", unit="", bounds={"ge": 1}),
    amplification=Number(
        doc="Flash bytes these writes cost per byte; omitted: as the rating's own pattern. What the "
        "rating itself contains is known from presets with two ratings, else taken as 1: a lower "
        "bound of the life",
        unit="",
        bounds={"ge": 1},
    ),
)
def kv_drive_lifetime(write_gb_per_day: Any, drive: Any, drives: Any = 1.0, amplification: Any = None) -> Rows:
    """Lifetime [yr]."""

    def answer(rate: float, drive: float | str, drives: float, amplification: float | None) -> float:
        rated, rated_amplification = _rating(drive) if isinstance(drive, str) else (drive, 1.0)
        factors = () if amplification is None else (rated_amplification, amplification)
        return float(endurance.lifetime(rate / drives, rated, *factors)) / YEAR

    return each(answer, write_gb_per_day, drive, drives, amplification)


def _rating(preset: str) -> tuple[Any, Any]:
    """Rated writes of one drive [B] and the amplification inside that rating, as far as the preset knows."""
    drive = Nvme(**catalogue.load("drives", preset).fields)
    if drive.rated_writes is not None:
        if drive.rated_writes_sequential is None:
            return drive.rated_writes, 1.0
        return drive.rated_writes, endurance.rated_amplification(drive.rated_writes, drive.rated_writes_sequential)
    if None in (drive.rated_dwpd, drive.warranty, drive.capacity):
        raise MissingNumberError(f"drive preset {preset!r} states no rated writes; give them as a number in TB instead")
    return endurance.rated_writes(drive.capacity, drive.rated_dwpd, drive.warranty), 1.0


@table_function(
    "The result table of a study file: one row per number, with unit, definition and flags. Draws show as mean, p05, "
    "p50 and p95.",
    Column("case", "text", "scenario and named choices"),
    Column("arm", "text", "which reuse is allowed; blank: the same for all"),
    Column("population", "text", "part of the workload; blank: all"),
    Column("tier", "text", "tier; blank: all"),
    Column("quantity", "text", "what the number is"),
    Column("value", "the row's unit", "the number; blank where the point is infeasible, with the reason in flags"),
    Column("unit", "text", "base unit of the value"),
    Column("definition", "text", "what it means, with its denominator"),
    Column("flags", "text", "what qualifies it"),
    slow=True,
    study=Text(doc="Path of the study file (YAML)"),
    scenario=Text(doc="Scenario of the study, several joined with +; as written if omitted"),
    quantity=Text(doc="Only these quantities: a name such as reuse.timely, or a pattern such as cost.*"),
    arm=Text(doc="Only this arm of the comparison, and what is the same for all"),
)
def kv_plan(study: Any, scenario: Any = None, quantity: Any = None, arm: Any = None) -> Rows:
    """The result table of a study, header first."""
    loaded = load_study(Path(study).expanduser())
    table = plan(loaded if scenario is None else loaded.with_scenario(scenario))
    if arm is not None and arm not in table.about["arms"]:
        raise KvmodelError(f"arm {arm!r} is not compared in this study; there are {', '.join(table.about['arms'])}")
    frame = table.to_frame()
    if arm is not None:
        frame = frame[frame["arm"].isin([arm, ""])]
    if quantity is not None:
        frame = frame[[fnmatchcase(name, quantity) for name in frame["quantity"]]]
        if frame.empty:
            families = dict.fromkeys(f"{row.quantity.split('.')[0]}.*" for row in table)
            raise KvmodelError(f"no quantity matches {quantity!r}; there are {', '.join(families)}")
    return [list(frame.columns), *frame.astype(object).to_numpy().tolist()]
