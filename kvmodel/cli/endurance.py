"""`kvmodel endurance STUDY`: what the workload does to the drives, and the rule that makes them last."""

from __future__ import annotations

from kvmodel.cli import options


def endurance_command(
    study: options.Study,
    set_: options.Assignments = None,
    scenario: options.Scenario = None,
    json: options.Json = False,
    output: options.Output = None,
    csv: options.Csv = None,
    chart: options.Chart = None,
) -> None:
    """How long do the drives last, and which rule of admission makes them last long enough?"""
    from kvmodel.cli.endurance_summary import summary_text
    from kvmodel.cli.tables_out import write_tables
    from kvmodel.study.endurance import endurance_table

    write_tables(endurance_table, summary_text, study, set_ or [], scenario, json, output, csv, chart, "endurance")
