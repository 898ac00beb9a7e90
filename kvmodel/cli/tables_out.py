"""One table of a study, out in every form a command offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kvmodel.results.table import Table
from kvmodel.study.load import LoadedStudy


def write_tables(
    work: Callable[[LoadedStudy], Table],
    summary: Callable[[Table], str],
    study: str,
    assignments: Sequence[str],
    scenario: str | None,
    json: bool,
    output: str | None,
    csv: str | None,
    chart: str | None,
    subject: str,
) -> None:
    """Load a study, work out its table, and write text or JSON, CSV and a chart as asked for."""
    import json as json_text

    from kvmodel.cli.console import write_output
    from kvmodel.study.load import load_study
    from kvmodel.study.resolve import parse_assignment

    if chart is not None:
        from kvmodel.report.picture import require_kind

        require_kind(chart)  # before the work, not after it
    loaded = load_study(study, dict(parse_assignment(text) for text in assignments))
    table = work(loaded if scenario is None else loaded.with_scenario(scenario))
    if csv is not None:
        write_output(table.to_frame().to_csv(index=False), csv)
    if json:
        document = {**table.to_json(), "curves": {name: curve.to_json() for name, curve in table.curves.items()}}
        write_output(json_text.dumps(document, indent=1, allow_nan=False), output)
    elif csv != "-":
        write_output(summary(table), output)
    if chart is not None:
        from kvmodel.report.endurance_charts import admission_chart, window_chart

        drawn = {"endurance": admission_chart, "retention": window_chart}[subject](table)
        write_chart(drawn, chart, str(table.about["name"]))


def write_chart(drawn: Any, file: str, title: str, sentences: Sequence[str] = ()) -> None:
    """Write a chart where --chart says, whole or not at all."""
    from kvmodel.cli.console import say, write_file
    from kvmodel.report.picture import picture, require_kind

    write_file(Path(file), picture(drawn, require_kind(file), title, sentences))
    say(f"chart written to {file}")
