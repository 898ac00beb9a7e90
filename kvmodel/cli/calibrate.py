"""`kvmodel calibrate`: the numbers of a study from measured points, with their error."""

from __future__ import annotations

from typing import Annotated, Any

import typer

calibrate_app = typer.Typer(help="Fit a study's speeds to measured points.", no_args_is_help=True)

Points = Annotated[
    list[str],
    typer.Argument(help="CSV files, or results of vllm bench serve or SGLang bench_serving.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of the listing.")]
Output = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="FILE.yaml", help="Write the fragment of a study there; - is stdout."),
]


@calibrate_app.command("prefill")
def prefill_command(points: Points, json: Json = False, output: Output = None) -> None:
    """Constant, linear and attention term of prefill, from tokens, cached_tokens, seconds, concurrency."""
    from kvmodel.analyses import calibrate
    from kvmodel.study.measured_points import PREFILL, read_points

    read = read_points(points, PREFILL)
    _tell("prefill", points, read, calibrate.prefill(read), ("deployment", "prefill"), json, output)


@calibrate_app.command("transfer")
def transfer_command(
    points: Points,
    name: Annotated[str, typer.Option(help="Name of the tier in the study.")] = "tier",
    json: Json = False,
    output: Output = None,
) -> None:
    """Latency, cost per copy and bandwidth of a path, from bytes, block_bytes, seconds."""
    from kvmodel.analyses import calibrate
    from kvmodel.study.measured_points import TRANSFER, read_points

    read = read_points(points, TRANSFER)
    _tell("transfer", points, read, calibrate.transfer(read), ("tiers", name), json, output)


def _tell(
    what: str,
    files: list[str],
    points: dict[str, list[float]],
    found: Any,
    place: tuple[str, str],
    json: bool,
    output: str | None,
) -> None:
    """Residuals and errors to stdout, the fragment to its file or behind them."""
    import json as json_text

    from kvmodel.analyses.calibrate import document
    from kvmodel.cli.console import say, write_output

    text = _fragment(what, files, found, place)
    if output is not None:
        write_output(text, output)
        say(f"fragment written to {output}", output == "-")
    if json:
        write_output(json_text.dumps(document(found, points), indent=1, allow_nan=False), None)
    elif output != "-":
        write_output("\n".join([*_lines(points, found), "", *([] if output else [text])]), None)


def _fragment(what: str, files: list[str], found: Any, place: tuple[str, str]) -> str:
    """The fitted fields as YAML, at the place of a study where they belong."""
    from pathlib import Path

    names = ", ".join(Path(file).name for file in files)
    head = [
        f"# kvmodel calibrate {what} {names}: {len(found.fit.residuals)} points, {_error(found)}",
        *(f"# {note}" for note in found.notes),
    ]
    body = [f"    {name}: {value:.6g} {unit}" for name, (value, unit) in found.fields.items()]
    return "\n".join([*head, f"{place[0]}:", f"  {place[1]}:", *body]) + "\n"


def _error(found: Any) -> str:
    median, p90 = found.left_out
    if median != median:
        return "too few to leave one out"
    return f"each left out in turn: median error {100 * median:.1f} %, p90 {100 * p90:.1f} %"


def _lines(points: dict[str, list[float]], found: Any) -> list[str]:
    """Every point with its residual and its error when left out, then the terms."""
    from kvmodel.cli.summary import grid
    from kvmodel.units import number

    shown = [name for name, values in points.items() if len(set(values)) > 1 or name in ("tokens", "bytes", "seconds")]
    fit = found.fit
    body = [
        [
            *(number(points[name][i], 4) for name in shown),
            _percent(fit.residuals[i]),
            _percent(fit.left_out[i]),
            "let go as an outlier" if fit.outliers[i] else "",
        ]
        for i in range(len(fit.residuals))
    ]
    busy = [f"at concurrency {c:g} times {f:.3f}" for c, f in zip(fit.levels, fit.busy, strict=True) if f != 1]
    return [
        *grid([*shown, "residual", "left out", ""], body),
        "",
        *(f"{name}: {value:.4g} {unit}" for name, (value, unit) in found.fields.items()),
        *busy,
        f"error: {_error(found)}",
        *found.notes,
    ]


def _percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:+.1f} %"
