"""`kvmodel retention STUDY`: how long a waiting session is worth keeping, where, and what it costs."""

from __future__ import annotations

from kvmodel.cli import options


def retention_command(
    study: options.Study,
    set_: options.Assignments = None,
    scenario: options.Scenario = None,
    json: options.Json = False,
    output: options.Output = None,
    csv: options.Csv = None,
    chart: options.Chart = None,
) -> None:
    """How long to keep a waiting session in each tier, when to move it down, and the price of an hour."""
    from kvmodel.cli.retention_summary import summary_text
    from kvmodel.cli.tables_out import write_tables
    from kvmodel.study.retention import retention_table

    write_tables(retention_table, summary_text, study, set_ or [], scenario, json, output, csv, chart, "retention")
