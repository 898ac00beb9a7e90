"""kvmodel trace: exact hit curves, working sets and reuse of real traces."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from kvmodel.cli.console import write_output
from kvmodel.errors import KvmodelError


def trace(
    files: Sequence[str],
    *,
    format: str = "auto",
    block_tokens: int | None = None,
    capacities: Sequence[int] | None = None,
    tiers: Sequence[tuple[str, int | str]] = (),
    kv_bytes_per_token: float | None = None,
    model: str | None = None,
    kv_dtype: str | None = None,
    break_even_hits_per_block_hour: float | None = None,
    sample: float = 1.0,
    session_interval_s: float | None = None,
    sort: bool = False,
    skip_bad_lines: bool = False,
    curve: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """One summary document per file (keys: docs/traces.md), each trace on its own.

    `model` (preset or config.json) sizes every request by the model's own curve, windows and states included. Tiers are
    numbers of blocks, or bytes such as "40 GiB" when bytes per token are known. `curve` names a CSV file that gets
    every step of the LRU curve (one input file only).
    """
    from dataclasses import replace

    from kvmodel.traces import SummaryOptions, read_trace, trace_summary

    if curve is not None and len(files) != 1:
        raise KvmodelError("--curve writes the curve of one trace; give one file")
    for name, value in (
        ("KV bytes per token", kv_bytes_per_token),
        ("break-even hits", break_even_hits_per_block_hour),
    ):
        if value is not None and not 0 <= value < 1e18:
            raise KvmodelError(f"{name}: {value} given, a finite number from 0 up is expected")
    if model is not None and kv_bytes_per_token is not None:
        raise KvmodelError("give a model or KV bytes per token, not both")
    options = SummaryOptions(
        capacities=capacities,
        kv_bytes_per_token=kv_bytes_per_token,
        break_even_hits_per_block_hour=break_even_hits_per_block_hour,
        sample=sample,
    )
    documents = []
    for file in files:
        read = read_trace(
            file,
            format=format,
            block_tokens=block_tokens,
            sort=sort,
            skip_bad_lines=skip_bad_lines,
            session_interval_s=session_interval_s,
            sample=sample,
            progress=_line_progress(file, progress),
        )
        if progress is not None:
            progress(f"{file}: {read.requests:,} requests read, working out curves")
        sized = _sized(read, model, kv_dtype) if model is not None else {}
        per_token = sized["bytes_per_token"] if sized else kv_bytes_per_token
        found = replace(options, kv_bytes_per_token=per_token, tiers=_in_blocks(tiers, read.block_tokens, per_token))
        documents.append(trace_summary(read, found) | ({"kv": sized} if sized else {}))
        if curve is not None:
            _write_curve(curve, read)
    return documents


def _sized(read: Any, model: str, kv_dtype: str | None) -> dict[str, Any]:
    """KV bytes of the requests by the model's own curve. Bytes per token are all bytes over all tokens, so that many
    short and few long requests weigh as they are."""
    import numpy as np

    from kvmodel.analyses.size import model_of, with_precision
    from kvmodel.traces.distribution import distribution

    llm = with_precision(model_of(model), kv_dtype)
    tokens = read.input_tokens[read.input_tokens > 0]
    nbytes = np.asarray(llm.sequence_bytes(tokens.astype(float)), float)
    return {
        "model": llm.name,
        "bytes_per_token": float(nbytes.sum() / tokens.sum()) if len(tokens) else 0.0,
        "bytes_per_further_token": float(np.asarray(llm.growing_bytes_per_token)),
        "request_bytes": distribution(nbytes),
    }


def _in_blocks(
    tiers: Sequence[tuple[str, int | str]], block_tokens: int | None, per_token: float | None
) -> list[tuple[str, int]]:
    """Tiers in blocks; bytes are turned into whole blocks."""
    from kvmodel import units

    found = []
    for name, size in tiers:
        if isinstance(size, str):
            if not per_token or not block_tokens:
                raise KvmodelError(f"--tiers {name}={size}: bytes need --model or --kv-bytes-per-token")
            try:
                nbytes = units.parse(size, "B")
            except ValueError as error:
                raise KvmodelError(f"--tiers {name}: {error}") from None
            size = max(0, int(nbytes / per_token / block_tokens))
        found.append((name, size))
    return found


def trace_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Traces: plain, .gz or .zst; - for stdin.")],
    format: Annotated[str, typer.Option("--format", help="Trace format; auto looks at the first line.")] = "auto",
    block_tokens: Annotated[
        int | None,
        typer.Option("--block-tokens", min=1, help="Tokens per block, when the trace does not say."),
    ] = None,
    capacities: Annotated[
        str | None, typer.Option("--capacities", help="Cache sizes in blocks, such as 1000,3000,10000.")
    ] = None,
    tiers: Annotated[
        str | None,
        typer.Option("--tiers", help="Exclusive chain, fast to slow: hbm=3000,dram=30000 blocks, or dram='1.5 TiB'."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Preset or config.json that sizes the KV of every request.")
    ] = None,
    kv_dtype: Annotated[str | None, typer.Option("--kv-dtype", help="Cache type, with --model: bf16, fp8, ...")] = None,
    kv_bytes_per_token: Annotated[
        float | None,
        typer.Option("--kv-bytes-per-token", min=0, help="Bytes of KV per token: adds bytes to tokens."),
    ] = None,
    break_even_hits: Annotated[
        float | None,
        typer.Option(
            "--break-even-hits", min=0, help="Hits per block and hour that pay a block's rent: economic knee."
        ),
    ] = None,
    sample: Annotated[
        float, typer.Option("--sample", help="Share of sessions to keep (0-1], for traces beyond memory.")
    ] = 1.0,
    session_interval: Annotated[
        float | None,
        typer.Option("--session-interval", min=0, help="Session files: seconds from one session's start to the next."),
    ] = None,
    sort: Annotated[bool, typer.Option("--sort", help="Put requests in order of time first.")] = False,
    skip_bad_lines: Annotated[
        bool,
        typer.Option("--skip-bad-lines", help="Count lines that break their format instead of stopping."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document (a list for several files).")] = False,
    output: Annotated[str, typer.Option("-o", "--output", help="File for the result; - for stdout.")] = "-",
    curve: Annotated[
        str | None, typer.Option("--curve", help="CSV file for every step of the exact LRU curve.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Exact hit curves, working sets and reuse of traces."""
    show = None if quiet or not sys.stderr.isatty() else _show_progress
    documents = trace(
        files,
        format=format,
        block_tokens=block_tokens,
        capacities=_capacities(capacities),
        tiers=_tiers(tiers),
        kv_bytes_per_token=kv_bytes_per_token,
        model=model,
        kv_dtype=kv_dtype,
        break_even_hits_per_block_hour=break_even_hits,
        sample=sample,
        session_interval_s=session_interval,
        sort=sort,
        skip_bad_lines=skip_bad_lines,
        curve=curve,
        progress=show,
    )
    if show is not None:
        sys.stderr.write("\r\033[K")
    if as_json:
        text = json.dumps(documents[0] if len(documents) == 1 else documents, indent=2, allow_nan=False) + "\n"
    else:
        text = "\n".join(report(document) for document in documents)
    write_output(text, output)


def report(document: dict[str, Any]) -> str:
    """The document as a short text, every ratio with what it is a share of."""
    lines = [
        f"{document['trace']} ({document['format']})",
        f"  {document['requests']:,} requests, {document['input_tokens']:,} input tokens"
        + (f", {document['skipped_lines']:,} lines skipped" if document["skipped_lines"] else "")
        + (f", {document['duration_s']:,.0f} s" if document["duration_s"] else ""),
    ]
    if document["request_rate_per_s"]:
        lines.append(
            f"  {document['request_rate_per_s']:,.3f} requests a second, coefficient of variation of gaps "
            f"{document['interarrival_cv'] or 0:.2f}"
        )
    for key, name in (("input_length", "input"), ("output_length", "output")):
        if document[key]:
            spread = document[key]
            lines.append(
                f"  {name} tokens: mean {spread['mean']:,.0f}, median {spread['p50']:,.0f}, p99 {spread['p99']:,.0f}"
            )
    if document.get("kv"):
        kv = document["kv"]
        lines.append(
            f"  KV of {kv['model']}: {kv['bytes_per_token']:,.0f} bytes a token over these requests, "
            f"{kv['bytes_per_further_token']:,.0f} for one more; a request p50 "
            f"{kv['request_bytes']['p50'] / 1e9:,.3f} GB, p99 {kv['request_bytes']['p99'] / 1e9:,.3f} GB"
        )
    if document["infinite_cache"]:
        lines += _infinite_lines(document) + _curve_lines(document) + _time_lines(document) + _knee_lines(document)
    return "\n".join([*lines, *(f"  note: {note}" for note in document["notes"])]) + "\n"


def _infinite_lines(document: dict[str, Any]) -> list[str]:
    infinite = document["infinite_cache"]
    once = _percent(document["fraction_blocks_never_reused"])
    shares = {
        "block_hit_ratio": "of block accesses were seen before",
        "prefix_block_hit_ratio": "of block accesses are in a prefix seen in earlier requests",
        "prefix_token_hit_ratio": "of input tokens are in such a prefix",
        "prefix_token_hit_ratio_full_blocks": "of input tokens, full blocks only",
        "mean_per_request_prefix_token_ratio": "of the input tokens of a request, mean over requests",
    }
    return [
        f"  {document['block_accesses']:,} block accesses, {document['unique_blocks']:,} unique blocks of "
        f"{document['block_tokens']} tokens, {once} of them used once",
        "",
        "Ceiling (infinite cache)",
        *(f"  {_percent(infinite[key]):>9} {meaning}" for key, meaning in shares.items()),
    ]


def _curve_lines(document: dict[str, Any]) -> list[str]:
    if not document["lru"]:
        return []
    row = "  {:>12} {:>16} {:>10} {:>10} {:>14} {:>12}"
    lines = ["", "Hit ratio by capacity: LRU and best possible of block accesses, prefix of input tokens"]
    lines.append(row.format("blocks", "tokens", "LRU", "best", "prefix (LRU)", "misses/s"))
    best = {found["capacity_blocks"]: found["block_hit_ratio"] for found in document["belady"]}
    for lru, prefix in zip(document["lru"], document["prefix_lru_reverse_touch"], strict=True):
        capacity, misses = lru["capacity_blocks"], lru["misses_per_s"]
        cells = (lru["block_hit_ratio"], best.get(capacity), prefix["prefix_token_hit_ratio"])
        lines.append(
            row.format(
                f"{capacity:,}",
                f"{lru['capacity_tokens']:,}",
                *map(_percent, cells),
                "-" if misses is None else f"{misses:,.2f}",
            )
        )
    lines.append("  (prefix: leading blocks resident when the request arrives, tails evicted before heads)")
    for tier in document["tiers"]:
        share, reached = tier["block_hit_ratio"], tier["block_hit_ratio_of_what_reached_it"]
        lines.append(
            f"  tier {tier['tier']}, {tier['capacity_blocks']:,} blocks: hits {_percent(share)} of "
            f"block accesses, {_percent(reached)} of those that reached it"
        )
    return lines


def _time_lines(document: dict[str, Any]) -> list[str]:
    if not document["working_set"]:
        return []
    lines = ["", "Working set W(T), blocks, and hit ratio if a block is forgotten T after its last use"]
    lines += [f"  {'T s':>8} {'time mean':>14} {'largest':>12} {'seen by accesses':>18} {'TTL hits':>9}"]
    for held, ttl in zip(document["working_set"], document["ttl"], strict=True):
        mean = "-" if held["mean_blocks"] is None else f"{held['mean_blocks']:,.1f}"
        lines.append(
            f"  {held['window_s']:>8g} {mean:>14} {held['max_blocks']:>12,} "
            f"{held['seen_by_accesses_blocks']:>18,.1f} {_percent(ttl['block_hit_ratio']):>9}"
        )
    return lines


def _knee_lines(document: dict[str, Any]) -> list[str]:
    knee = document.get("knee")
    if not knee or knee["capacity_for_90_percent_of_ceiling_blocks"] is None:
        return []
    lines = [
        "",
        "Knees of the LRU block curve",
        f"  90 % of the ceiling from {knee['capacity_for_90_percent_of_ceiling_blocks']:,} blocks, 99 % from "
        f"{knee['capacity_for_99_percent_of_ceiling_blocks']:,}",
    ]
    for cliff in knee["cliffs"]:
        lines.append(
            f"  cliff: {_percent(cliff['gained_share'])} of all possible hits between "
            f"{cliff['below_blocks']:,} and {cliff['fits_blocks']:,} blocks"
        )
    if knee["economic"]:
        economic = knee["economic"]
        lines.append(
            f"  economic knee {economic['capacity_blocks']:,} blocks, where another block earns fewer than "
            f"{economic['hits_per_block_hour']:g} hits an hour"
        )
    return lines


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.2f} %"


def _capacities(text: str | None) -> list[int] | None:
    if text is None:
        return None
    return [_blocks("--capacities", word) for word in text.split(",") if word.strip()]


def _tiers(text: str | None) -> list[tuple[str, int | str]]:
    """Sizes without a unit are blocks."""
    pairs = [word.partition("=") for word in (text or "").split(",") if word.strip()]
    sizes = [(name.strip(), size.strip()) for name, _, size in pairs]
    return [(name, size if size[-1:].lower() == "b" else _blocks("--tiers", size)) for name, size in sizes]


def _blocks(option: str, word: str) -> int:
    try:
        value = int(word.strip().replace("_", ""))
    except ValueError:
        value = 0
    if not 1 <= value <= 10**15:
        raise typer.BadParameter(f"{word.strip()!r} is not a number of blocks from 1 up", param_hint=option)
    return value


def _line_progress(file: str, progress: Callable[[str], None] | None) -> Callable[[int], None] | None:
    if progress is None:
        return None
    return lambda line: progress(f"{file}: line {line:,}")


def _show_progress(message: str) -> None:
    sys.stderr.write(f"\r\033[K{message}")
    sys.stderr.flush()


def _write_curve(path: str, read: Any) -> None:
    from kvmodel.traces.hit_curve import lru_curve
    from kvmodel.traces.prefix_tree import run_stream
    from kvmodel.traces.stack_distance import stack_distances

    stream = run_stream(read)
    curve = lru_curve(stream, stack_distances(stream))
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(["capacity_blocks", "hit_blocks", "block_accesses"])
    rows.writerows((c, h, curve.total) for c, h in zip(curve.capacity_blocks, curve.hits, strict=True))
    write_output(table.getvalue(), path)
