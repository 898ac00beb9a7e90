"""kvmodel fit: the workload section of a study, estimated from a trace."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from kvmodel.cli.console import write_output


def fit(
    file: str,
    *,
    format: str = "auto",
    block_tokens: int | None = None,
    session_interval_s: float | None = None,
    sort: bool = False,
    skip_bad_lines: bool = False,
) -> dict[str, Any]:
    """Workload section, what it rests on, and its error against the trace's exact curves (docs/traces.md)."""
    from kvmodel.traces import read_trace
    from kvmodel.traces.fit import fit_workload

    trace = read_trace(
        file,
        format=format,
        block_tokens=block_tokens,
        session_interval_s=session_interval_s,
        sort=sort,
        skip_bad_lines=skip_bad_lines,
    )
    return fit_workload(trace)


def fit_command(
    file: Annotated[str, typer.Argument(metavar="TRACE", help="A trace with block ids; - for stdin.")],
    format: Annotated[str, typer.Option("--format", help="Trace format; auto looks at the first line.")] = "auto",
    block_tokens: Annotated[
        int | None, typer.Option("--block-tokens", min=1, help="Tokens per block, when the trace does not say.")
    ] = None,
    session_interval: Annotated[
        float | None,
        typer.Option("--session-interval", min=0, help="Session files: seconds between session starts."),
    ] = None,
    sort: Annotated[bool, typer.Option("--sort", help="Put requests in order of time first.")] = False,
    skip_bad_lines: Annotated[
        bool, typer.Option("--skip-bad-lines", help="Count lines that break their format instead of stopping.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON document.")] = False,
    study: Annotated[
        str | None, typer.Option("--study", help="Write this study whole, its workload replaced by the fitted one.")
    ] = None,
    output: Annotated[str, typer.Option("-o", "--output", help="File for the result; - for stdout.")] = "-",
) -> None:
    """The workload section of a study, estimated from a trace, with its error."""
    fitted = fit(
        file,
        format=format,
        block_tokens=block_tokens,
        session_interval_s=session_interval,
        sort=sort,
        skip_bad_lines=skip_bad_lines,
    )
    text = json.dumps(fitted, indent=2, allow_nan=False) if as_json else section(fitted, _rest_of(study))
    write_output(text, output)


def _rest_of(study: str | None) -> dict[str, Any]:
    """The study's other sections; none without one."""
    if study is None:
        return {}
    from kvmodel.study.source import read_tree

    return {key: part for key, part in read_tree(study).data.items() if key != "workload"}


def section(fitted: dict[str, Any], rest: dict[str, Any] | None = None) -> str:
    """The workload section as YAML to paste into a study, or behind the rest of one, with its evidence as comments."""
    import yaml

    evidence, comparison = fitted["evidence"], fitted["comparison"]
    lines = [f"# from {evidence['sessions']:,} sessions, {evidence['requests']:,} requests"]
    for key in ("records", "laws") if comparison else ():
        found = comparison[key]
        lines.append(f"# {found['what']}:")
        for when, name in (("", ""), (", if demand were taken as steady", "_if_stationary")):
            errors = f"largest difference {found[f'largest_error{name}']:.4f}, mean {found[f'mean_error{name}']:.4f}"
            lines.append(f"#   {errors}{when}")
    lines += [f"# note: {note}" for note in fitted["notes"]]
    whole = {**(rest or {}), "workload": fitted["workload"]}
    return "\n".join(lines) + "\n" + yaml.safe_dump(whole, sort_keys=False, default_flow_style=None, width=110)
