"""The tables of a validation page: how each kind is predicted, how far off, and what is missed or refused.

They stand between two marks of a page whose other text is written by hand, so that one command renews the numbers and
leaves the causes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvmodel.errors import KvmodelError

MISS = 0.2  # errors from here on are listed one by one


def renew(page: Path, name: str, lines: Sequence[str]) -> None:
    """Put the lines between the marks of that name in the page; an absent page is made of them alone."""
    from kvmodel.cli.console import write_file

    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    block = "\n".join([begin, "", *lines, "", end])
    if not page.exists():
        write_file(page, block + "\n")
        return
    text = page.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise KvmodelError(f"{page}: needs the lines {begin!r} and {end!r} once each; the tables go between them")
    write_file(page, text[: text.index(begin)] + block + text[text.index(end) + len(end) :])


def tables(result: Mapping[str, Any], sources: Mapping[str, str]) -> list[str]:
    """Markdown of an evaluation of measurements. sources: case id to the name of its source."""
    cases = result["cases"]
    answered = sum(case["predicted"] is not None for case in cases)
    return [
        f"{len(cases)} cases, {answered} predicted. Errors are |predicted / measured - 1|.",
        "",
        *_bars(result["bars"]),
        "",
        *_summary(result["summary"]),
        "",
        f"Errors of {MISS:.0%} and more:",
        "",
        *_misses(cases, sources),
        "",
        "Refused:",
        "",
        *_refused(cases),
    ]


def _bars(bars: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| bar | allowed | reached | cases | |"
    yield "|---|---|---|---|---|"
    for bar in bars:
        yield (
            f"| {bar['what']} | {_percent(bar['bar'])} | {_percent(bar['reached'])} | {bar['count']} | "
            f"{'' if bar['reached'] <= bar['bar'] else '**missed**'} |"
        )


def _summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| kind | family | basis | cases | median | mean | p90 | in interval |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        if row["basis"] != "refused":
            yield (
                f"| {row['kind']} | {row['family']} | {row['basis']} | {row['count']} | {_percent(row['median'])} | "
                f"{_percent(row['mean'])} | {_percent(row['p90'])} | {_percent(row['coverage'])} |"
            )


def _misses(cases: Sequence[Mapping[str, Any]], sources: Mapping[str, str]) -> Iterator[str]:
    yield "| case | basis | measured | predicted | error | source |"
    yield "|---|---|---|---|---|---|"
    for case in sorted(cases, key=lambda c: -abs(c["error"] or 0.0)):
        if abs(case["error"] or 0.0) >= MISS:
            yield (
                f"| {case['id']} | {case['basis']} | {case['measured']:.3g} | {case['predicted']:.3g} | "
                f"{100 * case['error']:+.0f} % | {sources.get(case['id'], '')} |"
            )


def _refused(cases: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| kind | cases | reason |"
    yield "|---|---|---|"
    counts = Counter((case["kind"], case["reason"]) for case in cases if case["predicted"] is None)
    for (kind, reason), count in sorted(counts.items()):
        yield f"| {kind} | {count} | {reason} |"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"
