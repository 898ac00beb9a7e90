"""One web page that needs nothing but itself: verdict first, then tables, charts, assumptions, provenance, command."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

from kvmodel.report import tables
from kvmodel.report.bundle import javascript_bundle
from kvmodel.report.charts import Figure, figures
from kvmodel.results.shown import Cell, cases
from kvmodel.results.table import Table
from kvmodel.results.verdict import verdicts
from kvmodel.study.load import LoadedStudy

# The browser itself refuses to load anything from anywhere else.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"


def page(study: LoadedStudy, table: Table) -> str:
    """The report of a study as HTML. Its tables need no script; its charts need the script it brings along."""
    found = figures(table)
    body = [
        f"<header><h1>{escape(study.name)}</h1><p class='what'>{escape(_what(study, table))}</p></header>",
        "<main>",
        _verdict(table),
        _targets(table),
        _points_note(table),
        _section(tables.arms(table)),
        _section(tables.tiers(table)),
        _section(tables.chain(table)),
        _section(tables.retention(table)),
        _section(tables.workload(table)),
        _charts(found),
        _section(tables.flags(table)),
        _section(tables.assumptions(study)),
        _section(tables.provenance(study)),
        _folded(tables.all_rows(table)),
        _reproduce(study, table),
        "</main>",
    ]
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(study.name)}</title>\n<style>\n{_file('page.css')}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n"
        + _script(found)
        + "</body>\n</html>\n"
    )


def _file(name: str) -> str:
    return (files("kvmodel.report") / name).read_text(encoding="utf-8")


def _what(study: LoadedStudy, table: Table) -> str:
    record, count = study.record, len(cases(table))
    axes = "".join(f", {axis.name} × {len(axis.values):,}" for axis in table.axes)
    return (
        f"kvmodel report: {record.model.name} on {record.deployment.gpu.count:g} GPUs, "
        f"tiers {' > '.join(record.tiers)}; {count} case{'s' if count != 1 else ''}{axes}"
    )


def _verdict(table: Table) -> str:
    sentences = list(verdicts(table)) or ["Nothing to compare: the study has one arm; see the tables."]
    lines = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return f"<section class='verdict'><h2>Verdict</h2>{lines}</section>"


def _targets(table: Table) -> str:
    items = [
        f"<li class='{escape(verdict.split(' ')[0])}'><b>{escape(verdict)}</b>: {escape(target)}"
        f"{' (' + escape(where) + ')' if where else ''}</li>"
        for verdict, target, where in tables.targets(table)
    ]
    return f"<section><h2>Targets</h2><ul class='targets'>{''.join(items)}</ul></section>" if items else ""


def _points_note(table: Table) -> str:
    if not table.axes:
        return ""
    axes = ", ".join(f"{axis.name} ({len(axis.values):,})" for axis in table.axes)
    return (
        f"<p class='note'>Numbers vary over {escape(axes)}: the tables show the median, and below it the range "
        "from the 5th to the 95th percentile, over all points. Curves over capacity and prefix length are at the "
        "stated values.</p>"
    )


def _grid(grid: tables.Grid) -> str:
    kind = "numbers" if grid.numeric else "words"
    head = "".join(f"<th scope='col'>{escape(title)}</th>" for title in grid.head)
    lines = "".join(f"<tr>{''.join(_cells(row))}</tr>" for row in grid.body)
    note = f"<p class='note'>{escape(grid.note)}</p>" if grid.note else ""
    table = f"<table class='{kind}'><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return f"<div class='wide'>{table}</div>{note}"


def _cells(row: Sequence[Cell]) -> Iterator[str]:
    for index, cell in enumerate(row):
        content = escape(cell.text) + (f"<small>{escape(cell.small)}</small>" if cell.small else "")
        yield f"<td>{content}</td>" if index else f"<th scope='row'>{content}</th>"


def _section(grid: tables.Grid) -> str:
    return f"<section><h2>{escape(grid.title)}</h2>{_grid(grid)}</section>" if grid.body else ""


def _folded(grid: tables.Grid) -> str:
    return (
        (
            f"<section><details><summary>{escape(grid.title)} ({len(grid.body)} rows)</summary>{_grid(grid)}</details>"
            "</section>"
        )
        if grid.body
        else ""
    )


def _charts(found: Iterable[Figure]) -> str:
    drawn = [_figure(figure) for figure in found]
    if not drawn:
        return ""
    return (
        "<section class='charts'><h2>Charts</h2><noscript><p class='note'>The charts need JavaScript; their "
        f"numbers are in the tables.</p></noscript>{''.join(drawn)}</section>"
    )


def _figure(figure: Figure) -> str:
    places = "".join(
        f"<div class='chart' data-chart='{escape(_chart_id(figure, k))}'></div>" for k in range(len(figure.specs))
    )
    numbers = (
        ""
        if figure.curve is None
        else (
            f"<details><summary>Numbers of these curves</summary>{_grid(tables.curve_numbers(figure.curve))}</details>"
        )
    )
    caption = f"<p class='note'>{escape(figure.caption)}</p>" if figure.caption else ""
    return (
        f"<figure><figcaption><h3>{escape(figure.title)}</h3>{caption}</figcaption>"
        f"<div class='row'>{places}</div>{numbers}</figure>"
    )


def _chart_id(figure: Figure, index: int) -> str:
    return f"{figure.name}/{index}"


def _script(found: Sequence[Figure]) -> str:
    """All specifications as one block of data, then the libraries, then the loop that draws."""
    if not found:
        return ""
    specs = {_chart_id(figure, k): spec for figure in found for k, spec in enumerate(figure.specs)}
    text = json.dumps(specs, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<script type="application/json" id="charts">{text}</script>\n<script>{javascript_bundle()}</script>\n'
        f"<script>\n{_file('page.js')}</script>\n"
    )


def _reproduce(study: LoadedStudy, table: Table) -> str:
    about = table.about
    facts = {"kvmodel": "kvmodel", "study": "study", "study hash": "study_sha256", "seed": "seed", "draws": "draws"}
    lines = "".join(
        f"<tr><th scope='row'>{escape(name)}</th><td>{escape(str(about[key]))}</td></tr>"
        for name, key in facts.items()
        if about.get(key) is not None
    )
    return (
        f"<section><h2>Reproduce</h2><pre><code>{escape(tables.command(study, table))}</code></pre>"
        f"<div class='wide'><table><tbody>{lines}</tbody></table></div></section>"
    )
