"""From a file to a Trace, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from kvmodel.errors import nearest
from kvmodel.traces.block_size import consistent_block_tokens, inferred_block_tokens
from kvmodel.traces.columns import MICROSECONDS, Trace, TraceBuilder
from kvmodel.traces.errors import BadRecord, TraceError
from kvmodel.traces.formats import FORMATS, Format, ReadOptions
from kvmodel.traces.lines import lines
from kvmodel.traces.sampling import SampledBuilder

AUTO = "auto"
LONGEST_INTERVAL_S = 1e9
_PROGRESS_EVERY = 1000


def read_trace(
    source: str | Path,
    *,
    format: str = AUTO,
    block_tokens: int | None = None,
    sort: bool = False,
    skip_bad_lines: bool = False,
    session_interval_s: float | None = None,
    sample: float = 1.0,
    progress: Callable[[int], None] | None = None,
) -> Trace:
    """The trace in `source` (a path, or '-' for standard input).

    `progress` is called now and then with the number of requests read. With `skip_bad_lines` records that
    break their format are counted in `Trace.skipped_lines` instead of stopping the reading. `sample` keeps
    that share of the sessions, whole (see `sampling`). Raises TraceError with file and line.
    """
    if not 0 < sample <= 1:
        raise TraceError(f"sample is {sample}; it is the share of sessions to keep, above 0 and at most 1")
    if session_interval_s is not None and not 0 <= session_interval_s <= LONGEST_INTERVAL_S:
        raise TraceError(f"session interval is {session_interval_s} s; allowed are 0 to {LONGEST_INTERVAL_S:.0f} s")
    stream = lines(source)
    first = next(stream, None)
    if first is None:
        raise TraceError(f"{source}: the file is empty")
    chosen = _chosen_format(str(source), first, format)
    interval_us = None if session_interval_s is None else round(session_interval_s * MICROSECONDS)
    builder = SampledBuilder(sample, in_order=not sort) if sample < 1 else TraceBuilder(in_order=not sort)
    skipped = _read_records(
        str(source), chosen, first, stream, builder, ReadOptions(interval_us), skip_bad_lines, progress
    )
    trace = builder.trace(name=str(source), format=chosen.name, skipped_lines=skipped)
    if trace.requests == 0:
        raise TraceError(f"{source}: no request in it" + (f" ({skipped} lines skipped)" if skipped else ""))
    if not trace.has_blocks or sort or not builder.in_order:
        trace = trace.by_time()
    return _with_block_tokens(trace, block_tokens, chosen.usual_block_tokens)


def _chosen_format(source: str, first: tuple[int, str], name: str) -> Format:
    if name == AUTO:
        found = next((known for known in FORMATS if known.recognises(first[1])), None)
        if found is None:
            raise TraceError(
                f"{source}:{first[0]}: no known trace format starts like this; name one with --format: "
                + ", ".join(known.name for known in FORMATS)
            )
        return found
    found = next((known for known in FORMATS if known.name == name), None)
    if found is None:
        names = [known.name for known in FORMATS]
        raise TraceError(f"no trace format {name!r}{nearest(name, names)}; known: auto, {', '.join(names)}")
    return found


def _read_records(
    source: str,
    chosen: Format,
    first: tuple[int, str],
    rest: Iterator[tuple[int, str]],
    builder: TraceBuilder,
    options: ReadOptions,
    skip_bad_lines: bool,
    progress: Callable[[int], None] | None,
) -> int:
    try:
        read_record = chosen.reader(first[1], options)
    except BadRecord as error:
        raise TraceError(f"{source}:{first[0]}: {error}") from error
    skipped = 0
    for number, line in rest if chosen.has_header else chain([first], rest):
        try:
            read_record(line, builder)
        except BadRecord as error:
            if not skip_bad_lines:
                raise TraceError(f"{source}:{number}: {error}") from error
            skipped += 1
        if progress is not None and number % _PROGRESS_EVERY == 0:
            progress(number)
    return skipped


def _with_block_tokens(trace: Trace, asked: int | None, usual: int | None) -> Trace:
    """Block size: as asked, as the file states, as its format usually has if that fits, or as the lengths
    force.
    """
    if not trace.has_blocks:
        return trace
    value = asked or trace.block_tokens
    if value is None and usual is not None and consistent_block_tokens(trace, usual):
        value = usual
    value = value or inferred_block_tokens(trace) or usual
    if value is None or value < 1:
        raise TraceError(
            f"{trace.name}: tokens per block neither stated nor certain from the lengths; give --block-tokens"
        )
    if consistent_block_tokens(trace, value):
        return replace(trace, block_tokens=int(value))
    note = f"{value} tokens per block do not fit the lengths of every request; token ratios rest on the lengths"
    return replace(trace, block_tokens=int(value), notes=(*trace.notes, note))
