"""`kvmodel endurance STUDY`: what the workload does to the drives, and the rule that makes them last."""

from __future__ import annotations

from typing import Annotated

import typer


def endurance_command(
    study: Annotated[str, typer.Argument(help="Study file (YAML).", show_default=False)],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Override one number; repeatable.")
    ] = None,
    scenario: Annotated[
        str | None, typer.Option("--scenario", metavar="NAME", help="Evaluate under this scenario.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document instead of the tables.")] = False,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Write there; - is stdout.")
    ] = None,
    csv: Annotated[
        str | None, typer.Option("--csv", metavar="FILE", help="Also write the result table as CSV.")
    ] = None,
    chart: Annotated[
        str | None, typer.Option("--chart", metavar="FILE", help="Also draw it: .html, .svg or .png.")
    ] = None,
) -> None:
    """How long do the drives last, and which rule of admission makes them last long enough?"""
    from kvmodel.cli.endurance_summary import summary_text
    from kvmodel.cli.tables_out import write_tables
    from kvmodel.study.endurance import endurance_table

    write_tables(endurance_table, summary_text, study, set_ or [], scenario, json, output, csv, chart, "endurance")
