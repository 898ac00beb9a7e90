"""Measured points from files: plain CSV, and the result files of engine benchmarks.

A CSV has a header. Prefill: tokens, seconds, and where they matter cached_tokens and concurrency. Transfer: bytes,
seconds, and where it matters block_bytes. Numbers are in base units or carry their own (8k, 120 ms, 2 MiB).

The benchmarks of vLLM (`vllm bench serve --save-result`) and SGLang (`bench_serving --output-file`) write the same
keys: one JSON document or one per line, each a run. A run gives one point, its mean length and mean time to first
token; with per-request details and one request at a time it gives a point per request.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvmodel import units
from kvmodel.errors import KvmodelError, nearest

LARGEST_FILE = 64 * 2**20
MOST_POINTS = 200  # a fit leaves each point out in turn; a benchmark's details are thinned to this


@dataclass(frozen=True)
class Column:
    """A column of a CSV: its unit, and its value where the file does not have it (None: it must)."""

    unit: str
    default: float | None = None


PREFILL = {
    "tokens": Column("token"),
    "seconds": Column("s"),
    "cached_tokens": Column("token", 0.0),
    "concurrency": Column("", 1.0),
}
TRANSFER = {"bytes": Column("B"), "seconds": Column("s"), "block_bytes": Column("B", math.inf)}


def read_points(files: Sequence[str | Path], columns: Mapping[str, Column]) -> dict[str, list[float]]:
    """All points of the files, by column. Raises KvmodelError that names file and line."""
    points = [point for file in files for point in _points(Path(file), columns)]
    if len(points) > MOST_POINTS:
        raise KvmodelError(f"{len(points)} points; at most {MOST_POINTS}: give the median of repeated measurements")
    return {name: [point[name] for point in points] for name in columns}


def _points(path: Path, columns: Mapping[str, Column]) -> Iterator[dict[str, float]]:
    text = _text(path)
    if text.lstrip()[:1] in ("{", "["):
        if "tokens" not in columns:
            raise KvmodelError(f"{path}: a benchmark result has no transfers; give a CSV of {', '.join(columns)}")
        yield from _from_benchmark(path, text)
    else:
        yield from _from_csv(path, text, columns)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise KvmodelError(f"{path}: {path.stat().st_size} bytes is more than a file of points may have")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise KvmodelError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KvmodelError(f"{path}: not a text file") from None
    if not text.strip():
        raise KvmodelError(f"{path}: empty")
    return text


# --- CSV ------------------------------------------------------------------------------------------


def _from_csv(path: Path, text: str, columns: Mapping[str, Column]) -> Iterator[dict[str, float]]:
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    header: list[str] | None = None
    try:
        for row in rows:
            if not any(cell.strip() for cell in row) or row[0].lstrip().startswith("#"):
                continue
            if header is None:
                header = _header(f"{path}:{rows.line_num}", [cell.strip() for cell in row], columns)
                continue
            where = f"{path}:{rows.line_num}"
            if len(row) != len(header):
                raise KvmodelError(f"{where}: {len(row)} values, but the header names {len(header)}")
            given = dict(zip(header, row, strict=True))
            yield _checked(
                {name: _value(where, name, given.get(name), column) for name, column in columns.items()}, where
            )
    except csv.Error as error:
        raise KvmodelError(f"{path}:{rows.line_num}: not CSV ({error})") from None


def _header(where: str, names: list[str], columns: Mapping[str, Column]) -> list[str]:
    for name in names:
        if name not in columns:
            raise KvmodelError(
                f"{where}: no column {name!r} is known{nearest(name, columns)}; there are {', '.join(columns)}"
            )
    missing = [name for name, column in columns.items() if column.default is None and name not in names]
    if missing:
        raise KvmodelError(f"{where}: the header lacks {', '.join(missing)}")
    if len(set(names)) != len(names):
        raise KvmodelError(f"{where}: a column is named twice")
    return names


def _value(where: str, name: str, text: str | None, column: Column) -> float:
    if (text is None or not text.strip()) and column.default is not None:
        return column.default
    try:
        return units.parse(text or "", column.unit)
    except ValueError as error:
        raise KvmodelError(f"{where}: {name}: {error}") from None


def _checked(point: dict[str, float], where: str) -> dict[str, float]:
    """The point, if its numbers can be."""
    for name, value in point.items():
        least = 0.0 if name == "cached_tokens" else 1.0 if name == "concurrency" else None
        if value < 0 or (least is None and value == 0) or (least is not None and value < least):
            raise KvmodelError(
                f"{where}: {name}: must be {'more than 0' if least is None else f'at least {least:g}'}, got {value:g}"
            )
    if point.get("cached_tokens", 0.0) > point.get("tokens", math.inf):
        raise KvmodelError(f"{where}: cached_tokens {point['cached_tokens']:g} is more than tokens {point['tokens']:g}")
    return point


# --- benchmark results ----------------------------------------------------------------------------


def _from_benchmark(path: Path, text: str) -> Iterator[dict[str, float]]:
    for line, run in _documents(path, text):
        where = f"{path}:{line}"
        if not isinstance(run, Mapping):
            raise KvmodelError(f"{where}: not a benchmark result (a mapping)")
        yield from _of_run(run, where)


def _documents(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """Every JSON document of the text with its line: one, a list of them, or one per line."""
    try:
        whole = json.loads(text)
        yield from ((1, run) for run in (whole if isinstance(whole, list) else [whole]))
        return
    except (json.JSONDecodeError, RecursionError):
        pass
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                raise KvmodelError(f"{path}:{number}: not JSON ({error})") from None


def _of_run(run: Mapping[str, Any], where: str) -> Iterator[dict[str, float]]:
    number = _reader(run, where)
    load = _concurrency(run, where, number)
    lengths, times = run.get("input_lens"), run.get("ttfts")
    if load == 1 and isinstance(lengths, list) and isinstance(times, list) and lengths and len(lengths) == len(times):
        yield from _of_requests(lengths, times, where)
        return
    name = "mean_ttft_ms" if "mean_ttft_ms" in run else "median_ttft_ms"
    yield _checked(
        {
            "tokens": number("total_input_tokens") / max(number("completed"), 1.0),
            "seconds": number(name) / 1e3,
            "cached_tokens": 0.0,
            "concurrency": load,
        },
        where,
    )


def _reader(run: Mapping[str, Any], where: str) -> Callable[[str], float]:
    def number(name: str) -> float:
        value = run.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise KvmodelError(
                f"{where}: {name} is {'missing' if name not in run else repr(value)[:40]}; is this the "
                "result of vllm bench serve or of SGLang's bench_serving?"
            )
        return float(value)

    return number


def _concurrency(run: Mapping[str, Any], where: str, number: Callable[[str], float]) -> float:
    """Requests at once: the stated limit, or all of them when all were sent at once."""
    if run.get("max_concurrency") is not None:
        return max(number("max_concurrency"), 1.0)
    if str(run.get("request_rate")) not in ("inf", "Infinity"):
        raise KvmodelError(
            f"{where}: requests came at a rate of {run.get('request_rate')} /s, so their waits are part of "
            "the times; run the benchmark with a maximum concurrency"
        )
    return max(number("completed"), 1.0)


def _of_requests(lengths: list[Any], times: list[Any], where: str) -> Iterator[dict[str, float]]:
    """Points of single requests, shortest to longest, thinned evenly; failed requests have no time and are left out."""
    try:
        pairs = sorted((float(n), float(t)) for n, t in zip(lengths, times, strict=True) if float(t) > 0)
    except (TypeError, ValueError):
        raise KvmodelError(f"{where}: input_lens and ttfts must be lists of numbers") from None
    step = max(1, math.ceil(len(pairs) / (MOST_POINTS // 2)))
    for tokens, seconds in pairs[::step]:
        yield _checked({"tokens": tokens, "seconds": seconds, "cached_tokens": 0.0, "concurrency": 1.0}, where)
