"""`kvmodel plan STUDY`: evaluate a study and say what it means."""

from __future__ import annotations

from typing import Annotated

import typer

from kvmodel.cli.exit_status import ExitStatus


def plan_command(
    study: Annotated[str, typer.Argument(help="Study file (YAML).", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="One JSON document instead of the summary.")] = False,
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Write there; - is stdout.")] = None,
    csv: Annotated[str | None, typer.Option("--csv", metavar="FILE", help="Also write the result table as CSV.")] = None,
    report: Annotated[str | None, typer.Option("--report", metavar="FILE.html", help="Also write a web page.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE",
                                                   help="Override one number; repeatable.")] = None,
    scenario: Annotated[list[str] | None, typer.Option("--scenario", metavar="NAME",
                                                       help="Also evaluate under this scenario; a+b joins two.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with 3 when a target is missed.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only results, no messages.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the draws, in place of the study's.")] = None,
    draws: Annotated[int | None, typer.Option("--draws", min=0, help="Number of draws; 0 leaves uncertain numbers at "
                                                                     "their stated value.")] = None,
) -> None:
    """Evaluate a study: verdict, tiers, reuse, knee, endurance, cost per qualified session."""
    raise typer.Exit(plan(study, json=json, output=output, csv=csv, report=report, assignments=set_ or [],
                          scenarios=scenario or [], check=check, quiet=quiet, seed=seed, draws=draws))


def plan(study: str, *, json: bool, output: str | None, csv: str | None, report: str | None, assignments: list[str],
         scenarios: list[str], check: bool, quiet: bool, seed: int | None, draws: int | None) -> int:
    """Evaluate a study file and write what was asked for; returns the exit status."""
    import json as json_module

    from kvmodel.cli.console import progress_bar, say, write_file, write_output
    from kvmodel.cli.summary import summary_text
    from kvmodel.results.targets import missed
    from kvmodel.study.load import load_study
    from kvmodel.study.resolve import parse_assignment
    from kvmodel.study.run import plan as run_plan

    if report is not None:
        from kvmodel.report.bundle import require_report_extra

        require_report_extra()  # before the long work, not after it
    loaded = load_study(study, dict(parse_assignment(text) for text in assignments))
    table = run_plan(loaded, scenarios, seed, draws, progress_bar("plan", quiet or json),
                     cost_curves=report is not None)
    if csv is not None:
        write_output(table.to_frame().to_csv(index=False), csv)
    if report is not None:
        from pathlib import Path

        from kvmodel.report.page import page

        write_file(Path(report), page(loaded, table))
        say(f"report written to {report}", quiet)
    if json:
        write_output(json_module.dumps(table.to_json(), indent=1, allow_nan=False), output)
    elif csv != "-":
        write_output(summary_text(table), output)
    if check and (lost := missed(table)):
        for row in lost:
            say(f"target missed: {row.definition}" + (f" ({row.tier or row.arm})" if row.tier or row.arm else ""), quiet)
        return ExitStatus.FINDING
    return ExitStatus.OK
