"""kvmodel evaluate: predictions against published figures, case by case and per kind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kvmodel.errors import KvmodelError

_LARGEST_FILE = 64 * 2**20


def evaluate(file: str | Path, configs: str | Path | None = None) -> dict[str, Any]:
    """{"cases": [...], "summary": [...]} of a file of KV sizes (a mapping with cases) or of measurements (a
    list).

    configs  directory of the config.json files that KV-size cases name; by default model_configs beside the
    file
    """
    path = Path(file)
    document = _read(path)
    if isinstance(document, list):
        return _measurements(document, path)
    if isinstance(document, dict) and "cases" in document:
        from kvmodel.analyses.evaluate_size import evaluate_cases, summary

        found = evaluate_cases(document, Path(configs) if configs else path.parent / "model_configs", str(path))
        return {"cases": [result.as_dict() for result in found], "summary": summary(found)}
    raise KvmodelError(f"{path}: neither KV-size cases (a mapping with 'cases') nor measurements (a list)")


def evaluate_command(
    file: Annotated[str, typer.Argument(help="JSON file of KV-size cases or of measurements.")],
    configs: Annotated[str | None, typer.Option(help="Directory of config.json files the cases name.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Write the result as JSON.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit 3 when a case is a mismatch.")] = False,
    markdown: Annotated[
        str | None,
        typer.Option(metavar="PAGE.md", help="Put the tables of measurements between the marks of this page."),
    ] = None,
) -> None:
    """Predicted, published and error for every case of a file, and per kind."""
    import json as json_text

    from kvmodel.cli.exit_status import ExitStatus

    result = evaluate(file, configs)
    if markdown is not None:
        _into_page(result, Path(file), Path(markdown))
        return
    print(json_text.dumps(result, indent=1) if json else "\n".join(_lines(result)))
    if check and any(case.get("verdict") == "mismatch" for case in result["cases"]):
        raise typer.Exit(ExitStatus.FINDING)


def _into_page(result: dict[str, Any], file: Path, page: Path) -> None:
    """Renew the tables of a validation page from an evaluation of measurements."""
    from kvmodel.cli.validation_page import renew, tables

    document = _read(file)
    if not isinstance(document, list):
        raise KvmodelError(f"{file}: --markdown is for a file of measurements")
    renew(page, "measurements", tables(result, {case["id"]: str(case.get("source", "")) for case in document}))


def _read(path: Path) -> Any:
    import json

    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise KvmodelError(f"{path}: {path.stat().st_size} bytes is more than a file of cases may have")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KvmodelError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise KvmodelError(f"{path}: not JSON ({error})") from None


def _measurements(document: list[Any], path: Path) -> dict[str, Any]:
    from dataclasses import asdict

    from kvmodel.analyses import evaluate as measured
    from kvmodel.analyses.evaluate_bars import bars

    if not all(isinstance(case, dict) and "kind" in case and "id" in case for case in document):
        raise KvmodelError(f"{path}: every measurement is a mapping with at least id and kind")
    found = measured.evaluate(document)
    cases = [_finite({**asdict(outcome), "error": outcome.error}) for outcome in found]
    return {
        "cases": cases,
        "summary": [_finite(asdict(row)) for row in measured.summaries(found)],
        "bars": [asdict(bar) for bar in bars(found)],
    }


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """The row with null where a number is not finite, which JSON cannot say."""
    from math import isfinite

    return {name: None if isinstance(value, float) and not isfinite(value) else value for name, value in row.items()}


def _lines(result: dict[str, Any]) -> list[str]:
    sizes = any("verdict" in case for case in result["cases"])
    published, judgement = ("published", "verdict") if sizes else ("measured", "basis")
    rows = [("case", "kind", "predicted", published, "error", judgement, "reason")]
    rows += [
        (
            case["id"],
            case["kind"],
            _number(case["predicted"]),
            _number(case[published]),
            _percent(case["error"]),
            case[judgement],
            case["reason"],
        )
        for case in result["cases"]
    ]
    totals = [tuple(result["summary"][0])] if result["summary"] else []
    totals += [
        tuple(
            _percent(value) if "error" in name or name in ("median", "mean", "p90", "coverage") else str(value)
            for name, value in row.items()
        )
        for row in result["summary"]
    ]
    return [*_table(rows), "", *_table(totals)]


def _table(rows: list[tuple[Any, ...]]) -> list[str]:
    if not rows:
        return []
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"


def _percent(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:+.3%}"
