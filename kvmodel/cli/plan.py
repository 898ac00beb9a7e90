"""`kvmodel plan STUDY`: evaluate a study and say what it means."""

from __future__ import annotations

from typing import Annotated

import typer

from kvmodel.cli import options
from kvmodel.cli.exit_status import ExitStatus
from kvmodel.errors import KvmodelError


def plan_command(
    study: options.Study,
    json: options.Json = False,
    output: options.Output = None,
    csv: options.Csv = None,
    report: Annotated[str | None, typer.Option("--report", metavar="FILE.html", help="Also write a web page.")] = None,
    set_: options.Assignments = None,
    scenario: options.Scenarios = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 3 when a target is missed at half of the points or more.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also simulate sessions, tiers and GPUs, to see the closed forms' error.")
    ] = False,
    quiet: options.Quiet = False,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed of the draws, in place of the study's.")
    ] = None,
    draws: Annotated[
        int | None, typer.Option("--draws", min=0, help="Number of draws; 0 leaves uncertain numbers at their value.")
    ] = None,
) -> None:
    """Evaluate a study: verdict, tiers, reuse, knee, endurance, cost per qualified session."""
    raise typer.Exit(
        plan(
            study,
            json=json,
            output=output,
            csv=csv,
            report=report,
            assignments=set_ or [],
            scenarios=scenario or [],
            check=check,
            verify=verify,
            quiet=quiet,
            seed=seed,
            draws=draws,
        )
    )


def plan(
    study: str,
    *,
    json: bool,
    output: str | None,
    csv: str | None,
    report: str | None,
    assignments: list[str],
    scenarios: list[str],
    check: bool,
    verify: bool,
    quiet: bool,
    seed: int | None,
    draws: int | None,
) -> int:
    """Evaluate a study file and write what was asked for; returns the exit status."""
    import json as json_module

    from kvmodel.cli.console import progress_bar, require_writable, say, write_file, write_output
    from kvmodel.cli.summary import summary_text
    from kvmodel.results.targets import missed
    from kvmodel.study.load import load_study
    from kvmodel.study.resolve import parse_assignment
    from kvmodel.study.run import plan as run_plan

    require_writable(output, csv, report)
    if report is not None:
        from kvmodel.report.bundle import require_report_extra

        if not report.lower().endswith((".html", ".htm")):
            raise KvmodelError(f"--report {report}: the name must end in .html")
        require_report_extra()  # before the long work, not after it
    loaded = load_study(study, dict(parse_assignment(text) for text in assignments))
    table = run_plan(
        loaded,
        scenarios,
        seed,
        draws,
        progress_bar("plan", quiet or json),
        for_drawing=report is not None,
        verify=verify,
    )
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
            say(
                f"target missed: {row.definition}" + (f" ({row.tier or row.arm})" if row.tier or row.arm else ""), quiet
            )
        return ExitStatus.FINDING
    return ExitStatus.OK
