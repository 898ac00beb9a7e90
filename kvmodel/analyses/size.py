"""How large is the KV of a sequence, as the model defines it, on one rank, and as an engine stores it?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from kvmodel.engines import KINDS, Parallel, Pool
from kvmodel.engines.engine import EngineRecord
from kvmodel.engines.vllm_layout import stage_of
from kvmodel.errors import KvmodelError, PresetError, UnsupportedModelError, nearest
from kvmodel.presets import catalogue
from kvmodel.system.config_json import read_config, read_config_file
from kvmodel.system.llm import Llm
from kvmodel.units import text

ENGINES = {kind.model_fields["kind"].default: kind for kind in KINDS}
RESERVE = 4e9  # bytes per GPU for activations, graphs and buffers, where nothing else is said
_UNKNOWN_POOL = 1e15  # large enough for any layout to be drawn up; its counts are not reported


def kv_size(
    model: Llm | Mapping[str, Any] | str | Path,
    tokens: Any = (),
    *,
    engine: EngineRecord | str | None = None,
    memory: float | None = None,
    gpu: str | None = None,
    reserve: float = RESERVE,
    max_model_len: int | None = None,
    tp: int = 1,
    pp: int = 1,
    dcp: int = 1,
    dp_attention: int = 1,
    encoder_tokens: int | None = None,
    kv_dtype: str | None = None,
    k_dtype: str | None = None,
    v_dtype: str | None = None,
    state_dtype: str | None = None,
    **engine_settings: Any,
) -> dict[str, Any]:
    """Size of the KV cache: growing and fixed part, per sequence, per rank, and in an engine's pool.

    model            record, parsed config.json, preset name, or path of a config.json or its directory
    tokens           lengths of sequences [tokens]; sequence_bytes answers in the same shape
    memory           KV pool of one rank [B]
    gpu, reserve     instead of memory: a GPU preset, whose memory × memory_fraction − weights − reserve [B] it is
    max_model_len    longest request [tokens]; by default the model's own
    tp, pp, dcp      tensor, pipeline and decode-context ranks
    dp_attention     data-parallel attention groups within tp
    engine_settings  settings of the engine record (engine_version, block_tokens, max_batched_tokens, ...)

    Returns the keys model, attention, growing_bytes_per_token, indexer_bytes_per_token, growing_up_to_tokens,
    bytes_per_token_below_window, fixed_bytes_per_sequence, sequence_bytes, per_rank, and with an engine: engine.
    Past every window  sequence_bytes = growing · min(n, growing_up_to_tokens) + indexer · n + fixed.
    Nothing is guessed: what is unknown is refused by name.
    """
    llm = with_precision(model_of(model), kv_dtype, k_dtype, v_dtype, state_dtype, encoder_tokens)
    parallel = parallel_of(tp, pp, dcp, dp_attention)
    tokens = np.asarray(tokens, dtype=float)
    if (tokens < 0).any() or not np.isfinite(tokens).all():
        raise KvmodelError("tokens must be finite and not negative")
    sizes = _bytes(llm)
    whole = _growth(sizes)
    answer = {
        "model": llm.name,
        "attention": [_group_answer(size) for size in sizes],
        "growing_bytes_per_token": _plain(whole.growing),
        "indexer_bytes_per_token": _plain(whole.indexer),
        "growing_up_to_tokens": whole.up_to,
        "bytes_per_token_below_window": _plain(whole.below_window),
        "fixed_bytes_per_sequence": _plain(whole.fixed),
        "sequence_bytes": _plain(llm.sequence_bytes(tokens)),
        "per_rank": _rank_answer(llm, parallel, sizes),
    }
    if engine is not None:
        record = engine_of(engine, **engine_settings)
        if gpu is not None:
            memory = pool_memory(llm, gpu, record.memory_fraction, parallel, reserve)
        answer["engine"] = _engine_answer(llm, record, parallel, memory, max_model_len)
    elif engine_settings:
        raise KvmodelError(f"{', '.join(sorted(engine_settings))}: a setting of an engine, but no engine is named")
    return answer


def model_of(model: Llm | Mapping[str, Any] | str | Path) -> Llm:
    """The model record behind a record, a parsed config.json, a preset name or a path."""
    if isinstance(model, Llm):
        return model
    if isinstance(model, Mapping):
        return read_config(model)
    path = Path(model)
    if path.exists():
        file = path / "config.json" if path.is_dir() else path
        stamp = file.stat() if file.exists() else path.stat()
        return _from_file(path.resolve(), stamp.st_mtime_ns, stamp.st_size)
    if isinstance(model, Path) or "/" in model or model.endswith(".json"):
        raise UnsupportedModelError(f"{model}: no such file or directory (nothing is downloaded)")
    return _from_preset(model)


@lru_cache(maxsize=256)
def _from_preset(name: str) -> Llm:
    try:
        return Llm(**catalogue.load("llms", name).fields, preset=name)
    except PresetError as error:
        raise PresetError(f"{error}; a path of a config.json or of its directory works too") from None


@lru_cache(maxsize=256)
def _from_file(path: Path, changed: int, size: int) -> Llm:
    return read_config_file(path)


def with_precision(
    llm: Llm,
    kv_dtype: str | None = None,
    k_dtype: str | None = None,
    v_dtype: str | None = None,
    state_dtype: str | None = None,
    encoder_tokens: int | None = None,
) -> Llm:
    """The model with other precisions of its cache; unknown names are refused."""
    given = {"kv_dtype": kv_dtype, "k_dtype": k_dtype, "v_dtype": v_dtype, "state_dtype": state_dtype}
    given = {name: value for name, value in given.items() if value is not None}
    if not given and encoder_tokens is None:
        return llm
    if _hashable(llm):
        return _changed(llm, tuple(given.items()), encoder_tokens)
    return _change(llm, given, encoder_tokens)


@lru_cache(maxsize=256)
def _changed(llm: Llm, given: tuple[tuple[str, str], ...], encoder_tokens: int | None) -> Llm:
    return _change(llm, dict(given), encoder_tokens)


def _hashable(llm: Llm) -> bool:
    try:
        hash(llm)
    except TypeError:  # a sweep or draws in one of its numbers
        return False
    return True


def _change(llm: Llm, given: Mapping[str, str], encoder_tokens: int | None) -> Llm:
    # single fields again through the record's own validation; the rest is already valid
    fields = {name: getattr(llm, name) for name in Llm.model_fields if name != "stored_weight_bytes"}
    groups = llm.attention
    if encoder_tokens is not None:
        if encoder_tokens < 0:
            raise KvmodelError("encoder_tokens must not be negative")
        changed = {"encoder_tokens": int(encoder_tokens)}
        groups = tuple(group.model_copy(update=changed) if group.kind == "cross" else group for group in groups)
    try:
        return Llm(**{**fields, **given, "attention": groups, "weight_bytes": llm.stored_weight_bytes})
    except ValidationError as error:
        raise UnsupportedModelError("; ".join(e["msg"].removeprefix("Value error, ") for e in error.errors())) from None


def parallel_of(tp: int = 1, pp: int = 1, dcp: int = 1, dp_attention: int = 1) -> Parallel:
    """Checked degrees of parallelism."""
    for name, value in (("tp", tp), ("pp", pp), ("dcp", dcp), ("dp_attention", dp_attention)):
        if int(value) != value or not 1 <= value <= 4096:
            raise KvmodelError(f"{name} must be a whole number from 1 to 4096, got {value}")
    if tp % dp_attention:
        raise KvmodelError(f"dp_attention {dp_attention} must divide tp {tp}")
    if (tp // dp_attention) % dcp:
        raise KvmodelError(f"dcp {dcp} must divide the {tp // dp_attention} ranks of one attention copy")
    return Parallel(int(tp), int(pp), int(dcp), int(dp_attention))


def engine_of(engine: EngineRecord | str, **settings: Any) -> EngineRecord:
    """The engine record by name, with the settings given; a setting it does not have is refused by name."""
    if isinstance(engine, EngineRecord):
        return engine
    if engine not in ENGINES:
        raise KvmodelError(f"unknown engine {engine!r}{nearest(str(engine), ENGINES)}; there are {', '.join(ENGINES)}")
    kind = ENGINES[engine]
    settings = {
        {"engine_version": "version"}.get(name, name): value for name, value in settings.items() if value is not None
    }
    foreign = [name for name in settings if name not in kind.model_fields]
    if foreign:
        raise KvmodelError(
            f"{', '.join(foreign)}: not a setting of {engine}; it has "
            f"{', '.join(n for n in kind.model_fields if n != 'kind')}"
        )
    return _engine(engine, tuple(sorted(settings.items())))


@lru_cache(maxsize=256)
def _engine(name: str, settings: tuple[tuple[str, Any], ...]) -> EngineRecord:
    try:
        return ENGINES[name](**dict(settings))
    except ValidationError as error:
        problems = (
            f"{'.'.join(map(str, e['loc']))}: {e['msg'].removeprefix('Value error, ')}, got {e['input']!r}"
            for e in error.errors()
        )
        raise KvmodelError(f"{name}: {'; '.join(problems)}") from None


def pool_memory(llm: Llm, gpu: str, memory_fraction: float, parallel: Parallel, reserve: float = RESERVE) -> float:
    """KV pool of one rank: GPU memory × fraction − its share of the weights − reserve [B]."""
    from kvmodel.system.gpu import Gpu

    record = Gpu(**catalogue.load("gpus", gpu).fields)
    weights = float(llm.weight_bytes) / (parallel.tp * parallel.pp)
    pool = record.memory * memory_fraction - weights - reserve
    if pool <= 0:
        usable = record.memory * memory_fraction - reserve
        needed = int(np.ceil(float(llm.weight_bytes) / usable)) if usable > 0 else 0
        hint = f"; {needed} GPUs would hold the weights" if needed else ""
        raise KvmodelError(
            f"{llm.name} does not fit: {text(weights, 'B')} of weights per {gpu} and {text(reserve, 'B')} of reserve "
            f"leave nothing of {text(record.memory * memory_fraction, 'B')}{hint}"
        )
    return pool


def model_weights(model: Llm | Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """Parameters, active parameters and bytes of the weights; None where they do not follow from the file."""
    llm = model_of(model)
    try:
        weight_bytes = _plain(llm.weight_bytes)
    except UnsupportedModelError:
        weight_bytes = None
    active = llm.active_parameters if llm.active_parameters is not None else llm.parameters
    return {
        "parameters": _plain(llm.parameters),
        "active_parameters": _plain(active),
        "weight_bytes": weight_bytes,
        "basis": f"preset {llm.preset}" if llm.preset else "derived from the layer shapes",
    }


class _Bytes(NamedTuple):
    """Bytes of one group of layers on one rank, each figure asked once."""

    group: Any
    growing: float  # what each token adds for ever [B/token]
    below: float  # what each token adds to windows that are not full yet [B/token]
    bounded: float  # full windows [B]
    state: float  # from the first token on [B]


def _bytes(llm: Llm, tp: int = 1) -> list[_Bytes]:
    precision = llm.precision
    return [
        _Bytes(
            group,
            group.growing_bytes_per_token(precision, tp),
            group.bounded_bytes(1, precision, tp),
            group.bounded_bytes(np.inf, precision, tp),
            group.state_bytes(precision, tp),
        )
        for group in llm.attention
    ]


def _group_answer(size: _Bytes) -> dict[str, Any]:
    group = size.group
    answer = {"kind": group.kind, "layers": group.layers, "growing_bytes_per_token": _plain(size.growing)}
    fields = vars(group)  # a record's fields; asking for one it does not have is slow
    answer |= {name: fields[name] for name in ("window", "chunk", "encoder_tokens") if fields.get(name)}
    if size.bounded:  # what each token adds until the window is full
        answer["bytes_per_token_below_window"] = _plain(size.growing + size.below)
        answer["bounded_bytes"] = _plain(size.bounded)
    if size.state:
        answer["state_bytes"] = _plain(size.state)
    return answer


class _Growth(NamedTuple):
    """How the layers of a model, or of one pipeline stage, take up bytes on one rank."""

    growing: float  # attention entries each token adds [B/token], up to up_to tokens where that is not None
    indexer: float  # index keys each token adds [B/token]
    below_window: float  # what the first tokens add, before any window is full [B/token]
    fixed: float  # what a long sequence holds beside [B]
    up_to: int | None  # the shortest window, where no attention entry outlives its window [tokens]


def _growth(sizes: list[_Bytes], share: Callable[[Any], float] = lambda group: 1.0) -> _Growth:
    """Growth of all groups together; `share` is the part of a group's layers that counts."""
    growing = indexer = windows = fixed = 0.0
    limits = []
    for size in sizes:
        part = share(size.group)
        if size.group.kind == "indexer":
            indexer += part * size.growing
        else:
            growing += part * size.growing
        fixed += part * (size.bounded + size.state)
        if part and size.below:
            windows += part * size.below
            limits.append(vars(size.group).get("window") or size.group.chunk)
    below_window = growing + indexer + windows
    if growing or not limits:
        return _Growth(growing, indexer, below_window, fixed, None)
    return _Growth(windows, indexer, below_window, fixed - windows * min(limits), min(limits))


def _stage_shares(llm: Llm, pp: int) -> Iterator[Callable[[Any], float]]:
    """For each pipeline stage, the part of a group's layers on it; stages as vLLM cuts them."""
    if pp > llm.depth:
        raise KvmodelError(f"pp {pp} is more than the {llm.depth} layers of {llm.name}")
    stages = [stage_of(position, llm.depth, pp) for position in range(llm.depth)]

    def share(group: Any, stage: int) -> float:
        if not group.positions and group.layers != llm.depth:
            raise UnsupportedModelError(
                f"{llm.name}: positions of the {group.kind} layers are not stated, so they "
                f"cannot be spread over pp {pp} stages"
            )
        at = group.positions or range(llm.depth)
        return sum(stages[position] == stage for position in at) / group.layers

    return (partial(share, stage=stage) for stage in range(pp))


def _rank_answer(llm: Llm, parallel: Parallel, logical: list[_Bytes]) -> dict[str, Any]:
    """One rank of the pipeline stage whose sequences grow fastest."""
    ranks = parallel.attention_tp
    whole, sizes = _growth(logical), logical if ranks == 1 else _bytes(llm, ranks)
    rank = _growth(sizes)
    counted = "growing" if whole.growing else "fixed"  # what replication is about
    copies = ranks * getattr(rank, counted) / getattr(whole, counted)
    if parallel.pp > 1:
        stages = (_growth(sizes, share) for share in _stage_shares(llm, parallel.pp))
        rank = max(stages, key=lambda stage: (stage.growing + stage.indexer, stage.fixed))
    return {
        "growing_bytes_per_token": _plain(rank.growing / parallel.dcp),
        "indexer_bytes_per_token": _plain(rank.indexer / parallel.dcp),
        "fixed_bytes_per_sequence": _plain(rank.fixed),
        "replication": _plain(copies / (parallel.dcp if whole.growing else 1)),
    }


def _engine_answer(
    llm: Llm, engine: EngineRecord, parallel: Parallel, memory: float | None, max_model_len: int | None
) -> dict[str, Any]:
    known = memory is not None
    pool: Pool = engine.pool(llm, memory if known else _UNKNOWN_POOL, parallel, max_model_len)
    return {
        "kind": engine.kind,
        "version": pool.rules,
        "block_tokens": pool.block_tokens,
        "page_bytes": _plain(pool.page_bytes),
        "blocks": pool.blocks if known else None,
        "tokens": pool.tokens if known else None,
        "concurrency_at_max_model_len": float(pool.concurrency_at_max_model_len) if known else None,
        "wasted_fraction": pool.wasted_fraction if known else None,
        "reuse_granularity_tokens": pool.reuse_granularity_tokens,
    }


def _plain(value: Any) -> Any:
    """A whole number as int, any other as float, an array as it is."""
    if value is None or np.ndim(value):
        return value
    number = float(value)
    return int(number) if number.is_integer() else number
